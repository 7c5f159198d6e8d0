"""What a sandbox sees of the server's Python, whatever links lead to it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtimes.isolation import abilities as probes
from runtimes.isolation import view
from runtimes.isolation.abilities import abilities
from runtimes.isolation.view import bubblewrap_words, interpreter, links_to, readable


def test_every_link_on_the_way_is_found_and_no_folder_beside_it(tmp_path):
    (tmp_path / "real/bin").mkdir(parents=True)
    (tmp_path / "real/bin/python3.13").touch()
    (tmp_path / "3.13").symlink_to("real")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to("../3.13/bin/python3.13")
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv/python").symlink_to(tmp_path / "bin/python3")

    found = links_to(str(tmp_path / "venv/python"))

    assert [Path(link).relative_to(tmp_path).as_posix() for link in found] == ["venv/python", "bin/python3", "3.13"]


def test_links_in_a_circle_are_an_error_and_no_wait(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    with pytest.raises(OSError, match="symbolic links"):
        links_to(str(tmp_path / "a"))


def test_each_file_that_only_its_owner_may_read_is_named_with_the_command_that_changes_it(tmp_path):
    for name, mode in (("program", 0o700), ("a folder", 0o750), ("open", 0o755)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    program, folder = tmp_path / "program", tmp_path / "a folder"

    told = view.closed(map(str, (program, tmp_path / "open", folder)))

    command = f"chmod -R a+rX {program} '{folder}'"
    assert told == f"other users may not read {program}, {folder} (`{command}` changes that)"
    assert view.closed([str(tmp_path / "open")]) == ""


@pytest.mark.process("forks, as each try of what works here does")
@pytest.mark.parametrize(("user", "adds"), [(0, True), (1000, False)])
def test_why_roots_sandboxes_fail_names_the_files_that_their_user_may_not_read(tmp_path, monkeypatch, user, adds):
    tmp_path.chmod(0o700)
    monkeypatch.setattr(probes.os, "geteuid", lambda: user)
    monkeypatch.setattr(probes, "readable", lambda *_: [str(tmp_path)])
    monkeypatch.setattr(probes, "_run", lambda _: os.write(1, b"bwrap: execvp: Permission denied"))

    reason = probes._failure("none")

    why = f"; other users may not read {tmp_path} (`chmod -R a+rX {tmp_path}` changes that)"
    assert reason == "bwrap: execvp: Permission denied" + (why if adds else "")


def chain(folder: Path, python: str) -> Path:
    """A virtual environment of a Python behind links, as version managers make them: in folders of mode 0700, to a
    folder, relative and absolute. Returns its program."""
    home = folder / "home"
    for name in ("shims", "versions", "other"):
        (home / name).mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    (home / "other/secret").write_text("not for sandboxes")
    (home / "versions/real").symlink_to(Path(python).resolve().parent.parent)
    (home / "versions/3").symlink_to("real")
    (home / "shims/python3").symlink_to(f"../versions/3/bin/{Path(python).resolve().name}")
    venv = folder / "venv"
    subprocess.run([home / "shims/python3", "-m", "venv", "--without-pip", venv], check=True)
    (venv / "bin/python3").unlink()
    (venv / "bin/python3").symlink_to(home / "shims/python3")  # as uv makes it
    # Also as uv: a Python finds its library from there, wherever it was built for.
    (venv / "pyvenv.cfg").write_text(f"home = {home}/versions/3/bin\n")
    return venv / "bin/python3"


@pytest.mark.process("starts bubblewrap")
@pytest.mark.parametrize("python", ["/usr/bin/python3", os.path.realpath(sys.executable)])
def test_a_sandbox_runs_a_python_behind_a_chain_of_links_and_sees_nothing_beside_them(tmp_path, monkeypatch, python):
    if reason := abilities().bubblewrap:
        pytest.skip(reason)
    program, work = chain(tmp_path, python), tmp_path / "work"
    work.mkdir()
    told = subprocess.run(
        [program, "-c", "import sys; print(sys.prefix, sys.base_prefix)"], capture_output=True, text=True, check=True
    )
    prefix, base_prefix = told.stdout.split()
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(sys, "prefix", prefix)
    monkeypatch.setattr(sys, "base_prefix", base_prefix)
    monkeypatch.setattr(view.site, "getsitepackages", list)

    assert str(tmp_path / "home/shims/python3") in interpreter()
    words, files = bubblewrap_words(readable([], []), str(work), str(work), {}, "", staged=False)
    code = f"import json, os, sqlite3; print(os.path.exists({str(tmp_path / 'home/other')!r}), sys.prefix)"
    said = subprocess.run(
        ["bwrap", *words, "--", str(program), "-c", f"import sys; {code}"],
        capture_output=True,
        text=True,
        pass_fds=files,
    )
    for file in files:
        os.close(file)

    assert (said.stdout, said.stderr) == (f"False {prefix}\n", "")

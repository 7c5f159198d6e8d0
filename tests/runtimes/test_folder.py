"""A sandbox's folder can always be removed with any content, and no file outside of it changes."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from runtimes import PartlyMeasured, RuntimeCallFailed
from runtimes.folder import lock, locked, make_below, opened_below, remove, used
from tests.servers import PROJECT


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "box"
    (folder / "work").mkdir(parents=True)
    return folder


@pytest.fixture
def outside(tmp_path):
    """A directory outside of the sandbox, to which a symlink of the sandbox may point."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    outside.chmod(0o550)  # what a removal would make writable first
    return outside


def test_a_symlink_to_a_directory_is_removed_and_its_target_is_not_touched(folder, outside):
    (folder / "work" / "lib64").symlink_to(outside)
    (folder / "work" / "dangling").symlink_to("/nowhere")
    (folder / "work" / "circle").symlink_to(folder)

    remove(folder)

    assert not folder.exists()
    assert outside.stat().st_mode & 0o777 == 0o550
    assert (outside / "file").exists()


def test_a_folder_that_became_a_symlink_is_not_followed(folder, outside):
    shutil.rmtree(folder)
    folder.symlink_to(outside)

    remove(folder)

    assert not folder.is_symlink()
    assert (outside / "file").exists()


@pytest.fixture
def swapped(monkeypatch, outside):
    """Have a directory replaced by a symlink to `outside` as soon as the folder that has it was listed."""

    def swap(directory):
        real, inner = os.scandir, directory.stat().st_ino

        def scandir(listed):
            with real(listed) as scanned:
                entries = list(scanned)
            at = Path(f"/proc/self/fd/{listed}") if isinstance(listed, int) else Path(listed)
            if any(entry.inode() == inner for entry in entries) and not (outside.parent / "aside").exists():
                (at / directory.name).rename(outside.parent / "aside")
                (at / directory.name).symlink_to(outside)
            return contextlib.nullcontext(entries)

        monkeypatch.setattr(os, "scandir", scandir)

    return swap


def test_a_directory_that_becomes_a_symlink_during_the_removal_is_not_followed(folder, outside, swapped):
    (folder / "work" / "inner").mkdir()
    swapped(folder / "work" / "inner")

    with contextlib.suppress(OSError):  # a directory is expected there
        remove(folder)

    assert outside.stat().st_mode & 0o777 == 0o550
    assert (outside / "file").exists()


def test_a_directory_that_becomes_a_symlink_while_it_is_measured_is_not_followed(folder, outside, swapped):
    (outside / "file").write_bytes(bytes(1 << 20))
    (folder / "work" / "inner").mkdir()
    swapped(folder / "work" / "inner")

    with pytest.raises(PartlyMeasured) as measured:
        used(folder)
    assert measured.value.least < 1 << 20


def test_a_directory_that_becomes_a_symlink_before_it_is_opened_is_not_measured(folder, outside, monkeypatch):
    (outside / "file").write_bytes(bytes(1 << 20))
    (folder / "work" / "inner").mkdir()
    opened = os.open

    def swapping(name, *given, **where):
        if name == b"inner" and not (folder / "aside").exists():
            (folder / "work" / "inner").rename(folder / "aside")
            (folder / "work" / "inner").symlink_to(outside)
        return opened(name, *given, **where)

    monkeypatch.setattr(os, "open", swapping)
    with pytest.raises(PartlyMeasured) as measured:
        used(folder)
    assert (folder / "aside").exists()
    assert measured.value.least < 1 << 20


def test_moving_a_directory_during_a_measurement_makes_it_partial(folder, monkeypatch):
    for name in ("one", "two"):
        (folder / "work" / name / "inner").mkdir(parents=True)
        (folder / "work" / name / "inner" / "file").write_bytes(bytes(1 << 20))
    real, moved = os.scandir, []

    def scandir(listed):
        at = Path(os.readlink(f"/proc/self/fd/{listed}"))  # noqa: PTH115 - of an open directory
        if at.name == "inner" and not moved:
            moved.append(at.rename(folder / "elsewhere"))
        return real(listed)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(PartlyMeasured) as measured:
        used(folder)
    assert measured.value.least >= 1 << 20


@pytest.mark.parametrize("kind", ["files", "symlinks", "directories", "FIFOs"])
def test_each_entry_counts_as_one_block_at_least(folder, kind):
    before = used(folder)
    for number in range(100):
        entry = folder / "work" / str(number)
        match kind:
            case "files":
                entry.touch()
            case "symlinks":
                entry.symlink_to("x")
            case "directories":
                entry.mkdir()
            case "FIFOs":
                os.mkfifo(entry)

    assert used(folder) - before >= 100 * 4096


def test_a_hole_in_a_sparse_file_counts_as_zero_bytes(folder):
    (folder / "work" / "sparse").touch()
    os.truncate(folder / "work" / "sparse", 1 << 40)

    assert used(folder) < 1 << 20


def test_a_measurement_stops_at_the_quota(folder):
    for number in range(100):
        (folder / "work" / f"directory-{number}").mkdir()
        (folder / "work" / f"directory-{number}" / "file").touch()

    assert 100_000 < used(folder, most=100_000) <= 100_000 + 4096
    assert used(folder, most=10_000_000) >= 200 * 4096


HIDES = """
import os, sys
from pathlib import Path
from runtimes.folder import used
if os.geteuid() == 0:
    os.chown(sys.argv[1], 54321, 54321)
    os.setresuid(54321, 54321, 54321)
hidden = Path(sys.argv[1]) / "hidden"
(hidden / "inner").mkdir(parents=True)
(hidden / "inner" / "file").write_bytes(bytes(1 << 20))
(hidden / "inner").chmod(0o400)
hidden.chmod(0)
print(used(Path(sys.argv[1])) >= 1 << 20, oct(hidden.stat().st_mode))
hidden.chmod(0o700)
print(oct((hidden / "inner").stat().st_mode))
"""


@pytest.mark.process("starts a program")
def test_a_directory_that_was_made_unreadable_is_measured_and_keeps_its_mode():
    with tempfile.TemporaryDirectory() as name:
        done = subprocess.run(
            [sys.executable, "-c", HIDES, name], cwd=PROJECT, capture_output=True, text=True, check=True
        )
        Path(name, "hidden", "inner").chmod(0o700)
    assert done.stdout.split() == ["True", "0o40000", "0o40400"]


def test_a_directory_is_made_below_a_folder_and_never_through_a_symlink(folder, outside):
    make_below(folder / "work", ("deep", "er"), os.geteuid())
    make_below(folder / "work", ("deep", "er"), os.geteuid())
    (folder / "work" / "link").symlink_to(outside)

    assert (folder / "work" / "deep" / "er").is_dir()
    with pytest.raises(NotADirectoryError):
        make_below(folder / "work", ("link", "made"), os.geteuid())
    assert not (outside / "made").exists()


def test_a_directory_below_a_folder_is_never_opened_through_a_symlink(folder, outside):
    (folder / "work" / "deep" / "er").mkdir(parents=True)
    (folder / "work" / "link").symlink_to(outside.parent)

    place = opened_below(folder / "work", folder / "work" / "deep" / "er")
    assert os.path.samestat(os.fstat(place), (folder / "work" / "deep" / "er").stat())
    os.close(place)
    for path in ("link", "link/outside"):
        with pytest.raises(NotADirectoryError):
            opened_below(folder / "work", folder / "work" / path)


def test_an_unreadable_directory_is_removed(folder):
    inner = folder / "work" / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").touch(mode=0o000)
    for closed in (inner, inner.parent, folder / "work", folder):
        closed.chmod(0o000)

    remove(folder)

    assert not folder.exists()


@pytest.mark.process("makes and removes thousands of nested folders")
def test_directories_that_are_nested_deeper_than_a_path_can_be_long_are_measured_and_removed(folder):
    # As a sandbox makes them: level by level, each from inside the previous one.
    nest = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    script = f"{nest}\nopen('f', 'wb').write(bytes(1 << 20))"
    subprocess.run([sys.executable, "-c", script], cwd=folder / "work", check=True)

    assert used(folder) > 1 << 20
    remove(folder)

    assert not folder.exists()


def test_the_removal_of_a_missing_folder_succeeds(folder):
    remove(folder)
    remove(folder)


@pytest.mark.process("starts a program")
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("chattr"), reason="only root may make a file immutable")
def test_a_path_that_cannot_be_removed_is_named_in_the_error(folder):
    fixed = folder / "work" / "fixed"
    fixed.touch()
    if subprocess.run(["chattr", "+i", fixed], capture_output=True).returncode:
        pytest.skip("this file system has no immutable files")
    try:
        with pytest.raises(OSError, match="fixed"):
            remove(folder)
        assert folder.exists()
    finally:
        subprocess.run(["chattr", "-R", "-i", folder], check=True)
    remove(folder)
    assert not folder.exists()


def test_a_lock_file_that_is_removed_while_it_is_locked_is_created_again(tmp_path, monkeypatch):
    path, real, gone = tmp_path / ".box.lock", Path.stat, []

    def stat(self, **options):
        if self == path and not gone:
            gone.append(path.unlink())
            raise FileNotFoundError
        return real(self, **options)

    monkeypatch.setattr(Path, "stat", stat)
    with locked(path) as held:
        assert os.path.samestat(os.fstat(held), real(path))


def test_a_lock_that_a_sandbox_holds_is_a_failure_after_the_timeout(tmp_path):
    with locked(tmp_path / ".box.lock") as held:
        file = os.open(tmp_path / ".box.lock", os.O_RDWR)
        with pytest.raises(RuntimeCallFailed, match="holds its lock"):
            lock(file, fcntl.LOCK_EX, 0.05)
        os.close(file)
        assert held
    with locked(tmp_path / ".box.lock"):
        pass

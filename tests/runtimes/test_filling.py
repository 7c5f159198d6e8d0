"""A new sandbox's folder is filled as a whole or not at all, also where the fill is a repeat."""

import io
import tarfile
from pathlib import Path

import pytest

from runtimes import Launch, RuntimeFailure
from runtimes.process import ProcessRuntime


def tar(*members: str) -> bytes:
    """An archive of empty files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in members:
            archive.addfile(tarfile.TarInfo(name))
    return packed.getvalue()


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.fixture
def runtime(tmp_path):
    return ProcessRuntime(tmp_path / "sandboxes", parent_cgroup=None)


def box(sandbox_id: str) -> Launch:
    return Launch(sandbox_id, ("/bin/true",), {}, ".")


@pytest.mark.parametrize("data", [tar("file", "../file"), tar("file")[:600]])
def test_an_archive_that_is_refused_leaves_no_folder(runtime, tmp_path, data):
    with pytest.raises(RuntimeFailure):
        runtime.unpack(box("new"), [data])

    assert not (tmp_path / "sandboxes" / "new").exists()


def test_a_fill_that_was_broken_off_is_repeated_from_its_beginning(runtime, tmp_path):
    part = tmp_path / "sandboxes" / "new" / "work.part"
    part.mkdir(parents=True)
    (part / "half").touch()

    runtime.unpack(box("new"), [tar("file")])

    assert names(tmp_path / "sandboxes" / "new") == ["work"]
    assert names(tmp_path / "sandboxes" / "new" / "work") == ["file"]


def test_a_repeated_fill_leaves_the_folder_as_it_is(runtime, tmp_path):
    runtime.unpack(box("new"), [tar("file")])
    runtime.unpack(box("new"), [])
    runtime.copy(box("copy"), "new")
    (tmp_path / "sandboxes" / "new" / "work" / "file").unlink()
    runtime.copy(box("copy"), "new")

    assert (tmp_path / "sandboxes" / "copy" / "work" / "file").exists()
    assert b"./file" in b"".join(runtime.pack(box("copy")))


def test_a_copy_of_a_sandbox_that_is_not_here_fails_and_leaves_no_folder(runtime, tmp_path):
    with pytest.raises(RuntimeFailure, match="No such file"):
        runtime.copy(box("new"), "missing")

    assert not (tmp_path / "sandboxes" / "new").exists()

"""A sandbox's folder can always be removed with any content, and no file outside of it changes."""

import fcntl
import os
import shutil
import subprocess
import sys

import pytest

from runtimes import RuntimeFailure
from runtimes.folder import lock, locked, remove


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "box"
    (folder / "work").mkdir(parents=True)
    return folder


@pytest.fixture
def outside(tmp_path):
    """A directory outside of the sandbox, to which a symlink of the sandbox may point."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o750)
    (outside / "file").touch()
    return outside


def test_a_symlink_to_a_directory_is_removed_and_its_target_is_not_touched(folder, outside):
    (folder / "work" / "lib64").symlink_to(outside)
    (folder / "work" / "dangling").symlink_to("/nowhere")
    (folder / "work" / "circle").symlink_to(folder)

    remove(folder)

    assert not folder.exists()
    assert outside.stat().st_mode & 0o777 == 0o750
    assert (outside / "file").exists()


def test_a_folder_that_became_a_symlink_is_not_followed(folder, outside):
    shutil.rmtree(folder)
    folder.symlink_to(outside)

    remove(folder)

    assert not folder.is_symlink()
    assert (outside / "file").exists()


def test_an_unreadable_directory_is_removed(folder):
    inner = folder / "work" / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").touch(mode=0o000)
    for closed in (inner, inner.parent, folder / "work", folder):
        closed.chmod(0o000)

    remove(folder)

    assert not folder.exists()


def test_directories_that_are_nested_deeper_than_a_path_can_be_long_are_removed(folder):
    # As a sandbox makes them: level by level, each from inside the previous one.
    script = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    subprocess.run([sys.executable, "-c", script], cwd=folder / "work", check=True)

    remove(folder)

    assert not folder.exists()


def test_the_removal_of_a_missing_folder_succeeds(folder):
    remove(folder)
    remove(folder)


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


def test_a_lock_that_a_sandbox_holds_is_a_failure_after_the_timeout(tmp_path):
    with locked(tmp_path / ".box.lock") as held:
        file = os.open(tmp_path / ".box.lock", os.O_RDWR)
        with pytest.raises(RuntimeFailure, match="holds its lock"):
            lock(file, fcntl.LOCK_EX, 0.05)
        os.close(file)
        assert held
    with locked(tmp_path / ".box.lock"):
        pass

"""Folders of odd things, and what lies in one, to be compared."""

import os
import stat
from pathlib import Path


def fill(folder: Path) -> None:
    """Put what an agent may leave into a folder: modes, links, empty directories, odd names, a repository."""
    for name in ("empty", "deep/er/est", "closed", ".git/hooks", "build"):
        (folder / name).mkdir(parents=True)
    (folder / "plain.txt").write_text("plain\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "deep" / "er" / "big.bin").write_bytes(os.urandom(1500) * 1000)
    (folder / "build" / "made.txt").write_text("made")
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh\ntouch /tmp/never\n")
    for name, content in {b"line\nend": b"1", b"latin\xe4": b"2", b" blank ": b"3", b"-n": b"4", b'q"\\': b"5"}.items():
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(content)
    (folder / "inner").symlink_to("deep/er")
    (folder / "dangling").symlink_to("/no/such/file")
    (folder / "outside").symlink_to("/etc/passwd")
    (folder / "same").hardlink_to(folder / "plain.txt")
    (folder / "run.sh").chmod(0o751)
    (folder / "build" / "made.txt").chmod(0o640)
    (folder / "closed").chmod(0o700)
    (folder / "empty").chmod(0o711)


def seen(folder: Path, *without: str) -> dict[bytes, tuple[object, ...]]:
    """What lies in a folder, by path: kind, mode, time of change, content or target, and the other names of a file."""
    found, names = dict[bytes, tuple[object, ...]](), dict[tuple[int, int], bytes]()
    for place, directories, files in os.walk(os.fsencode(folder)):
        directories[:] = sorted(one for one in directories if os.fsdecode(one) not in without)
        for name in sorted([*directories, *files]):
            path = place + b"/" + name
            status = os.lstat(path)
            inner = os.path.relpath(path, os.fsencode(folder))
            kind, mode = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
            match kind:
                case stat.S_IFREG:
                    first = names.setdefault((status.st_dev, status.st_ino), inner)
                    content: object = (Path(os.fsdecode(path)).read_bytes(), first)
                case stat.S_IFLNK:
                    content = Path(os.fsdecode(path)).readlink()
                case _:
                    content = None
            found[inner] = (kind, mode, status.st_mtime_ns if kind != stat.S_IFDIR else 0, content)
    return found

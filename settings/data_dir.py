"""DATA_DIR, which only its owner can read, and the sealing key in it for a server without SECRET_KEY.

Standard library only: the gunicorn master must not load modules that gevent patches in the workers.
"""

import os
import secrets
import stat
import tempfile
from pathlib import Path

#: Files in DATA_DIR: the sealing key, and the URL of the running embedded store.
SECRET_KEY_FILE, STORE_URL_FILE = "secret_key", "store.url"


def make_private(folder: Path) -> None:
    """Create a folder and its missing parents with mode 0700, or set this mode on a folder of ours. Raises OSError.

    A folder that the system shares among users, such as /tmp, keeps its mode.
    """
    if not folder.exists():
        if not folder.parent.exists():
            make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.stat()
    if status.st_uid == os.geteuid() and not status.st_mode & stat.S_ISVTX:
        folder.chmod(0o700)


def make_secret_key(data_dir: str) -> None:
    """Create the key's file, which only its owner can read, unless it exists. Several callers create it once.

    Raises RuntimeError with a sentence for the operator.
    """
    folder = Path(data_dir).resolve()
    path = folder / SECRET_KEY_FILE
    try:
        make_private(folder)
        if path.exists():
            path.chmod(0o600)
            return
        descriptor, unfinished = tempfile.mkstemp(prefix=f".{SECRET_KEY_FILE}.", dir=folder)  # with mode 0600
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(unfinished)  # never replaces a key that another process has just made
        except FileExistsError:
            pass
        finally:
            Path(unfinished).unlink()
    except OSError as error:
        raise RuntimeError(
            f"DATA_DIR {folder} cannot be used: {error.strerror}. It has the sealing key, unless SECRET_KEY is set"
        ) from None


def kept_key(data_dir: str) -> str:
    """Return the key that `make_secret_key` made; empty if there is none. Raises OSError, ValueError."""
    path = Path(data_dir) / SECRET_KEY_FILE
    return path.read_text().strip() if path.exists() else ""


def folder_of(url: str, folder: Path) -> Path | None:
    """Return the folder if the store of a URL keeps its file there; None for another Redis, and for fakeredis."""
    file = folder / STORE_URL_FILE
    is_here = url.startswith("unix://") and file.exists() and file.read_text() == url
    return folder if is_here else None

"""DATA_DIR, which only its owner may read, and the key in it that seals secrets for a server that is given none.

Only the standard library stands here: the gunicorn master must not load what gevent has to patch in the workers.
"""

import os
import secrets
import stat
import tempfile
from pathlib import Path

#: names of files in DATA_DIR: the key that seals, and the URL of the embedded store that runs
SECRET_KEY_FILE, STORE_URL_FILE = "secret_key", "store.url"


def make_private(folder: Path) -> None:
    """Make a folder, and the missing ones above it, with mode 0700; set that mode where the folder exists and is ours.

    A folder that the system shares among users, such as /tmp, keeps its mode. Raises OSError.
    """
    if not folder.exists():
        if not folder.parent.exists():
            make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.stat()
    if status.st_uid == os.geteuid() and not status.st_mode & stat.S_ISVTX:
        folder.chmod(0o700)


def make_secret_key(data_dir: str) -> None:
    """Make the key's file unless it is there; of several callers one makes it. Only its owner may read it.

    Raises RuntimeError with a sentence for the operator.
    """
    folder = Path(data_dir).resolve()
    path = folder / SECRET_KEY_FILE
    try:
        make_private(folder)
        if path.exists():
            path.chmod(0o600)
            return
        descriptor, unfinished = tempfile.mkstemp(prefix=f".{SECRET_KEY_FILE}.", dir=folder)  # of mode 0600
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(unfinished)  # never over a key that another process has just made
        except FileExistsError:
            pass
        finally:
            Path(unfinished).unlink()
    except OSError as error:
        raise RuntimeError(
            f"DATA_DIR {folder} cannot be used: {error.strerror}. It keeps the key that seals, unless SECRET_KEY is set"
        ) from None


def kept_key(data_dir: str) -> str:
    """The key that `make_secret_key` made; empty where there is none. Raises OSError, ValueError."""
    path = Path(data_dir) / SECRET_KEY_FILE
    return path.read_text().strip() if path.exists() else ""


def folder_of(url: str, folder: Path) -> Path | None:
    """The folder itself if the store of a URL keeps its file there; None for another Redis, and for fakeredis."""
    file = folder / STORE_URL_FILE
    is_here = url.startswith("unix://") and file.exists() and file.read_text() == url
    return folder if is_here else None

"""A fixture that writes the archive of a sandbox."""

import io
import tarfile

import pytest

from supervisor.archives import compressed


@pytest.fixture
def archive(tmp_path):
    """Writes an archive as the server does: of (name, content), or of members."""

    def write(*members):
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as tar:
            for member in members:
                data = None
                if not isinstance(member, tarfile.TarInfo):
                    (name, text), data = member, member[1].encode()
                    member = tarfile.TarInfo(name)
                    member.size = len(text)
                tar.addfile(member, io.BytesIO(data) if data is not None else None)
        path = tmp_path / "files.tar.zst"
        path.write_bytes(b"".join(compressed([content.getvalue()])))
        return path

    return write

"""Exports as tests change them."""

from collections.abc import Sequence
from hashlib import sha256


def sealed(lines: Sequence[bytes]) -> list[bytes]:
    """The lines of an export, and the last one with the digest of them."""
    digest = sha256(b"".join(line + b"\n" for line in lines)).hexdigest()
    return [*lines, f'{{"format":"agent-server-conversation-end","sha256":"{digest}"}}'.encode()]

"""What chance decides in tests: how often it is repeated, and damages as disks, editors and copies make them; and which
variants run only where LONG is set.

Damages: flips, cuts, insertions, blocks in other places, lines twice.
"""

import os
from collections.abc import Iterable
from random import Random

import pytest

#: of a test whose promise another one keeps in less time
RARE = pytest.mark.skipif(not os.environ.get("LONG"), reason="runs where LONG is set: another test is about the same")


def often(usual: int, long: int) -> int:
    """The second number where LONG is set, as before a release."""
    return long if os.environ.get("LONG") else usual


def variants(usual: Iterable, rare: Iterable) -> list:
    """The variants of a test, of which the rare ones run where LONG is set."""
    return [*usual, *(pytest.param(one, marks=RARE) for one in rare)]


def damaged(content: bytes, seed: int) -> bytes:
    """A content with one to three damages; never the content itself."""
    chance, changed = Random(seed), content
    while changed == content:
        changed = content
        for _ in range(chance.choice((1, 1, 2, 3))):
            changed = chance.choice(_DAMAGES)(changed, chance)
    return changed


def _flip(content: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(content) or 1)
    return content[:at] + bytes(byte ^ 1 << chance.randrange(8) for byte in content[at : at + 1]) + content[at + 1 :]


def _replace(content: bytes, chance: Random) -> bytes:
    at, length = chance.randrange(len(content) + 1), chance.randint(1, 16)
    return content[:at] + chance.randbytes(length) + content[at + length :]


def _cut(content: bytes, chance: Random) -> bytes:
    first, last = sorted(chance.randrange(len(content) + 1) for _ in range(2))
    return chance.choice((content[:first], content[last:], content[:first] + content[last:]))


def _insert(content: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    return content[:at] + chance.choice((chance.randbytes(chance.randint(1, 40)), b"\n", b" ", b"\0")) + content[at:]


def _swap(content: bytes, chance: Random) -> bytes:
    a, b, c, d = sorted(chance.randrange(len(content) + 1) for _ in range(4))
    return content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


def _repeat(content: bytes, chance: Random) -> bytes:
    """A line stands there twice, or two lines have changed places."""
    lines = content.splitlines(keepends=True) or [b""]
    at, other = (chance.randrange(len(lines)) for _ in range(2))
    if chance.random() < 0.5:
        return b"".join([*lines[:at], lines[at], *lines[at:]])
    lines[at], lines[other] = lines[other], lines[at]
    return b"".join(lines)


_DAMAGES = (_flip, _replace, _cut, _insert, _swap, _repeat)

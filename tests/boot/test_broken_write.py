"""What a store's file ends in is cut where it is one write that broke off; damage before acknowledged writes is not."""

import random
import re
import shutil
from collections.abc import Set
from pathlib import Path

import pytest

from boot.broken_write import is_one_write
from tests.boot.stores import store_of
from tests.chance import damaged, often

MULTI, EXEC = b"*1\r\n$5\r\nMULTI\r\n", b"*1\r\n$4\r\nEXEC\r\n"


def write(number: int) -> bytes:
    return b"*3\r\n$3\r\nSET\r\n$7\r\nkey %03d\r\n$4\r\nkept\r\n" % number


TRANSACTION = MULTI + write(1) + write(2) + EXEC


@pytest.mark.parametrize("whole", [write(1), TRANSACTION, b"*2\r\n$3\r\nGET\r\n$40\r\n" + b"*1\r\n" * 10 + b"\r\n"])
def test_one_write_that_broke_off_anywhere_is_one(whole):
    for kept in range(len(whole)):
        assert is_one_write(write(0) + whole[:kept], len(write(0)))


@pytest.mark.parametrize("after", [write(2), TRANSACTION, write(2)[:-3], TRANSACTION[:-3]])
def test_a_damaged_length_before_other_writes_is_no_write_that_broke_off(after):
    for damaged_one in (write(1).replace(b"$4", b"$9999999"), TRANSACTION.replace(b"$7", b"$99999", 1)):
        assert not is_one_write(damaged_one + after, 0)


def test_a_whole_write_is_no_write_that_broke_off():
    assert not is_one_write(write(1) + write(2)[:-3], 0)
    assert not is_one_write(TRANSACTION + write(3)[:-3], 0)


def file_of(folder: Path) -> Path:
    [file] = [path for path in (folder / "appendonlydir").glob("*.aof") if path.stat().st_size]
    return file


def refusal(folder: Path, expected: Set[bytes] = frozenset()) -> str:
    """Why the store of a folder does not start; empty where it does, and has the keys that are expected."""
    try:
        with store_of(folder) as redis:
            assert expected <= set(redis.keys()), folder
    except RuntimeError as refused:
        return str(refused)
    return ""


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The folder of a store, and how long its file was when each key was acknowledged."""
    folder, chance, ends = tmp_path_factory.mktemp("kept"), random.Random(1), {}
    with store_of(folder) as redis:
        for number in range(100):
            keys = [b"key %03d" % (3 * number + one) for one in range(3)]
            with redis.pipeline(transaction=bool(number % 2)) as pipe:
                for key in keys:
                    pipe.set(key, chance.randbytes(30))
                pipe.execute()
            ends |= dict.fromkeys(keys, file_of(folder).stat().st_size)
    return folder, ends


@pytest.mark.process("starts stores")
def test_a_damaged_length_that_reaches_beyond_the_end_is_refused_and_nothing_is_cut(kept, tmp_path):
    folder = shutil.copytree(kept[0], tmp_path / "copy")
    content = file_of(folder).read_bytes()
    at = content.index(b"$7\r\nkey 150") + 1
    changed = content[:at] + b"99999999" + content[at:]
    file_of(folder).write_bytes(changed)

    assert "its file is damaged. docs/operations.md#a-damaged-store" in refusal(folder)
    assert file_of(folder).read_bytes() == changed


@pytest.mark.faults("damages the file of a store at random places")
def test_a_store_whose_file_was_damaged_keeps_what_was_acknowledged_before_or_is_refused_unchanged(
    kept, tmp_path, capfd
):
    chance, outcomes = random.Random(33), set()
    for number in range(often(8, 80)):
        folder = shutil.copytree(kept[0], tmp_path / str(number))
        file = file_of(folder)
        content = file.read_bytes()
        tail = content[-chance.choice((100, 1_000, 10_000)) :]
        changed = content[: -len(tail)] + (
            tail[: chance.randrange(len(tail))] if number % 2 else damaged(tail, chance.randrange(1 << 30))
        )
        file.write_bytes(changed)
        first = next((at for at, (one, other) in enumerate(zip(content, changed, strict=False)) if one != other), None)
        before = {key for key, end in kept[1].items() if end <= (len(changed) if first is None else first)}
        refused = refusal(folder, before)
        if refused:
            assert "docs/operations.md#a-damaged-store" in refused, number
            assert file.read_bytes() == changed
            outcomes.add("refused")
            continue
        told = capfd.readouterr().err
        cut = re.search(r"has dropped the last (\d+) bytes", told)
        assert len(changed) - file.stat().st_size == int(cut[1] if cut else 0), number
        outcomes.add("cut" if cut else "read whole")
    assert {"refused", "cut"} <= outcomes

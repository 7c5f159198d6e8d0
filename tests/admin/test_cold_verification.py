"""`python -m admin cold verify`: every object that is wrong is named, and nothing else is."""

import re
from uuid import uuid4

import pytest
from redis import Redis

from admin import cold
from store.objects import ObjectFolder
from tests.cold import cold_store
from tests.conftest import SECRET_KEY, as_events, event, message


@pytest.fixture
def verify(redis_url, tmp_path, monkeypatch, capsys):
    """Run the command on cold storage of its own; its exit status, its lines and its last sentence."""
    Redis.from_url(redis_url).delete("{cold}:objects", "{cold}:pieces")  # those of other tests
    monkeypatch.setenv("REDIS_URL", redis_url)
    monkeypatch.setenv("SECRET_KEY", SECRET_KEY)
    monkeypatch.setenv("COLD_URL", f"file://{tmp_path}/cold")

    def run() -> tuple[int, list[str], str]:
        status = cold.main(["verify"])
        printed = capsys.readouterr()
        return status, printed.out.splitlines(), printed.err

    return run


@pytest.fixture
def folder(tmp_path):
    return ObjectFolder(f"{tmp_path}/cold")


@pytest.fixture
def frozen(redis_url, folder, monkeypatch):
    """Make a cold conversation; the name of its object."""

    def make(words: int = 1 << 30) -> str:
        monkeypatch.setattr("store.log.frames._MOST_WORDS", words)
        store, identity = cold_store(redis_url, folder), str(uuid4())
        store.conversations.create(identity)
        store.events.append(identity, as_events([event(), message("words"), event()]))
        assert store.conversations.cold.freeze(identity)
        [name] = [one for one in folder.names() if one.startswith(identity) and "-p" not in one]
        return name

    return make


def flipped(folder: ObjectFolder, name: str) -> None:
    content = folder.get(name)
    folder.put(name, content[:-40] + bytes([content[-40] ^ 1]) + content[-39:])


def test_whole_cold_storage_verifies(verify, frozen, redis_url, folder):
    _, _, thawed = frozen(), frozen(4), frozen()
    cold_store(redis_url, folder).conversations.cold.thaw(thawed.rpartition("-")[0])

    status, lines, said = verify()

    assert (status, lines) == (0, [])
    assert "2 objects of cold conversations are valid, and 1 that no conversation of this store needs; 0 are" in said


def test_each_object_and_piece_that_is_damaged_or_missing_is_named(verify, frozen, redis_url, folder):
    names = [frozen(), frozen(), frozen(4), frozen(4), frozen()]
    flipped(folder, names[0])
    folder.delete(names[1])
    flipped(folder, f"{names[2]}-p1")
    folder.delete(f"{names[3]}-p1")
    other = f"{uuid4()}-{uuid4().hex}"
    folder.put(other, folder.get(names[4]))

    status, lines, said = verify()

    assert status == 1
    assert sorted(line.partition(": ")[0] for line in lines) == sorted([*names[:4], other])
    told = dict(line.split(": ", 1) for line in lines)
    assert "its digest is not that of its content" in told[names[0]]
    assert "is missing" in told[names[1]]
    assert f"its piece {names[2]}-p1" in told[names[2]]
    assert f"{names[3]}-p1 is missing" in told[names[3]]
    assert "not the one that was kept under its name" in told[other]
    assert re.search("1 objects of cold conversations are valid.* 5 are invalid", said)


def test_cold_storage_that_is_unset_or_unreadable_is_not_called_damaged(verify, folder, monkeypatch, tmp_path):
    monkeypatch.setattr(ObjectFolder, "names", lambda _: (_ for _ in ()).throw(cold.ObjectsAway("the folder is away")))
    assert verify() == (2, [], "cold: cannot be read: the folder is away\n")

    monkeypatch.delenv("COLD_URL")
    assert verify() == (2, [], "cold: cannot be read: COLD_URL is not set\n")

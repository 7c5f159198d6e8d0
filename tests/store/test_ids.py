"""The ids of a log, packed in buckets that are divided as the log grows: every id leads to its event, and no other."""

from random import Random
from uuid import UUID, uuid4

import pytest

from store.keys import ConversationKeys
from tests.conftest import as_events, event


def ids_of_one_moment(number: int) -> list[str]:
    """UUIDs of version 7 of one millisecond and of counters, as agents may make them."""
    random = Random(7)
    return [f"0198c2f1-7a3b-7{n % 4096:03x}-8000-{random.getrandbits(48):012x}" for n in range(number)]


KINDS_OF_IDS = {
    "random": lambda number: [str(uuid4()) for _ in range(number)],
    "of one moment": ids_of_one_moment,
    "counted": lambda number: [f"6d3cb74f-6c0e-4c3a-9d5e-{n:012x}" for n in range(number)],
    "no UUIDs": lambda number: [f"event {n}" for n in range(number)],
    "UUIDs in upper case": lambda number: [str(uuid4()).upper() for _ in range(number)],
    "of one bucket": lambda number: [str(UUID(int=(n << 40) + (4 << 76) + (8 << 60))) for n in range(number)],
}


@pytest.mark.parametrize("ids", KINDS_OF_IDS.values(), ids=KINDS_OF_IDS)
def test_every_id_is_found_while_the_log_grows(store, conversation, ids):
    # Given batches of many sizes
    known, left = [], [event(id=one) for one in ids(700)]
    for size in (1, 1, 30, 3, 200, 64, 1, 400):
        batch, left = left[:size], left[size:]
        store.events.append(conversation, as_events(batch))
        known += batch

        # Then each event is found by its id, and an id that no event has is not
        if known:
            asked = [one["id"] for one in known]
            assert store.events.get_many(conversation, asked) == [one.raw for one in as_events(known)]
            assert store.events.unknown(conversation, [*asked, "another", str(UUID(int=5))]) == {
                "another",
                str(UUID(int=5)),
            }

    # And a repeat of all is skipped
    assert store.events.append(conversation, as_events(known[:400]))[0] == 0
    assert store.events.count(conversation) == len(known) == 700


def test_ids_that_one_sender_has_crowded_into_one_bucket_leave_it_small(store, conversation):
    crowded = [event(id=one) for one in KINDS_OF_IDS["of one bucket"](450)]

    store.events.append(conversation, as_events(crowded))

    buckets = store.events._redis.hvals(f"{ConversationKeys(conversation).root}:seqs")
    assert max(map(len, buckets)) <= 128 * 20


def test_ids_that_differ_in_case_or_dashes_are_of_different_events(store, conversation):
    one = "0198c2f1-7a3b-7000-8000-00000000abcd"
    alike = [one, one.upper(), one.replace("-", ""), one + "0", one[:-1], f"{one[:8]}0{one[9:]}"]

    store.events.append(conversation, as_events([event(id=name) for name in alike]))

    assert store.events.count(conversation) == len(alike)
    found = store.events.get_many(conversation, alike)
    assert len(set(found)) == len(alike)

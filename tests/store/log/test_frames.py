"""Events as the log keeps them: whatever was appended comes back byte for byte, and every frame stays readable."""

import io
import json
from hashlib import sha256
from random import Random
from uuid import uuid4

import pytest
import zstandard

from core.wire import MOST_EVENT_BYTES, read_event
from store.keys import ConversationKeys
from store.log.frames import DICTIONARY, PAGE_BYTES, compressed, original, originals, show
from tests.conftest import as_events, event, message
from tests.servers import PROJECT

DICTIONARIES = PROJECT / "store" / "log" / "dictionaries"

#: the dictionaries that were shipped: one that changes makes the events that were kept with it unreadable
SHIPPED = {1: "85b4dd16961f482f87226bec45b8fa1fccf182d80f684fb9d577ac20a8eb285e"}

ALPHABETS = ["ab", "0123456789abcdef-", "größe 设置 日本語 😀", '"\\/\b\f\n\r\t\x00\x1f\x7f', "\ud800\udc00", "(µ/ý"]


def texts(random: Random):
    """JSON texts of events: spaced, compact and escaped, of every length up to some hundred bytes and of odd ones."""
    for size in [*range(0, 300, 7), 255, 256, 257, 4095, 65_535, 65_791, 65_792, 70_000]:
        said = "".join(random.choices(random.choice(ALPHABETS), k=size))
        one = message(said) if size % 2 else event("ObservationEvent", "environment", observation={"text": said})
        separators, is_ascii = random.choice([None, (",", ":"), (" ,  ", " :\t")]), random.random() < 0.5
        text = json.dumps(
            one, separators=separators, ensure_ascii=is_ascii or any("\ud800" <= c < "\ue000" for c in said)
        )
        yield text.encode()


def test_what_is_appended_comes_back_byte_for_byte(store, conversation):
    raws = list(texts(Random(8)))
    batch = [read_event(raw) for raw in raws]

    store.events.append(conversation, batch)

    assert store.events.get_many(conversation, [one.id for one in batch]) == raws
    assert store.streams.events.read(conversation, 0, wait=0, limit=100)[0] == raws
    kept = store.events._redis.lrange(ConversationKeys(conversation).log, 0, -1)
    assert originals(kept) == raws
    assert sum(map(len, kept)) < sum(map(len, raws))


@pytest.mark.parametrize("noise", [0, 255], ids=["plain", "noise"])
def test_the_size_of_an_event_stands_in_its_frame(store, noise):
    text = (PROJECT / "store/scripts/_frame.lua").read_text() + "\nreturn size_of(ARGV[1])"
    for size in (1, 10, 255, 256, 257, 65_791, 65_792, MOST_EVENT_BYTES - 200):
        said = "".join(chr(32 + byte % 90) if noise else "x" for byte in Random(size).randbytes(size))
        [one] = as_events([message(said)])
        kept = compressed(one.raw)

        assert original(kept) == one.raw
        assert len(kept) <= len(one.raw)
        assert store.events._redis.eval(text, 1, ConversationKeys("of no one").root, kept) == len(one.raw)


def test_pages_end_by_the_bytes_of_events_and_not_by_those_of_frames(store, conversation):
    # Given events of which a frame is a thousandth
    large = [message("x" * (MOST_EVENT_BYTES - 1000)) for _ in range(12)]
    for one in large:
        store.events.append(conversation, as_events([one]))

    page, following = store.events.search(conversation)

    assert 0 < sum(map(len, page)) <= PAGE_BYTES
    assert following == large[len(page)]["id"]
    events, seq = store.streams.events.read(conversation, 0, wait=0, limit=100)
    assert sum(map(len, events)) <= PAGE_BYTES
    assert seq == len(events)


def test_a_dictionary_that_was_shipped_never_changes():
    found = {int(file.stem): sha256(file.read_bytes()).hexdigest() for file in DICTIONARIES.glob("*.zdict")}

    assert found == SHIPPED
    assert max(SHIPPED) == DICTIONARY


def test_a_frame_names_its_dictionary_and_any_zstandard_program_reads_it():
    [one] = as_events([message("hello")])
    frame = compressed(one.raw)

    assert zstandard.get_frame_parameters(frame).dict_id == DICTIONARY
    dictionary = zstandard.ZstdCompressionDict((DICTIONARIES / f"{DICTIONARY}.zdict").read_bytes())
    assert zstandard.ZstdDecompressor(dict_data=dictionary).decompress(frame) == one.raw


def test_a_frame_of_a_newer_dictionary_is_refused_by_its_number():
    frame = bytearray(compressed(as_events([message("hello")])[0].raw))
    frame[5] = 255

    with pytest.raises(KeyError, match="dictionary 255"):
        original(bytes(frame))


@pytest.mark.parametrize("said", ["", "hello" * 30])
def test_an_event_that_redis_cli_has_printed_is_shown_as_it_came(said):
    raw = json.dumps({"id": str(uuid4()), "said": said}).encode()
    shown = io.BytesIO()

    show(io.BytesIO(compressed(raw) + b"\n"), shown)

    assert shown.getvalue() == raw + b"\n"

"""Counts with `body`: against one pass of `bytes.find` over the same text, warm and in a new worker."""

from itertools import repeat
from random import Random
from statistics import median
from timeit import timeit
from urllib.parse import quote

from bench import corpus, load, servers
from bench.measure import Effort, Row, interleaved
from store.log.text import fold
from wire import ConversationId, Event

#: needles: in no message, in one of a thousand, in every one
ABSENT, RARE, COMMON = "Zebrafinch nowhere", "Rare-Needle", "everywhere"


def rows(effort: Effort) -> list[Row]:
    """Warm by needle, then the first count of new workers."""
    random = Random(2)
    conversation_id = corpus.conversation(random)
    events = list(corpus.messages(random, effort.messages, RARE, COMMON))
    text = b" ".join(fold(text_of(event)) for event in events)
    with servers.redis_server() as url:
        corpus.fill(url, conversation_id, events)
        with servers.gunicorn("app:create_app()", url) as port:
            warm = [
                _warm(effort, port, conversation_id, text, "absent", ABSENT, most=5),
                _warm(effort, port, conversation_id, text, "rare", RARE, most=5),
                _warm(effort, port, conversation_id, text, "in every message", COMMON),
            ]
        return [*warm, _cold(effort, url, conversation_id, text)]


def text_of(event: Event) -> str:
    """The text of a message."""
    text: str = event.fields["llm_message"]["content"][0]["text"]
    return text


def request_for(conversation_id: ConversationId, needle: str) -> bytes:
    """A request that counts the messages with a needle."""
    return load.get(f"/api/conversations/{conversation_id}/events/count?body={quote(needle)}")


def find_all(text: bytes, needle: bytes) -> int:
    """How often text has the needle, by one pass."""
    found, at = 0, text.find(needle)
    while at >= 0:
        found, at = found + 1, text.find(needle, at + len(needle))
    return found


def _warm(
    effort: Effort,
    port: int,
    conversation_id: ConversationId,
    text: bytes,
    name: str,
    needle: str,
    most: float | None = None,
) -> Row:
    request, folded = request_for(conversation_id, needle), fold(needle)
    expect = b"%d" % find_all(text, folded)

    def ours() -> float:
        run = load.drive(port, repeat(request, effort.body_counts), connections=1, expect=expect)
        return run.seconds / run.requests

    def find() -> float:
        return timeit(lambda: find_all(text, folded), number=effort.body_counts) / effort.body_counts

    rounds = interleaved(effort.rounds, ours, find)
    ours_time, find_time = rounds.medians
    return Row(
        f"count, body {name}, {effort.messages:,} messages of {len(text) / 1e6:.1f} MB: time against one find pass",
        rounds.ratio,
        " ×",
        f"{ours_time * 1e3:.2f} ms against {find_time * 1e3:.2f} ms",
        most=most,
        raw={**rounds.raw, "unit": "s"},
    )


def _cold(effort: Effort, url: str, conversation_id: ConversationId, text: bytes) -> Row:
    request, expect = request_for(conversation_id, ABSENT), b"0"
    times = []
    for _ in range(effort.worker_starts):
        with servers.gunicorn("app:create_app()", url) as port:
            run = load.drive(port, [request], connections=1, expect=expect)
            times.append(run.seconds * 1e3)
    return Row(
        f"count, body absent, {effort.messages:,} messages: first count of a new worker",
        median(times),
        " ms",
        f"{len(text) / 1e6:.1f} MB fetched; from {min(times):.1f} to {max(times):.1f} ms in {len(times)} starts",
        most=25,
        raw={"ours": times, "unit": "ms"},
    )

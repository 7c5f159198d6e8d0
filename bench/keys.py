"""Counts that show a key against the same counts of a server that needs none."""

from contextlib import ExitStack
from itertools import cycle
from random import Random

from bench import corpus, load, servers
from bench.measure import Effort, Row, interleaved
from config import Config
from wiring import open_store_of

#: requests under way at once: enough to keep one worker busy
_CONNECTIONS = 8

#: a key of the settings, by which the server needs one
_OF_SETTINGS = "a-key-of-the-settings"


def rows(effort: Effort) -> list[Row]:
    """A key that an admin made: the server looks it up in Redis twice a second, and remembers it in between."""
    conversation = corpus.conversation(Random(1))
    path = f"/api/conversations/{conversation}/events/count"
    with ExitStack() as stack:
        url = stack.enter_context(servers.redis_server())
        corpus.fill(url, conversation, corpus.small_events(Random(1), effort.small_log))
        _, key = open_store_of(Config(redis_url=url)).access_keys.make("bench", ["read"], None)
        keyed = stack.enter_context(servers.gunicorn("app:create_app()", url, SESSION_API_KEY=_OF_SETTINGS))
        open_ = stack.enter_context(servers.gunicorn("app:create_app()", url))

        def rate(port: int, request: bytes) -> float:
            expect = b"%d" % effort.small_log
            run = load.drive(port, cycle([request]), connections=_CONNECTIONS, seconds=effort.seconds, expect=expect)
            return run.rate

        with_key, without = load.get(path, f"Authorization: Bearer {key}"), load.get(path)
        rounds = interleaved(effort.rounds, lambda: rate(keyed, with_key), lambda: rate(open_, without))
    with_rate, without_rate = rounds.medians
    return [
        Row(
            "count, no filter: throughput with a key against none",
            rounds.ratio,
            " ×",
            f"{with_rate:,.0f}/s against {without_rate:,.0f}/s",
            least=0.95,
            raw={**rounds.raw, "unit": "requests/s"},
        )
    ]

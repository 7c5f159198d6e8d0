"""A claim of an Idempotency-Key that could not be ended while Redis refused ends as soon as Redis takes it again."""

from contextlib import suppress
from uuid import uuid4

import pytest
from redis import Redis

from store.access import idempotency
from store.access.idempotency import IdempotencyKeyBusy, KeptResponse
from store.errors import UNAVAILABLE
from store.link.attempts import Attempt
from tests.conftest import limits_of, store_of
from tests.servers import store_server, wait_until
from tests.store.conftest import keys

RESPONSE = KeptResponse(201, "application/json", '{"id":"one"}')


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The records on a real server, and a connection to it."""
    with store_server(tmp_path_factory.mktemp("redis")) as (url, _):
        yield (
            store_of(url, limits_of(most=1, pause_idlest=False, host_seconds=60, start_seconds=60)).access.idempotency,
            Redis.from_url(url),
        )


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """No half of a second passes between two tries."""
    monkeypatch.setattr(idempotency, "_RETRY", 0.01)


@pytest.fixture
def ended(server):
    """Ends an attempt while Redis refuses all writes, and returns what its repeat finds in the end."""
    records, redis = server

    def do(end) -> Attempt | KeptResponse:
        client, key = str(uuid4()), str(uuid4())
        attempt = records.begin(client, key, "request")
        redis.config_set("min-replicas-to-write", 1)
        with pytest.raises(UNAVAILABLE):
            end(records, client, key, attempt)
        redis.config_set("min-replicas-to-write", 0)
        found: list[Attempt | KeptResponse] = []

        def repeat() -> bool:
            with suppress(IdempotencyKeyBusy):
                found.append(records.begin(client, key, "request"))
            return bool(found)

        wait_until(repeat, "an answer to the repeat")
        return found[0]

    return do


@pytest.mark.process("waits for what threads do")
def test_a_repeat_gets_the_response_whose_note_redis_refused_at_first(ended):
    assert ended(lambda records, *of: records.finish(*of, RESPONSE)) == RESPONSE


@pytest.mark.process("waits for what threads do")
def test_a_repeat_is_a_new_attempt_with_the_seed_of_the_one_that_could_not_be_released(ended):
    seeds = []

    def release(records, client, key, attempt):
        seeds.append(attempt.seed)
        records.release(client, key, attempt)

    repeated = ended(release)

    assert isinstance(repeated, Attempt)
    assert ([repeated.seed], repeated.is_later) == (seeds, False)


@pytest.mark.process("waits for what threads do")
def test_a_late_end_changes_nothing_of_an_attempt_that_has_claimed_the_key_since(server):
    records, redis = server
    client, key = str(uuid4()), str(uuid4())
    first = records.begin(client, key, "request")
    [record] = [name for name in keys(redis, "once:*:key:*") if redis.hget(name, "token") == first.token.encode()]
    redis.hset(record, "lease", 1)
    second = records.begin(client, key, "request")

    root, _, digest = record.decode().partition(":key:")
    words = [digest, first.token, 1_000_000, "finished", 201, "application/json", "{}"]
    records._late.add(lambda: records._scripts._end_idempotency_claim([root], words))
    wait_until(lambda: not records._late._waiting, "no end that waits")

    assert redis.hget(record, "token") == second.token.encode()
    with pytest.raises(IdempotencyKeyBusy):
        records.begin(client, key, "request")

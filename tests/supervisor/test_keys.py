"""The two keys of each start: its processes hold what the store knows, wherever a supervisor is killed."""

from dataclasses import replace

import pytest

from supervisor.launches import files_of
from tests.conftest import store_of
from tests.supervisor.conftest import LIMITS, SPEC, hook_key


class KeysKilled(BaseException):
    """The supervisor is killed here."""


def kill(*_args, **_options):
    raise KeysKilled


def killed_before(monkeypatch, owner, name):
    monkeypatch.setattr(owner, name, kill)


def killed_after(monkeypatch, owner, name):
    act = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args, **options: (act(*args, **options), kill()))


def holds_the_keys_of_the_store(sandboxes, runtime, sandbox_id) -> bool:
    """Whether the living processes of a sandbox hold the keys that the store knows, and no other start's key opens."""
    launch, sandbox = runtime.launches[sandbox_id], sandboxes.get(sandbox_id)
    names = ("OH_SESSION_API_KEYS_0", "SESSION_API_KEY", "OH_SECRET_KEY")
    expected = [sandbox.session_api_key, sandbox.session_api_key, sandbox.files_key]
    is_opened = sandboxes.of_hook_key(hook_key(launch)) == sandbox_id
    is_opened = is_opened and sandboxes.of_session_key(sandbox.session_api_key) == sandbox_id
    number_of_keys = sandboxes._redis.hlen("{sandboxes}:keys")
    return [launch.env[name] for name in names] == expected and is_opened and number_of_keys == 2


POINTS = ["begin", "start", "report"]


@pytest.mark.parametrize("killed", [killed_before, killed_after])
@pytest.mark.parametrize("point", POINTS)
def test_a_supervisor_killed_at_any_point_leaves_a_sandbox_whose_agent_holds_the_keys_that_the_store_knows(
    sandboxes, one_store, runtime, reconciler, monkeypatch, point, killed
):
    started = sandboxes.start("spec")
    sandboxes.claim("h")
    owner = runtime if point == "start" else one_store.sandboxes
    with monkeypatch.context() as patch:
        killed(patch, owner, point)
        with pytest.raises(KeysKilled):
            reconciler.reconcile(sandboxes.get(started.id))

    reconciler.reconcile(sandboxes.get(started.id))  # by the next supervisor

    assert sandboxes.get(started.id).handle is not None
    assert holds_the_keys_of_the_store(sandboxes, runtime, started.id)


def test_each_start_has_two_new_keys_and_the_hook_key_of_the_start_before_opens_nothing(sandboxes, runtime, reconciler):
    started = sandboxes.start("spec")
    sandboxes.claim("h")
    seen = set()
    for _ in range(3):
        reconciler.reconcile(sandboxes.get(started.id))
        launch = runtime.launches[started.id]
        seen |= {launch.env["OH_SESSION_API_KEYS_0"], hook_key(launch)}
        assert launch.hook_key == hook_key(launch)
        assert holds_the_keys_of_the_store(sandboxes, runtime, started.id)
        sandboxes.report(started.id, "h", "supervisor", handle=None)

    assert len(seen) == 6
    assert {launch.env["OH_SECRET_KEY"]} == {sandboxes.get(started.id).files_key}


def test_a_session_key_opens_no_webhook(sandboxes, runtime, reconciler):
    started = sandboxes.start("spec")
    sandboxes.claim("h")
    reconciler.reconcile(sandboxes.get(started.id))
    assert sandboxes.of_hook_key(sandboxes.get(started.id).session_api_key) is None


def test_a_launch_for_files_alone_has_no_key(running):
    assert files_of(running, SPEC).env == {}


def test_redis_holds_no_key_of_a_sandbox_in_plain(sandboxes, runtime, reconciler):
    started = sandboxes.start("spec")
    sandboxes.claim("h")
    reconciler.reconcile(sandboxes.get(started.id))
    launch, redis = runtime.launches[started.id], sandboxes._redis

    stored = [*redis.hgetall(f"{{sandboxes}}:box:{started.id}").values(), *redis.hkeys("{sandboxes}:keys")]
    for key in (launch.env["SESSION_API_KEY"], launch.env["OH_SECRET_KEY"], hook_key(launch)):
        assert not [value for value in stored if key.encode() in value]


def test_a_key_of_another_sandbox_does_not_open_there(sandboxes, running):
    other = replace(running, id="other")
    with pytest.raises(Exception, match="another SECRET_KEY"):
        other.session_api_key  # noqa: B018


def test_a_sandbox_whose_keys_another_secret_key_has_sealed_is_error_in_words_and_keeps_its_files(
    redis_url, sandboxes, runtime, reconciler, running
):
    other = store_of(redis_url, LIMITS, secret_key="another key of 16 or more").sandboxes
    reconciler.reconcile(other.get(running.id))

    failed = sandboxes.get(running.id)
    assert failed.status == "ERROR"
    assert "another SECRET_KEY has sealed them" in failed.detail
    assert other.get(running.id).shown_key is None
    assert runtime.count("remove") == 0


def test_a_secret_key_after_a_comma_opens_what_it_sealed_and_the_first_seals(redis_url, running):
    old = running.session_api_key
    rotated = store_of(redis_url, LIMITS, secret_key="a new key of 16 or more, a key for tests only").sandboxes
    assert rotated.get(running.id).session_api_key == old

    assert rotated.begin(running.id, "h", "supervisor", "scripted")
    new_alone = store_of(redis_url, LIMITS, secret_key="a new key of 16 or more").sandboxes
    assert new_alone.get(running.id).session_api_key != old

"""Conversations that are compared with their living agents: no event is lost, and none runs for ever."""

import json
from collections import Counter
from functools import partial

import pytest

from store.sandboxes.checks import Check
from supervisor.checks import MOST_CHECKS, MOST_FAILED, MOST_OF_ONE, SILENT, Checker
from tests.agents import agent_client
from tests.conftest import action, as_events, no_threads, observation, status
from tests.conftest import message as say
from tests.supervisor.conftest import ScriptedRuntime
from tests.supervisor.logs import all_of, codes, pending, state


def at(number: int) -> str:
    """The time of an event of that number."""
    return f"2026-11-20T{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}.000000"


message = partial(say, source="agent")  # what a person has said comes by this server


@pytest.fixture
def checker(store):
    return Checker(store, agent_client(2), {"scripted": ScriptedRuntime()}, "scripted")


@pytest.fixture
def check(checker, sandbox):
    """Compare a conversation once; seconds until it is compared again."""
    return lambda conversation: checker.check(Check(conversation, sandbox.id, 0))


@pytest.fixture
def compare(check):
    """Compare a conversation as often as it is due, with nothing in between; how often that was."""

    def do(conversation: str, most: int = 8) -> int:
        for number in range(1, most + 1):
            if check(conversation) is None:
                return number
        return most

    return do


def post(store, sandbox, conversation, *events):
    store.events.append(conversation, as_events(list(events)), sandbox_id=sandbox.id)


def kinds(events: list[dict]) -> Counter:
    return Counter((one["kind"], one["source"]) for one in events)


def is_due(store, entry: str) -> bool:
    return store.events._redis.zscore("{sandboxes}:checks", entry) is not None


# the ends: a run whose end was never posted


@pytest.mark.parametrize("posted", [0, 1, 2, 3])
def test_a_run_whose_last_events_were_never_posted_ends_with_every_event_once(
    store, begin, agent, compare, check, posted
):
    run = [status("running"), message("a"), message("b"), status("finished")]
    conversation = begin(*run, posted=posted)
    agent.reported[conversation] = "finished"

    compare(conversation)

    assert kinds(all_of(store, conversation)) == kinds(run)
    assert state(store, conversation) == "finished"
    agent.requests.clear()
    assert check(conversation) is None
    assert [path.rpartition("/")[2] for path, _ in agent.requests] == ["count", conversation]  # no read of the log


def test_a_run_whose_agent_ended_it_without_an_event_ends(store, begin, agent, compare):
    conversation = begin(status("running"))
    agent.reported[conversation] = "idle"
    compare(conversation)
    assert state(store, conversation) == "idle"


def test_a_conversation_that_has_lost_events_is_compared_no_more_and_ends_no_sandbox(
    store, begin, agent, compare, recovery, sandbox
):
    damaged, other = begin(status("running"), message("a"), message("b"), posted=2), begin(status("running"))
    agent.reported[damaged] = "finished"
    store.events._redis.ltrim(f"conv:{{{damaged}}}:log", 0, 0)

    assert compare(damaged) < 8
    recovery.interrupted(sandbox, "code", "The agent server ended.")

    assert state(store, other) == "paused"


def test_a_status_that_differs_once_is_left_alone(store, begin, agent, check):
    conversation = begin(status("running"))
    agent.reported[conversation] = "finished"

    for _ in range(2):  # the first finds that the agent has worked since it was compared last
        assert check(conversation) is not None
    agent.reported[conversation] = "running"

    assert check(conversation) is not None
    assert state(store, conversation) == "running"
    assert len(all_of(store, conversation)) == 1


def test_an_event_that_is_under_way_is_not_fetched(store, begin, agent, check, sandbox):
    run = [status("running"), message("a")]
    conversation = begin(*run, posted=1)
    agent.reported[conversation] = "running"

    assert check(conversation) is not None
    post(store, sandbox, conversation, run[1])
    assert check(conversation) is not None

    assert agent.count("/events/search") == 0


def test_a_run_that_posts_is_asked_for_one_count_a_time(store, begin, agent, check, sandbox):
    conversation = begin(status("running"))
    agent.reported[conversation] = "running"
    check(conversation)
    for number in range(5):
        one = message(f"{number}")
        agent.logs[conversation].append(one)
        post(store, sandbox, conversation, one)
        agent.requests.clear()
        assert check(conversation) is not None
        assert len(agent.requests) == 1


@pytest.mark.parametrize("reply", ["deleting", "made up", None])
def test_a_status_that_no_conversation_has_changes_nothing(store, begin, agent, compare, reply):
    conversation = begin(status("running"))
    agent.reported[conversation] = reply
    compare(conversation)
    assert state(store, conversation) == "running"


def test_an_agent_that_reports_to_run_without_an_event_of_it_does_not(store, begin, agent, compare):
    """One that was killed may have `running` in its file, and nothing that ends it."""
    conversation = begin(status("paused"))
    agent.reported[conversation] = "running"
    assert compare(conversation) < 8
    assert state(store, conversation) == "paused"


def test_an_agent_that_left_its_wait_unsaid_is_named(store, begin, agent, compare):
    proposed = action()
    conversation = begin(status("running"), proposed, status("waiting_for_confirmation"))
    agent.reported[conversation] = "idle"

    compare(conversation)

    assert (state(store, conversation), pending(store, conversation)) == ("idle", [])
    assert codes(store, conversation) == ["unapproved_resume"]


@pytest.mark.parametrize("before", ["running", "waiting_for_confirmation"])
def test_a_status_that_the_agent_has_left_when_it_is_read_is_not_shown(store, begin, agent, check, sandbox, before):
    # Given an agent that reports to rest, as two comparisons have found
    conversation = begin(status("running"), status(before))
    agent.reported[conversation] = "idle"
    for _ in range(2):
        check(conversation)

    # When it asks for permission after the third has read that
    asks = [action(), status("waiting_for_confirmation")]

    def go_on(path: str) -> None:
        if path.endswith("/count") and agent.requests[-2][0].endswith(conversation):
            post(store, sandbox, conversation, *asks)

    agent.on_request = go_on
    again = check(conversation)

    # Then its action waits, and the conversation is compared again
    assert again is not None
    assert (state(store, conversation), pending(store, conversation)) == ("waiting_for_confirmation", [asks[0]["id"]])
    assert codes(store, conversation) == []


# sandboxes that do not run


@pytest.mark.parametrize("ended", ["PAUSED", "ERROR", "MISSING"])
def test_a_run_in_a_sandbox_that_stands_still_is_paused_and_not_asked_for(
    store, begin, agent, sandbox, check, monkeypatch, ended
):
    conversation = begin(message("a"), status("running"))
    agent.broken[""] = 0  # nobody answers on its port
    agent.statuses = [0] * 10
    if ended == "PAUSED":
        store.sandboxes.ask(sandbox.id, "pause")
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", ended)

    assert check(conversation) is None

    assert state(store, conversation) == "paused"
    assert [one["value"] for one in all_of(store, conversation)[1:]] == ["running", "paused"]


def test_a_run_that_stood_still_runs_again_with_its_sandbox(store, begin, agent, sandbox, check):
    conversation = begin(status("running"))
    agent.reported[conversation] = "running"
    store.sandboxes.ask(sandbox.id, "pause")
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "PAUSED")
    check(conversation)
    store.sandboxes.ask(sandbox.id, "resume")
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "RUNNING")
    assert is_due(store, f"{conversation} {sandbox.id}")

    for _ in range(3):
        assert check(conversation) is not None

    assert state(store, conversation) == "running"
    assert store.conversations.get(conversation)["interrupted"] is False


def test_a_sandbox_of_a_lost_host_whose_agent_answers_goes_on(store, begin, agent, sandbox, check):
    conversation = begin(status("running"))
    agent.reported[conversation] = "running"
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "MISSING")
    assert check(conversation) is not None
    assert state(store, conversation) == "running"


def test_an_agent_server_that_does_not_answer_is_let_go_on_and_its_run_is_paused_in_the_end(
    store, begin, agent, sandbox, checker, check, monkeypatch
):
    runtime = checker._runtimes["scripted"]
    handle = {"runtime": "scripted", "sandbox_id": sandbox.id}
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "", handle=handle)
    conversation = begin(status("running"))
    agent.reported[conversation] = "running"
    agent.statuses = [0] * 1000

    assert check(conversation) is not None
    assert (runtime.count("resume"), state(store, conversation)) == (1, "running")
    monkeypatch.setattr("supervisor.checks._SILENT", 0.0)
    assert check(conversation) is not None
    assert (codes(store, conversation), state(store, conversation)) == ([SILENT], "paused")

    agent.statuses.clear()
    for _ in range(3):
        check(conversation)
    assert state(store, conversation) == "running"


def test_a_run_that_its_living_agent_server_has_forgotten_is_paused_and_says_so(store, begin, agent, compare):
    conversation = begin(status("running"))
    agent.forgotten.add(conversation)
    compare(conversation)
    assert (state(store, conversation), codes(store, conversation)) == ("paused", ["ConversationForgotten"])


# what was never posted, while the agent works on


def test_events_dropped_in_between_do_not_bring_an_earlier_state_back(store, begin, agent, compare, sandbox):
    # Given an agent whose queue dropped an action that was executed, with the status of that time
    one, two = action("a", timestamp=at(2)), action("b", timestamp=at(6))
    run = [
        status("running") | {"timestamp": at(1)},
        one,
        status("waiting_for_confirmation") | {"timestamp": at(3)},
        status("running") | {"timestamp": at(4)},
        observation(one, timestamp=at(5)),
        two,
        status("waiting_for_confirmation") | {"timestamp": at(7)},
    ]
    conversation = begin(*run, posted=1)
    agent.reported[conversation] = "waiting_for_confirmation"
    post(store, sandbox, conversation, *run[4:])

    # When it is compared
    compare(conversation)

    # Then every event is there once, and only the second action waits
    assert sorted(one["id"] for one in all_of(store, conversation)) == sorted(one["id"] for one in run)
    assert pending(store, conversation) == [two["id"]]
    assert codes(store, conversation) == []


def test_an_action_that_was_dropped_before_the_agent_waited_for_it_waits(store, begin, agent, compare, sandbox):
    proposed = action(timestamp=at(2))
    run = [
        status("running") | {"timestamp": at(1)},
        proposed,
        status("waiting_for_confirmation") | {"timestamp": at(3)},
    ]
    conversation = begin(*run, posted=1)
    agent.reported[conversation] = "waiting_for_confirmation"
    post(store, sandbox, conversation, run[2])
    compare(conversation)
    assert pending(store, conversation) == [proposed["id"]]


def test_a_long_log_is_fetched_in_parts_that_go_on_where_the_last_has_ended(
    store, begin, agent, compare, check, monkeypatch
):
    monkeypatch.setattr("supervisor.agent_log._MOST_PAGES", 1)
    run = [message(f"{number}", timestamp=at(number)) for number in range(450)]
    conversation = begin(*run, posted=1)
    check(conversation)
    agent.requests.clear()

    compare(conversation, most=20)

    assert store.events.count(conversation) == 450
    assert agent.count("/events/search") <= 20
    assert check(conversation) is None


def test_an_event_that_no_webhook_would_take_is_looked_for_once(store, begin, agent, compare, check):
    run = [message("a"), message("x" * (1 << 20)), message("b")]
    conversation = begin(*run, posted=0)
    compare(conversation)
    agent.requests.clear()
    assert check(conversation) is None
    assert (store.events.count(conversation), agent.count("/events/search")) == (2, 0)


# when a conversation is due


def test_a_webhook_makes_its_conversation_due_also_when_it_is_refused(store, begin, sandbox, hook):
    conversation = begin()
    hook(conversation)
    assert is_due(store, f"{conversation} {sandbox.id}")


def test_a_webhook_about_a_conversation_of_no_sandbox_makes_nothing_due(store, sandbox, hook, conversation):
    hook(conversation)
    assert not is_due(store, f"{conversation} {sandbox.id}")


@pytest.fixture
def hook(store, sandbox):
    """Show the key of the sandbox for a conversation, as the guard does before the body of a webhook is read."""
    key = store.sandboxes.begin(sandbox.id, "scripted", "supervisor", "scripted")
    return lambda conversation: store.sandboxes.of_hook_key(key, conversation)


@pytest.fixture
def alone(store):
    """Nothing that another test has left is due: a claim takes what is due for longest, and not all of it."""
    store.events._redis.delete("{sandboxes}:checks")


@pytest.mark.usefixtures("alone")
def test_a_comparison_ends_only_when_nothing_happened_meanwhile(store, begin, sandbox, hook):
    conversation = begin()
    entry = f"{conversation} {sandbox.id}"
    store.sandboxes.checks.require(sandbox.id)
    [claimed] = [
        one for one in store.sandboxes.checks.claim("scripted", 60, 100) if one.conversation_id == conversation
    ]

    hook(conversation)
    store.sandboxes.checks.close(claimed, again_in=None)
    assert is_due(store, entry)

    store.sandboxes.checks.require(sandbox.id)
    [claimed] = [
        one for one in store.sandboxes.checks.claim("scripted", 60, 100) if one.conversation_id == conversation
    ]
    store.sandboxes.checks.close(claimed, again_in=None)
    assert not is_due(store, entry)


@pytest.mark.usefixtures("alone")
def test_what_one_supervisor_has_claimed_no_other_claims_before_the_lease_ends(store, begin, sandbox):
    conversation = begin()
    store.sandboxes.checks.require(sandbox.id)
    assert conversation in [one.conversation_id for one in store.sandboxes.checks.claim("scripted", 60, 100)]
    assert conversation not in [one.conversation_id for one in store.sandboxes.checks.claim("scripted", 60, 100)]
    store.sandboxes.checks.require(sandbox.id)
    assert conversation not in [one.conversation_id for one in store.sandboxes.checks.claim("another host", 60, 100)]


def test_a_comparison_that_ends_after_a_later_one_changes_nothing(store, begin, check):
    conversation = begin(message("a"))
    check(conversation)
    stored = json.dumps(store.conversations.get(conversation)["agent_log"])
    store.sandboxes.checks.note(conversation, [9], [10, 1, 1, "x", False, 1, ""], ended=False)
    assert json.dumps(store.conversations.get(conversation)["agent_log"]) == stored


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("entry", ["", "one", "three words here", "ends with a space "])
def test_an_entry_of_the_comparisons_that_cannot_be_read_holds_up_no_other(store, begin, sandbox, entry, caplog):
    conversation, redis = begin(status("running")), store.events._redis
    redis.zadd("{sandboxes}:checks", {entry: 0, f"{conversation} {sandbox.id}": 1})

    claimed = store.sandboxes.checks.claim("scripted", 60, 16)

    assert [one.conversation_id for one in claimed] == [conversation]
    assert redis.zscore("{sandboxes}:checks", entry) is None
    assert "cannot be read, and is given up" in caplog.text


@pytest.mark.usefixtures("alone")
def test_a_comparison_that_fails_again_and_again_is_given_up_and_said(store, begin, sandbox, checker, monkeypatch):
    conversation = begin(status("running"))
    entry = f"{conversation} {sandbox.id}"
    monkeypatch.setattr(checker, "check", lambda _: 1 / 0)
    for _ in range(MOST_FAILED):
        assert store.events.count(conversation, kind="ConversationErrorEvent") == 0
        store.events._redis.zadd("{sandboxes}:checks", {entry: 0})
        [check] = store.sandboxes.checks.claim("scripted", 60, 16)
        checker._drive(check)

    assert not is_due(store, entry)
    assert codes(store, conversation) == ["LogNotCompared"]
    store.events._redis.zadd("{sandboxes}:checks", {entry: 0})  # as a webhook makes it due
    [check] = store.sandboxes.checks.claim("scripted", 60, 16)
    checker._drive(check)
    assert is_due(store, entry)  # it is counted anew


def test_comparisons_with_an_agent_that_is_slow_leave_threads_to_those_of_other_sandboxes(store, checker, monkeypatch):
    # Given agents that are slow, of more conversations of one sandbox than are compared at once and of one of another
    slow = [Check(f"{number}", "slow", 1) for number in range(MOST_CHECKS + 3)]
    due, put_off = [*slow, Check("one", "other", 1)], []
    monkeypatch.setattr(store.sandboxes.checks, "claim", lambda _host, _seconds, most: [due.pop(0) for _ in due[:most]])
    monkeypatch.setattr(store.sandboxes.checks, "close", lambda check, again_in: put_off.append((check, again_in > 0)))
    monkeypatch.setattr(checker, "_drive", lambda _: None)

    for _ in range(2):
        checker.check_due()

    # Then a few of the first are compared, and the one of the other; the rest is due again
    assert [*checker._busy] == [each.entry for each in (*slow[:MOST_OF_ONE], Check("one", "other", 1))]
    assert put_off == [(each, True) for each in slow[MOST_OF_ONE:]]


def test_a_comparison_that_gets_no_thread_keeps_no_place(store, checker, monkeypatch):
    monkeypatch.setattr(store.sandboxes.checks, "claim", lambda *_: [Check("conversation", "box", 0)])
    with no_threads(), pytest.raises(RuntimeError, match="new thread"):
        checker.check_due()

    assert checker._busy == {}

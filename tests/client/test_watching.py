"""What a followed run shows beside its log: what its sandbox asks for, and why the agent has stopped."""

from threading import Event
from types import SimpleNamespace

import pytest
from agent_server_client import Destination, Entry, PendingAction
from agent_server_client.cli.watching import RunState, before, rest_of, watched

from tests.client.test_questions import CONVERSATION, asked_budget, asked_destination, waiting_action


def entry(seq, kind="MessageEvent", **members):
    return Entry(seq, {"kind": kind, "timestamp": "2026-11-28T00:00:00", **members})


def status(seq, value):
    return entry(seq, "ConversationStateUpdateEvent", key="execution_status", value=value)


class WatchedServer:
    """A server with one conversation: its log is a list of entries, and its inbox one of events."""

    def __init__(self, inbox=(), waiting=(), sandbox="box", log=(), tells=False):
        self.url, self.sent, self.logs, self._tells = "http://server", [], [list(log)], tells
        self._inbox, self._waiting, self._sandbox = inbox, waiting, sandbox
        self.has_told = Event()  #: set once the inbox was read
        self.count = lambda: len(log)
        members = {"count": self.count, "id": CONVERSATION, "client": self, "log": self._log}
        self.followed = SimpleNamespace(send=lambda text, **_: self.sent.append(text), **members)

    def _log(self, after):
        found = self.logs.pop(0) if self.logs else []
        return [one for one in found if one.seq > after]

    def client(self, **_):
        return self

    def conversation(self, _):
        return self.followed

    def get(self, *_, **__):
        return [{"sandbox_id": self._sandbox, "goes_on_when_allowed": self._tells} if self._sandbox else None]

    def destinations(self):
        return [Destination(self, one) for one in self._waiting]

    def inbox(self, **_):
        yield from self._inbox
        self.has_told.set()

    def watched(self, entries, after=0, **options):
        return list(watched(self, self.followed, entries, after, **options))


def ids(shown):
    return [one.seq if isinstance(one, Entry) else one.id for one in shown]


def test_a_destination_is_shown_while_the_log_is_silent():
    server = WatchedServer(inbox=[("destination_opened", asked_destination())])

    def entries():
        yield entry(1)
        assert server.has_told.wait(10)
        yield entry(2)

    shown = ids(server.watched(entries()))
    assert sorted(map(str, shown)) == ["1", "2", "pypi.org:443"]
    assert shown[-1] == 2


def test_what_waited_before_is_shown_after_the_entries_that_were_there_before():
    server = WatchedServer(inbox=[("destinations", {"items": [asked_destination()]})], log=[entry(1), entry(2)])

    def entries():
        yield entry(1)
        yield entry(2)
        assert server.has_told.wait(10)
        yield entry(3)

    assert ids(server.watched(entries())) == [1, 2, "pypi.org:443", 3]


def test_what_others_ask_for_is_not_shown():
    other = "5f1c8a52-0000-4000-8000-000000000002"
    items = [asked_destination(sandbox_id="other"), asked_destination(conversation_id=other)]
    server = WatchedServer(inbox=[("destinations", {"items": items})], waiting=items)
    assert ids(server.watched([entry(1)])) == [1]


def test_what_waits_at_the_end_is_shown_after_it():
    server = WatchedServer(waiting=[asked_destination(), asked_budget(), asked_destination(sandbox_id="other")])
    assert ids(server.watched([entry(1)])) == [1, "pypi.org:443", "budget:conversation"]


def test_a_budget_that_another_sandbox_used_up_is_shown_where_it_stopped_the_agent():
    budget = {**asked_budget(), "sandbox_id": "other", "conversation_id": None}
    budget["budget"] = {**budget["budget"], "setting": "MODEL_BUDGET_DAY", "day": "2026-11-28"}
    error = entry(1, "ConversationErrorEvent", detail="used up the budget of models (MODEL_BUDGET_DAY)")
    assert ids(WatchedServer(waiting=[budget]).watched([error])) == [1, "budget:day"]
    assert ids(WatchedServer(waiting=[budget]).watched([entry(1)])) == [1]
    assert ids(WatchedServer(waiting=[budget, budget]).watched([error])) == [1]  # nobody knows which of two


def test_a_log_without_actions_of_its_own_shows_those_of_the_inbox():
    items = [waiting_action(), waiting_action(conversation_id="5f1c8a52-0000-4000-8000-000000000002")]
    server = WatchedServer(inbox=[("snapshot", {"items": items})], sandbox=None)

    def entries():
        yield entry(1)
        assert server.has_told.wait(10)

    found = server.watched(entries(), actions=True)
    assert [one.id for one in found if isinstance(one, PendingAction)] == ["9c0d1e2f-act"]


def test_a_conversation_without_a_sandbox_asks_for_nothing_and_an_error_of_its_log_is_raised():
    assert ids(WatchedServer(sandbox=None, waiting=[asked_destination()]).watched([entry(1)])) == [1]

    def entries():
        yield entry(1)
        raise ValueError("the log")

    with pytest.raises(ValueError, match="the log"):
        WatchedServer().watched(entries())


class WatchingPerson:
    def __init__(self, *, says_yes=True):
        self.questions, self._says_yes = [], says_yes

    def says_yes(self, question):
        self.questions.append(question)
        return self._says_yes

    def say(self, words):
        self.questions.append(words)


def run_of(*entries, allowed=(), at=3):
    run = RunState(0)
    for one in entries:
        if one.seq == at:
            for item in allowed:
                run.decided(Destination(None, item), "approved", lambda: at - 1)
        run.note(one)
    return run


def test_after_an_allow_the_agent_is_told_to_try_again_once_it_has_stopped():
    server, person = WatchedServer(), WatchingPerson()
    run = run_of(status(2, "running"), status(3, "finished"), allowed=[asked_destination()])

    assert run.offer(server.followed, person)
    assert server.sent == ["pypi.org:443 is allowed now, try again."]
    assert not run.offer(server.followed, person)
    assert len(person.questions) == 1


def test_a_person_is_not_asked_where_the_server_tells_the_agent_by_itself():
    told, person = entry(4, source="user"), WatchingPerson()
    server = WatchedServer(tells=True, log=[status(2, "running"), status(3, "finished"), told])
    run = run_of(status(2, "running"), status(3, "finished"), allowed=[asked_destination()])

    assert run.offer(server.followed, person)
    assert person.questions == ["The server tells the agent, which goes on."]
    assert not server.sent


def test_a_person_is_asked_where_the_server_does_not_tell_the_agent_in_time(monkeypatch):
    monkeypatch.setattr("agent_server_client.cli.watching._TOLD", 0)
    server, person = WatchedServer(tells=True), WatchingPerson()

    assert run_of(status(3, "finished"), allowed=[asked_destination()]).offer(server.followed, person)
    assert server.sent == ["pypi.org:443 is allowed now, try again."]


def test_the_message_names_every_destination_and_the_budget():
    others = [asked_destination(name="crates.io"), asked_budget()]
    assert run_of(status(3, "idle"), allowed=[asked_destination(), *others]).message == (
        "pypi.org:443, crates.io:443 are allowed now and the budget of models allows more now, try again."
    )
    assert run_of(status(3, "error"), allowed=[asked_budget()]).message.startswith("The budget of models")


def test_nothing_is_offered_to_an_agent_that_works_or_went_on_and_a_no_sends_nothing():
    server, person = WatchedServer(), WatchingPerson()
    assert not run_of(status(3, "running"), allowed=[asked_destination()]).offer(server.followed, person)
    went_on = run_of(
        status(3, "running"), entry(4, "ActionEvent"), status(5, "finished"), allowed=[asked_destination()]
    )
    assert not went_on.offer(server.followed, person)
    assert not person.questions

    run = run_of(status(3, "finished"), allowed=[asked_destination()])
    assert not run.offer(server.followed, WatchingPerson(says_yes=False))
    assert not server.sent


def test_the_reason_of_a_rejection_is_read_after_the_status_that_it_ended_with():
    rejected = entry(3, "UserRejectObservation", rejection_reason="No decision came before the deadline.")
    server = WatchedServer()
    server.logs = [[], [], [rejected]]
    run = run_of(status(1, "waiting_for_confirmation"), status(2, "idle"))

    assert run.why == "idle"
    for one in rest_of(server.followed, run):
        run.note(one)
    assert run.why == "idle, because an action was rejected: No decision came before the deadline"


def test_a_stop_by_an_error_has_its_first_line_as_the_reason():
    failed = entry(1, "ConversationErrorEvent", code="MaxBudgetReached", detail="Too much.\nAnd more")
    assert run_of(failed, status(2, "error")).why == "error: Too much"
    assert run_of(failed, status(2, "running"), status(3, "paused")).why == "paused"


def test_the_entries_before_a_seq_are_the_last_ones_up_to_it():
    server = WatchedServer(log=[entry(1), entry(2), entry(3)])
    assert [one.seq for one in before(server.followed, 2)] == [1, 2]
    assert not list(before(server.followed, 0))

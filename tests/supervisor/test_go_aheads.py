"""An agent that was stopped by a destination or a budget is told once that it is allowed, and goes on by itself."""

import json
from uuid import uuid4

import pytest

from agents.commands import Commands
from core import wire
from core.prices import ModelBudget
from core.wire import ConversationId
from store.approvals.audit import DecisionActor
from store.conversations.queued_messages import QueuedMessage
from supervisor.go_aheads import MOST_FAILED, GoAheadDriver
from supervisor.queued_messages import deliver
from tests.agents import SPECS, agent_client, running_sandbox, scripted_agent
from tests.conftest import as_events, event, message, status

ADA = DecisionActor("key", "ada", "127.0.0.1")
PORT = 443


@pytest.fixture
def commands(store):
    return Commands(store, agent_client(2), SPECS)


@pytest.fixture
def driver(store):
    return GoAheadDriver(store, SPECS)


@pytest.fixture
def agent():
    with scripted_agent() as agent:
        agent.state = {"execution_status": "finished"}
        yield agent


@pytest.fixture
def box(store, agent):
    with running_sandbox(store, agent.url) as box:
        yield box


@pytest.fixture
def name():
    """A name of its own: the store has a rule of each name once."""
    return f"{uuid4().hex[:12]}.example.org"


class GoAheadsHere:
    """A conversation in a sandbox, whose agent works on a message."""

    def __init__(self, store, agent, box, text="fetch it", **app):
        self.store, self.agent, self.box = store, agent, box
        self.id = ConversationId(str(uuid4()))
        store.conversations.create(self.id, sandbox_id=box.id, app=app)
        self.log(message(text), status("running"))
        agent.logs[self.id] = [message(text)]

    def log(self, *events):
        """What the agent posts now, after everything before."""
        at = wire.event_time(wire.now())
        self.store.events.append(
            self.id, as_events([{**one, "timestamp": at} for one in events]), sandbox_id=self.box.id
        )

    def ends(self, value="finished", **error):
        failure = [event("ConversationErrorEvent", "environment", code="LLMRateLimitError", **error)] if error else []
        self.log(*failure, status(value))

    def asks(self, name):
        return self.store.destinations.verdict(self.box.id, name, PORT)

    def allows(self, name, scope="conversation", decision="approve"):
        [asked] = [one for one in self.store.destinations.waiting(self.box.id) if one.name == name]
        return self.store.destinations.decide(asked, decision, scope, ADA)

    def queued(self) -> QueuedMessage | None:
        """The message that waits for this conversation."""
        redis = self.store.start_tasks._redis
        if redis.zscore("{starts}:queues", self.id) is None:
            return None
        redis.zadd("{starts}:queues", {self.id: 0})
        queued = self.store.conversations.queued_messages.claim()
        assert queued is not None
        assert queued.conversation_id == self.id
        return queued


@pytest.fixture
def here(store, agent, box):
    yield GoAheadsHere(store, agent, box)
    for key in ("{sandboxes}:go_aheads", "{sandboxes}:go_aheads_due"):
        store.start_tasks._redis.delete(key)


def left(store):
    return store.start_tasks._redis.hlen("{sandboxes}:go_aheads")


def due(store):
    """Have what is postponed be due now."""
    redis = store.start_tasks._redis
    for member in redis.zrange("{sandboxes}:go_aheads_due", 0, -1):
        redis.zadd("{sandboxes}:go_aheads_due", {member: 0})


def said(queued):
    return queued and queued.content[0]["text"]


def texts(agent):
    return [body["content"][0]["text"] for body in agent.posted("/events")]


def look(store, driver):
    due(store)
    driver.drive_due()


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        ("once", " for one connection within ten minutes"),
        ("conversation", ""),
        ("always", ""),
    ],
)
def test_an_agent_that_a_destination_stopped_is_told_who_allowed_it(
    store, driver, commands, agent, here, name, scope, words
):
    here.asks(name)
    here.ends()
    rule = here.allows(name, scope)

    look(store, driver)
    deliver(store, commands, here.queued())

    assert texts(agent) == [f"This server says: ada has allowed {name}:443{words}. Try again."]
    assert agent.posted("/events")[0]["run"] is True
    assert (here.queued(), left(store)) == (None, 0)
    if rule:
        store.destinations.revoke(rule.id, ADA)


def test_a_rule_that_allows_it_tells_the_agent_too(store, driver, here, name):
    here.asks(name)
    here.ends()
    rule = store.destinations.make_rule(name, PORT, "approve", ADA)

    look(store, driver)

    assert said(here.queued()) == f"This server says: A rule has allowed {name}:443. Try again."
    store.destinations.revoke(rule.id, ADA)


@pytest.mark.parametrize("record", [b"{", b"[]", b"\xff", b'{"id": "x"}', b'{"id": 1, "port": "x"}'])
def test_a_record_that_cannot_be_read_is_forgotten_with_a_sentence_and_keeps_no_other_back(
    store, driver, here, name, caplog, record
):
    here.asks(name)
    here.ends()
    here.allows(name)
    redis = store.start_tasks._redis
    redis.hset("{sandboxes}:go_aheads", "a broken:443", record)
    redis.zadd("{sandboxes}:go_aheads_due", {"a broken:443": 0})

    look(store, driver)

    assert (said(here.queued()) is not None, left(store)) == (True, 0)
    [words] = [one.getMessage() for one in caplog.records if "cannot be read" in one.getMessage()]
    assert words.startswith("the record of a broken:443, which was allowed, cannot be read (")
    assert words.endswith("its agents are not told, and go on once somebody sends them a message")


def test_a_look_that_fails_again_and_again_ends_with_a_sentence(store, driver, here, name, caplog, monkeypatch):
    here.asks(name)
    here.ends()
    here.allows(name)
    monkeypatch.setattr(store.conversations, "get_many", lambda *_: 1 / 0)

    for number in range(1, MOST_FAILED + 1):
        look(store, driver)
        assert left(store) == (1 if number < MOST_FAILED else 0)

    first, last = [one.getMessage() for one in caplog.records if name in one.getMessage()]
    assert "it is repeated" in first
    assert f"{MOST_FAILED} checks of its agents failed: its agents are not told" in last


def test_what_is_refused_tells_nobody(store, driver, here, name):
    here.asks(name)
    here.ends()
    here.allows(name, decision="reject")

    look(store, driver)

    assert (here.queued(), left(store)) == (None, 0)


def test_an_approval_tells_the_agent_once_whichever_supervisor_is_killed(store, driver, commands, agent, here, name):
    here.asks(name)
    here.ends()
    here.allows(name)
    killed = store.go_aheads.claim()
    GoAheadDriver(store, SPECS)._poll(killed)  # and it is killed before it notes that

    look(store, driver)
    look(store, driver)
    first = here.queued()
    deliver(store, commands, first)
    here.log(message(said(first)))  # the agent posts what it has received
    deliver(store, commands, first)  # a driver that was stopped meanwhile
    look(store, driver)

    assert len(texts(agent)) == 1
    assert (here.queued(), left(store)) == (None, 0)


@pytest.mark.parametrize("at_work", ["running", "waiting_for_confirmation"])
def test_an_agent_at_work_is_told_when_it_stops_without_a_try_of_its_own(store, driver, here, name, at_work):
    here.asks(name)
    here.allows(name)
    here.log(status(at_work))

    look(store, driver)
    assert (here.queued(), left(store)) == (None, 1)
    here.ends()
    look(store, driver)

    assert name in said(here.queued())
    assert left(store) == 0


def test_an_agent_that_has_tried_again_by_itself_is_told_nothing(store, driver, here, name):
    here.asks(name)
    here.allows(name)
    look(store, driver)
    assert here.asks(name).is_allowed
    here.ends()

    look(store, driver)

    assert (here.queued(), left(store)) == (None, 0)


def test_an_agent_that_a_person_has_paused_is_told_nothing(store, driver, here, name):
    here.asks(name)
    here.ends("paused")
    here.allows(name)

    look(store, driver)

    assert (here.queued(), left(store)) == (None, 0)


def test_a_conversation_that_has_finished_without_it_is_told_nothing(store, driver, here, name):
    here.ends()
    at = wire.now() + 3_000_000
    here.asks(name)  # a program in the background
    redis, key = store.start_tasks._redis, f"{{sandboxes}}:asked:{here.box.id}"
    asked = json.loads(redis.hget(key, f"{name}:{PORT}"))
    redis.hset(key, f"{name}:{PORT}", json.dumps({**asked, "tried_at": str(at)}))
    here.allows(name)

    look(store, driver)

    assert (here.queued(), left(store)) == (None, 0)


def test_an_agent_with_a_newer_message_is_told_nothing(store, driver, here, name):
    here.asks(name)
    here.ends()
    at = wire.event_time(wire.now() + 2_000_000)
    here.store.events.append(here.id, as_events([{**message("never mind"), "timestamp": at}]), sandbox_id=here.box.id)
    here.allows(name)

    look(store, driver)

    assert (here.queued(), left(store)) == (None, 0)


@pytest.mark.parametrize("meanwhile", [message("never mind"), status("running"), status("paused")])
def test_a_message_that_waits_is_dropped_where_its_agent_goes_on_otherwise(
    store, driver, commands, agent, here, name, meanwhile
):
    here.asks(name)
    here.ends()
    here.allows(name)
    look(store, driver)
    queued = here.queued()
    here.log(meanwhile)

    deliver(store, commands, queued)

    assert texts(agent) == []
    assert here.queued() is None


def test_a_start_that_says_so_is_told_nothing(store, driver, agent, box, here, name):
    here.ends("paused")
    other = GoAheadsHere(store, agent, box, goes_on_when_allowed=False)
    other.asks(name)
    other.ends()
    other.allows(name)

    look(store, driver)

    assert (here.queued(), other.queued(), left(store)) == (None, None, 0)


def test_an_agent_without_a_model_gets_its_commands_again(store, driver, agent, box, here, name):
    here.ends("paused")
    command = GoAheadsHere(store, agent, box, "Two things:\nrun: curl -sS https://example.org\n run: ls")
    here.store.conversations.delete(here.id)
    command.asks(name)
    command.ends()
    command.allows(name)

    look(store, driver)

    assert said(command.queued()).split("\n")[1:] == ["run: curl -sS https://example.org"]


def test_two_approvals_at_once_are_two_messages_at_most(store, driver, commands, agent, here, name):
    for one in (name, f"b.{name}"):
        here.asks(one)
    here.ends()
    for one in (name, f"b.{name}"):
        here.allows(one)

    look(store, driver)
    deliver(store, commands, here.queued())
    assert len(texts(agent)) == 1
    assert left(store) == 1
    here.log(message(texts(agent)[0]), status("running"))
    here.asks(name), here.asks(f"b.{name}")
    here.ends()
    look(store, driver)

    assert (here.queued(), left(store)) == (None, 0)


def test_what_is_left_of_a_sandbox_that_has_ended_is_forgotten(store, driver, agent, name):
    with running_sandbox(store, agent.url) as box:
        here = GoAheadsHere(store, agent, box)
        here.asks(name)
        here.ends()
        here.allows(name)
        here.store.conversations.delete(here.id)

    look(store, driver)

    assert left(store) == 0


@pytest.fixture
def budget(store, here):
    """A budget of this conversation that is used up, and that a person allows more of."""
    setting = "MODEL_BUDGET_CONVERSATION"

    def refuse():
        return store.spending.refuse(here.box.id, "", setting, "api.example", 443, "why", more=ModelBudget(None, 100))

    def allow():
        [asked] = [one for one in store.destinations.waiting(here.box.id) if one.budget]
        store.destinations.decide(asked, "approve", "once", ADA)

    return setting, refuse, allow


def test_an_agent_that_a_budget_stopped_is_told_that_there_is_more(store, driver, commands, agent, here, budget):
    setting, refuse, allow = budget
    refuse()
    here.ends("error", detail=f"The quota at the model's endpoint is used up: beyond {setting}; a person was asked")
    allow()

    look(store, driver)
    deliver(store, commands, here.queued())

    assert texts(agent) == [f"This server says: ada has allowed more of the budget {setting}. Go on."]
    assert left(store) == 0


def test_an_agent_that_ended_with_another_error_is_not_told_of_a_budget(store, driver, here, budget):
    _, refuse, allow = budget
    refuse()
    here.ends("error", detail="The disk is full")
    allow()

    look(store, driver)

    assert (here.queued(), left(store)) == (None, 0)


def test_every_sandbox_that_the_budget_of_a_day_refused_is_told(store, driver, agent, here):
    setting, day = "MODEL_BUDGET_DAY", store.link.health.clock() // 86_400_000_000
    with running_sandbox(store, agent.url) as box:
        other = GoAheadsHere(store, agent, box)
        for one in (here, other, here):
            store.spending.refuse(
                one.box.id, "", setting, "api.example", 443, "why", more=ModelBudget(None, 100), day=day
            )
        for one in (here, other):
            one.ends("error", detail=f"Beyond {setting}")
        [asked] = [one for one in store.destinations.waiting(here.box.id) if one.budget]
        store.destinations.decide(asked, "approve", "once", ADA)

        look(store, driver)

        assert [setting in said(one.queued()) for one in (here, other)] == [True, True]
        assert left(store) == 0

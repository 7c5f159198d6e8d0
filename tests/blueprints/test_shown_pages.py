"""Pages of conversations are kept as bytes: after every change they are what a server that keeps nothing shows."""

import json
from random import Random
from uuid import uuid4

import pytest

from app import create_app
from core import wire
from settings.config import Config
from store.conversations.lists import ConversationForm, ConversationPages
from store.link.attempts import Stamp
from tests.conftest import SECRET_KEY, action, as_events, event, message, observation, status
from tests.round_trips import counted, leave_to_callers

API = "/api/conversations"
SEARCHES = (f"{API}/search", f"{API}/search?include_skills=true", "/api/v1/conversations/search")
BOX = "box"
AGENT = {"llm": {"model": "m"}, "agent_context": {"skills": [{"name": "one"}], "note": "ü"}}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """A listing of this test's own: the other one has every test's conversations."""
    monkeypatch.setattr("store.keys.ListingKeys.root", f"conversations:{{{uuid4()}}}")


@pytest.fixture(scope="module")
def forgetful(redis_url):
    """A client of another server on the same Redis, which keeps nothing of what it has shown."""
    app = create_app(Config.of(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY))
    store = app.extensions["server"].store
    store.conversations.pages._most = store.conversations.summaries._pages._most = 0
    return app.test_client()


class PagesWorld:
    """A detached conversation, one in a sandbox, and what can change them."""

    def __init__(self, client, random):
        self.client, self.store, self.random = client, client.application.extensions["server"].store, random
        self.detached, self.boxed = str(uuid4()), str(uuid4())
        self.actions = {self.detached: [], self.boxed: []}
        self.create(), self.create_boxed()

    def create(self):
        self.call("POST", API, {"conversation_id": self.detached, "agent": None, "user_id": "ü"})

    def create_boxed(self):
        self.store.conversations.create(self.boxed, sandbox_id=BOX, app={"trigger": "gui"})

    def call(self, method, path, body=None):
        response = self.client.open(path, method=method, json=body)
        # 409: an agent that runs is not started again
        assert response.status_code in (200, 201, 409), f"{method} {path}: {response.get_data(as_text=True)}"

    def post(self, path, body):
        self.call("POST", f"{API}/{self.detached}/{path}", body)

    def some(self):
        return self.random.choice((self.detached, self.boxed))

    def append(self, one, *events):
        sandbox = {"sandbox_id": BOX} if one == self.boxed else {}
        self.store.events.append(one, as_events(list(events)), **sandbox)

    def act(self, one):
        proposed = [action(llm_response_id="one response"), action(llm_response_id="one response")]
        self.actions[one] += proposed
        self.append(one, *proposed, *([status("waiting_for_confirmation")] if one == self.boxed else []))

    def observe(self, one):
        if self.actions[one]:
            self.append(one, observation(self.actions[one].pop(0)))

    def decide_one(self):
        pending = self.store.approvals.confirmations.pending(self.detached)
        if pending:
            decisions = [{"action_id": pending[0]["id"], "decision": self.random.choice(("approve", "reject"))}]
            path = f"/api/v1/conversation/{self.detached}/pending-actions/decisions"
            self.call("POST", path, {"decisions": decisions})

    def report(self, **members):
        self.store.conversations.in_sandboxes.report(BOX, self.boxed, {"id": self.boxed, **members})

    def live_again(self):
        """Another life of the id, perhaps in the microsecond of the former."""
        self.call("DELETE", f"{API}/{self.detached}")
        self.actions[self.detached] = []
        self.create()


WRITES = {
    "title": lambda w: w.call("PATCH", f"{API}/{w.some()}", {"title": f"Title {w.random.random()}"}),
    "tags": lambda w: w.call("PATCH", f"{API}/{w.some()}", {"tags": {"a": str(w.random.random())}}),
    "deadline": lambda w: w.call("PATCH", f"{API}/{w.some()}", {"confirmation_seconds": w.random.choice((None, 60))}),
    "message": lambda w: w.post("events", {"content": [{"type": "text", "text": "hi"}], "run": True}),
    "run": lambda w: w.post("run", {}),
    "pause": lambda w: w.post("pause", {}),
    "interrupt": lambda w: w.post("interrupt", {}),
    "policy": lambda w: w.post("confirmation_policy", {"policy": {"kind": "AlwaysConfirm"}}),
    "analyzer": lambda w: w.post("security_analyzer", {"security_analyzer": {"kind": str(w.random.random())}}),
    "secrets": lambda w: w.post("secrets", {"secrets": {f"S{w.random.randrange(99)}": "secret"}}),
    "decision": lambda w: w.post("events/respond_to_confirmation", {"accept": w.random.random() < 0.5}),
    "single decision": lambda w: w.decide_one(),
    "fork": lambda w: w.post("fork", {"title": "Copy"}),
    "another life": lambda w: w.live_again(),
    "event": lambda w: w.append(w.some(), event(), message("text", "agent")),
    "action": lambda w: w.act(w.some()),
    "observation": lambda w: w.observe(w.some()),
    "status": lambda w: w.append(w.some(), status(w.random.choice(("running", "idle", "error", "stuck", "finished")))),
    "stats": lambda w: w.append(w.some(), state("stats", {"usage_to_metrics": {"m": {"cost": w.random.random()}}})),
    "snapshot": lambda w: w.append(w.some(), state("full_state", {"execution_status": "paused", "stats": {"a": 1}})),
    "report": lambda w: w.report(title="Said", tags={"b": "1"}, agent=AGENT, stats={"x": w.random.random()}),
    "told": lambda w: w.report(capabilities=["edit"], workspace={"working_dir": f"/{w.random.random()}"}),
    "agent's end": lambda w: w.store.conversations.interrupt(w.boxed, BOX, Stamp.now(), {"code": "c", "detail": "d"}),
    "reopened": lambda w: w.store.approvals.confirmations.reopen(w.boxed, as_events(w.actions[w.boxed][:1])),
}


def state(key, value):
    return event("ConversationStateUpdateEvent", "environment", key=key, value=value)


def assert_shown_right(client, forgetful):
    """Every page is what Redis has, byte for byte."""
    for search in SEARCHES:
        shown = client.get(search)
        assert shown.status_code == 200
        assert shown.get_data() == forgetful.get(search).get_data(), search


def assert_shown_as_got(client):
    """Every item of a page is what a get returns, which has the state of the sandbox besides."""
    for query in ("", "?include_skills=true"):
        items = client.get(f"{API}/search{query}").get_json()["items"]
        got = [client.get(f"{API}/{item['id']}{query}").get_json() for item in items]
        assert items == [{**one, "runtime_info": None} for one in got]
    waiting = {item["id"]: item["pending"] for item in client.get(SEARCHES[2]).get_json()["items"]}
    for identity, number in waiting.items():
        assert number == len(client.get(f"{API}/{identity}/pending_actions").get_json())


@pytest.mark.parametrize("write", WRITES)
def test_after_a_write_pages_are_what_redis_has(client, forgetful, write):
    world = PagesWorld(client, Random(1))
    WRITES["policy"](world), world.act(world.detached), world.act(world.boxed)
    assert_shown_right(client, forgetful)

    WRITES[write](world)

    assert_shown_right(client, forgetful)
    assert_shown_as_got(client)


@pytest.mark.parametrize("seed", range(2))
def test_after_every_one_of_many_writes_pages_are_what_redis_has(client, forgetful, seed):
    random = Random(seed)
    world = PagesWorld(client, random)

    for write in random.choices(list(WRITES), k=30):
        WRITES[write](world)
        assert_shown_right(client, forgetful)
    assert_shown_as_got(client)


def test_another_life_of_an_id_in_the_same_microsecond_is_shown(client, forgetful, monkeypatch):
    instant = wire.now()
    monkeypatch.setattr("core.wire.now", lambda: instant)
    world = PagesWorld(client, Random(1))
    world.call("PATCH", f"{API}/{world.detached}", {"title": "Former"})
    assert_shown_right(client, forgetful)

    world.live_again()
    world.call("PATCH", f"{API}/{world.detached}", {"title": "Latter"})

    assert_shown_right(client, forgetful)


def test_a_change_that_a_killed_worker_did_not_list_is_shown_and_listed(client, forgetful, monkeypatch):
    world = PagesWorld(client, Random(1))
    assert_shown_right(client, forgetful)
    with monkeypatch.context() as killed:
        leave_to_callers(world.store, killed.setattr)
        killed.setattr(world.store.conversations._listing._scripts, "note_conversation", lambda *_, **__: None)
        WRITES["run"](world)

    found = client.get(f"{API}/search?status=idle").get_json()["items"]

    assert world.detached not in [item["id"] for item in found]
    assert [item["id"] for item in client.get(f"{API}/search?status=running").get_json()["items"]] == [world.detached]
    assert_shown_right(client, forgetful)


def test_a_page_is_the_json_that_every_other_response_has(client):
    PagesWorld(client, Random(1))

    for search in SEARCHES:
        page = client.get(search)
        assert page.content_type == "application/json"
        assert page.get_data(as_text=True) == json.dumps(page.get_json(), separators=(",", ":")) + "\n"


def test_skills_are_shown_to_those_alone_who_ask_for_them(client):
    world = PagesWorld(client, Random(1))
    WRITES["report"](world)

    for _ in range(2):
        for query, skills in (("", []), ("?include_skills=true", [{"name": "one"}])):
            items = client.get(f"{API}/search{query}").get_json()["items"]
            [agent] = [item["agent"] for item in items if item["id"] == world.boxed]
            assert agent["agent_context"] == {"skills": skills, "note": "ü"}


def test_a_page_that_was_shown_before_takes_one_round_trip_and_another_where_it_has_changed(client):
    world = PagesWorld(client, Random(1))

    def cost():
        with counted() as trips:
            client.get(f"{API}/search?limit=2")
        return trips.number

    assert [cost(), cost(), cost()] == [2, 1, 1]
    WRITES["run"](world)
    assert [cost(), cost()] == [2, 1]


def test_what_is_kept_is_bounded_in_bytes_and_what_was_shown_first_is_dropped():
    pages = ConversationPages(None, None, None, kept_bytes=3 * 1700)
    form = ConversationForm("a form", lambda _: b"x" * 1000)

    for identity in ("1", "2", "3", "2", "4", "5"):
        pages._show(form, {"id": identity, "revision": "1", "incarnation": "a"})

    assert [identity for _, identity in pages._kept] == ["2", "4", "5"]
    assert pages._size == 3 * 1700

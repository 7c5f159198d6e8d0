"""Who may join a sandbox that runs: keys with each scope, own sandboxes and those of others. Source: docs/access.md."""

import json
from contextlib import ExitStack
from uuid import uuid4

import pytest

from agents.commands import Commands
from app import create_app
from core.access import Joiner
from settings.config import Config
from supervisor.start_tasks import StartDriver
from tests.agents import SPECS, agent_client, running_sandbox, scripted_agent
from tests.conftest import LIMITS, SECRET_KEY
from tests.shared import ADMIN

ALL, NONE = {"kind": "AlwaysConfirm"}, {"kind": "NeverConfirm"}
AGENT = {"agent": {"kind": "Agent", "llm": {"model": "m"}}, "workspace": {"working_dir": "."}}


@pytest.fixture(scope="module")
def keyed(redis_url):
    made = {"redis_timeout": 10, "secret_key": SECRET_KEY, "api_keys": (ADMIN,), **LIMITS}
    return create_app(Config.of(redis_url=redis_url, **made))


class JoinsWorld:
    """Keys, sandboxes with an agent server that accepts everything, and a driver of the starts."""

    def __init__(self, app, running):
        self.app, self.store, self.http = app, app.extensions["server"].store, app.test_client()
        self.agent = running.enter_context(scripted_agent())
        self.running = running

    def key(self, *scopes):
        """A new key: its record, and the headers that show it."""
        made, key = self.store.access.keys.make(f"key {uuid4().hex[:6]}", scopes, None)
        return made, {"Authorization": f"Bearer {key}"}

    def sandbox(self, owner, policy=ALL):
        """A running sandbox of a key with a conversation of that policy: the ids of both."""
        sandbox = self.running.enter_context(running_sandbox(self.store, self.agent.url, owner=owner.id))
        return sandbox.id, self.conversation(sandbox.id, owner, policy)

    def conversation(self, sandbox_id, owner, policy=ALL, **members):
        identity = str(uuid4())
        app = {"started_by": owner.id}
        self.store.conversations.create(
            identity, sandbox_id=sandbox_id, app=app, confirmation_policy=policy, workspace={}, **members
        )
        return identity

    def start(self, headers, **wanted):
        return self.http.post("/api/v1/app-conversations", json=wanted, headers=headers)

    def driver(self, *, shared=False):
        commands = Commands(self.store, agent_client(5), SPECS)
        return StartDriver(self.store, commands, SPECS, shared=shared, start_seconds=5)

    def drive(self, *, shared=False):
        """Drive each start that is under way."""
        while claimed := self.store.start_tasks.claim():
            self.driver(shared=shared).drive(*claimed)

    def ended(self, response):
        """The start task of a response, after it was driven."""
        self.drive()
        [start] = self.store.start_tasks.get_many([response.json["id"].replace("-", "")])
        return start

    def joins(self, sandbox_id):
        """Names of the keys and conversations of the audit's entries about joins of a sandbox."""
        found, query = [], {"decision": "joined", "limit": "100", "sort_order": "TIME_DESC"}
        while query.get("page_id", "") is not None:
            headers = {"Authorization": f"Bearer {ADMIN}"}
            page = self.http.get("/api/v1/audit", query_string=query, headers=headers).json
            found += [one for one in page["items"] if one["sandbox_id"] == sandbox_id]
            query["page_id"] = page["next_page_id"]
        return [(one["actor"]["name"], one["conversation_id"]) for one in found]


@pytest.fixture
def world(keyed):
    with ExitStack() as running:
        yield JoinsWorld(keyed, running)


def test_a_write_key_starts_nothing_in_the_sandbox_of_another_key(world):
    mine, _ = world.key("write")
    _, theirs = world.key("write")
    sandbox_id, conversation = world.sandbox(mine)

    for member, value in (("sandbox_id", sandbox_id), ("parent_conversation_id", conversation)):
        refused = world.start(theirs, **{member: value}, selected_repository="file:///deps")
        assert refused.status_code == 403
        assert member in refused.json["detail"]
        assert "you need a key with the scope approve" in refused.json["detail"]
    body = {**AGENT, "parent_conversation_id": conversation, "confirmation_policy": NONE}
    refused = world.http.post("/api/conversations", json=body, headers=theirs)
    assert (refused.status_code, "parent_conversation_id" in refused.json["detail"]) == (403, True)
    world.drive()
    assert world.agent.requests == []
    assert world.joins(sandbox_id) == []
    assert len(world.store.sandboxes.places.known(sandbox_id)[0]) == 1


def test_a_key_with_approve_joins_and_the_audit_names_it_once(world):
    mine, _ = world.key("write")
    other, theirs = world.key("write", "approve")
    sandbox_id, _ = world.sandbox(mine)

    start = world.ended(world.start(theirs, sandbox_id=sandbox_id))

    assert (start.status, start.detail) == ("READY", "")
    assert world.joins(sandbox_id) == [(other.name, start.conversation_id)]


def test_the_key_that_started_a_sandbox_joins_it_and_the_audit_names_it(world):
    mine, headers = world.key("write")
    sandbox_id, conversation = world.sandbox(mine)

    for member, value in (("sandbox_id", sandbox_id), ("parent_conversation_id", conversation)):
        start = world.ended(world.start(headers, **{member: value}))
        assert (start.status, start.sandbox_id) == ("READY", sandbox_id)
        assert world.joins(sandbox_id)[0] == (mine.name, start.conversation_id)


def test_a_policy_that_holds_less_back_than_one_of_the_sandbox_needs_approve(world):
    mine, headers = world.key("write")
    sandbox_id, conversation = world.sandbox(mine)
    body = {**AGENT, "parent_conversation_id": conversation, "confirmation_policy": NONE}

    refused = world.http.post("/api/conversations", json=body, headers=headers)

    assert (refused.status_code, "is stricter" in refused.json["detail"]) == (403, True)
    assert world.joins(sandbox_id) == []


def test_a_policy_that_is_tightened_before_the_start_is_driven_refuses_it(world):
    mine, _ = world.key("write")
    sandbox_id, conversation = world.sandbox(mine, NONE)
    request = {"kept": {"confirmation_policy": NONE}, "sandbox_id": sandbox_id}
    start = world.store.start_tasks.create(request, echo={}, owner=mine.id, joiner=_joiner(mine))
    world.store.approvals.confirmations.set_policy(conversation, ALL)

    world.drive()

    [start] = world.store.start_tasks.get_many([start.id])
    assert (start.status, start.failure.status) == ("ERROR", 403)
    assert world.agent.requests == []


def _joiner(key, *, joins_any=False):
    return Joiner(key.id, key.name, "127.0.0.1", joins_any)


def test_a_start_of_a_key_that_was_revoked_since_is_not_driven(world):
    mine, _ = world.key("write")
    other, theirs = world.key("write", "approve")
    sandbox_id, _ = world.sandbox(mine)
    response = world.start(theirs, sandbox_id=sandbox_id)
    world.store.access.keys.revoke(other.id)

    start = world.ended(response)

    assert (start.status, start.failure.status) == ("ERROR", 403)
    assert "revoked" in start.detail
    assert world.agent.requests == []
    assert world.joins(sandbox_id) == []


def test_a_start_that_was_stored_without_a_check_is_refused_when_it_is_driven(world):
    mine, _ = world.key("write")
    other, _ = world.key("write")
    sandbox_id, conversation = world.sandbox(mine)

    for request in ({"sandbox_id": sandbox_id}, {"parent_conversation_id": conversation}):
        start = world.store.start_tasks.create(dict(request), echo={}, owner=other.id)
        world.drive()
        [start] = world.store.start_tasks.get_many([start.id])
        assert (start.status, start.failure.status) == ("ERROR", 403)
    assert world.agent.requests == []


def test_a_parent_of_another_key_is_refused_beside_a_sandbox_of_ones_own(world):
    mine, _ = world.key("write")
    other, theirs = world.key("write")
    _, conversation = world.sandbox(mine)
    own, _ = world.sandbox(other)

    refused = world.start(theirs, sandbox_id=own, parent_conversation_id=conversation)

    assert (refused.status_code, refused.json["detail"].split(":")[0]) == (403, "parent_conversation_id")


def test_the_setting_that_shares_sandboxes_gives_no_key_the_sandbox_of_another(world, monkeypatch):
    mine, _ = world.key("write")
    other, _ = world.key("write", "approve")
    sandbox_id, _ = world.sandbox(mine)
    own, _ = world.sandbox(other)

    start = world.store.start_tasks.create({}, echo={}, owner=other.id, joiner=_joiner(other, joins_any=True))
    world.drive(shared=True)

    [start] = world.store.start_tasks.get_many([start.id])
    assert (start.status, start.sandbox_id) == ("READY", own)
    assert sandbox_id != own


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("fork", {}),
        ("load_plugin", {"plugin_ref": "p@m"}),
        ("switch_llm", {"llm": {"model": "m", "usage_id": "u"}}),
        ("switch_acp_model", {"model": "m"}),
        ("switch_profile", {"profile_name": "p"}),
    ],
)
def test_what_brings_code_a_model_or_a_copy_into_the_sandbox_of_another_key_needs_approve(world, verb, body):
    mine, own = world.key("write")
    _, theirs = world.key("write")
    sandbox_id, conversation = world.sandbox(mine)
    path = f"/api/conversations/{conversation}/{verb}"

    refused = world.http.post(path, json=body, headers=theirs)
    assert (refused.status_code, "scope approve" in str(refused.json)) == (403, True)
    assert world.agent.requests == []

    assert world.http.post(path, json=body, headers=own).status_code in (200, 201, 404, 502)
    assert world.joins(sandbox_id) == [(mine.name, conversation)]


def test_a_key_adopts_in_its_own_sandbox_alone_unless_it_may_approve(world):
    mine, _ = world.key("write")
    _, theirs = world.key("write")
    sandbox_id, _ = world.sandbox(mine)

    path = f"/api/v1/sandboxes/{sandbox_id}/conversations/{uuid4()}/adopt"
    refused = world.http.post(path, headers=theirs)

    assert (refused.status_code, "sandbox_id" in json.dumps(refused.json)) == (403, True)


def test_a_joiner_neither_replaces_nor_closes_the_secrets_of_the_sandboxs_owner(world):
    mine, _ = world.key("write")
    other, _ = world.key("write", "approve")
    sandbox_id, _ = world.sandbox(mine)
    world.conversation(sandbox_id, mine, secrets={"USR": "the owner's"})
    world.conversation(sandbox_id, other, secrets={"USR": "another", "MORE": "theirs"})

    own, others = world.store.conversations.secrets_in(sandbox_id)

    assert (own, others) == ([{"USR": "the owner's"}], [{"USR": "another", "MORE": "theirs"}])


def test_a_start_without_a_title_is_named_by_the_first_line_of_its_message_on_both_wires(world):
    mine, headers = world.key("write")
    sandbox_id, conversation = world.sandbox(mine)
    message = {"content": [{"type": "text", "text": "Mend the door\nand the window"}]}

    app = world.ended(world.start(headers, sandbox_id=sandbox_id, initial_message=message))
    named = world.ended(world.start(headers, sandbox_id=sandbox_id, initial_message=message, title="Mine"))
    request = {"kept": {"confirmation_policy": ALL, "initial_message": message["content"]}}
    request |= {"parent_conversation_id": conversation}
    body = {"body": {**AGENT, "initial_message": message}, "headers": {}}
    client, _ = world.store.start_tasks.create_once(
        str(uuid4()), request, body, echo={}, owner=mine.id, joiner=_joiner(mine)
    )
    world.drive()

    titles = [world.store.conversations.get(one.conversation_id)["title"] for one in (app, named, client)]
    assert titles == ["Mend the door", "Mine", "Mend the door"]

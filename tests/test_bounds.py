"""The largest thing that one door takes passes every other door that has to carry it: a table of all bounds.

A text of a request that nothing carries on needs no row: its own door takes the largest and refuses one more.
"""

import ast
import json
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import uuid4

import pytest

from blueprints import terminals
from core.approvals import MOST_MATCHED
from core.cuts import beginning
from core.effects import RISK_OF
from core.egress import MOST_NAME as MOST_HOST
from core.paths import MOST_PATH
from core.people import MOST_NAME as MOST_PERSON
from core.scopes import MOST_SCOPE
from core.shell.rules import MOST_PATTERN
from core.wire import (
    MOST_CALL_BYTES,
    MOST_CONFIRMATION_SECONDS,
    MOST_NAME,
    MOST_REPOSITORY,
    MOST_TAG,
    MOST_TAG_KEY,
    MOST_TITLE,
)
from reference_agent import tunnels as agents_terminals
from schemas import access, approvals, audit, devices, events
from schemas.approvals import MOST_DECISIONS
from schemas.conversations import MOST_SECRET_BYTES, MOST_SECRET_NAME, MOST_TAGS
from schemas.forwarding import MOST_INPUT
from schemas.permission_requests import MOST_TEXT
from settings.config import Config
from tests.blueprints import API
from tests.blueprints.test_doors import CHARACTERS, carried, posted
from tests.conftest import action, message
from tests.fitting import DOCUMENT, FittingOperation, operations
from tests.servers import PROJECT
from tests.store.conftest import fresh_sandboxes, running_sandbox

APPS, RULES, INBOX = "/api/v1/app-conversations", "/api/v1/approval-rules", "/api/v1/pending-actions"
ASKS = "/api/v1/permission-requests"
LIST, SEARCH = "/api/v1/conversations/search", "/api/v1/messages/search"

LIMITS = ("maxLength", "maxItems", "maxProperties", "maximum")


class Doors(NamedTuple):
    """What a row tries its largest value with."""

    client: Any
    store: Any
    redis_url: str

    def conversation(self, **members: Any) -> str:
        """The URL of a new conversation with these members, which reads back with them."""
        made = self.client.post(API, json=members)
        assert made.status_code == 201, made.text[:500]
        return f"{API}/{made.get_json()['id']}"

    def app(self) -> str:
        """The id of an app conversation."""
        identity = str(uuid4())
        assert self.store.conversations.create(identity, sandbox_id="none", app={})
        return identity

    def changed_app(self, **members: Any) -> None:
        """Change an app conversation, and read it with what it was given."""
        identity = self.app()
        assert self.client.patch(f"{APPS}/{identity}", json=members).status_code == 200
        [shown] = self.client.get(APPS, query_string={"ids": identity}).get_json()
        assert {name: shown[name] for name in members} == members

    def asked(self, **request: Any) -> None:
        """Ask for the start of an app conversation, and read the request of its start task."""
        self.store.sandboxes.beat("a host that starts nothing", "a supervisor")
        task = self.client.post(APPS, json=request)
        assert task.status_code in (200, 201), task.text[:500]
        [shown] = self.client.get(f"{APPS}/start-tasks", query_string={"ids": task.get_json()["id"]}).get_json()
        assert {name: shown["request"][name] for name in request} == request

    def finds(self, path: str, **query: Any) -> list[Any]:
        """The items that a search finds."""
        found = self.client.get(path, query_string=query)
        assert found.status_code == 200, found.text[:500]
        return found.get_json()["items"]

    def ruled(self, **members: Any) -> None:
        """Make a rule, and read it with its members."""
        wanted = {"decision": "reject", "tool_name": "t"} | members
        made = self.client.post(RULES, json=wanted)
        assert made.status_code == 201, made.text[:500]
        shown = self.client.get(f"{RULES}/{made.get_json()['id']}").get_json()
        assert {name: shown[name] for name in wanted} == wanted
        assert self.client.delete(f"{RULES}/{shown['id']}").status_code == 200


def titles(doors: Doors, character: str) -> None:
    title = character * MOST_TITLE
    url = doors.conversation(title=title)
    assert doors.client.patch(url, json={"title": title}).get_json()["success"]
    assert doors.client.post(f"{url}/fork", json={"title": title}).get_json()["title"] == title
    doors.changed_app(title=title)
    doors.asked(title=title)
    assert url.rpartition("/")[2] in [one["id"] for one in doors.finds(LIST, text=title)]
    carried_on(doors, url)


def tags(doors: Doors, character: str) -> None:
    of_all = {f"{number:0{MOST_TAG_KEY}}": character * MOST_TAG for number in range(MOST_TAGS)}
    name, value = next(iter(of_all.items()))
    url = doors.conversation(tags=of_all, confirmation_policy={"kind": "AlwaysConfirm"})
    assert doors.client.patch(url, json={"tags": of_all}).get_json()["success"]
    assert doors.client.post(f"{url}/fork", json={"tags": of_all}).get_json()["tags"] == of_all
    doors.changed_app(tags=of_all)
    doors.asked(tags=of_all)
    posted(doors.client, url.rpartition("/")[2], action())
    for path, member in ((LIST, "id"), (INBOX, "conversation_id")):
        assert url.rpartition("/")[2] in [one[member] for one in doors.finds(path, tag=f"{name}={value}")]
    assert doors.client.get(f"{INBOX}/count", query_string={"tag": f"{name}={value}"}).get_json() >= 1
    doors.ruled(tags={name: value})
    doors.ruled(tags={f"{number}": "x" * MOST_TAG for number in range(approvals.MOST_TAGS)})
    carried_on(doors, url)


def terminals_ask(doors: Doors, character: str) -> None:
    character = "x" if character == "\x01" else character  # a line has no controls
    named = ("host", "user")
    session = {name: ("x" if name in named else character) * most for name, most in _SESSION.items()}
    whole = {"agent": {"name": "x" * 64, "version": character * 64}, "session": session}
    call = {"tool_name": "of " + character * ((MOST_CALL_BYTES - 3) // len(character.encode())), "arguments": {}}
    made = doors.client.post(ASKS, json={**whole, **call, "lease_seconds": 600, "expires_in": 86_400})
    assert made.status_code == 201, made.text[:500]
    [shown] = doors.finds(INBOX, conversation_id=made.get_json()["conversation_id"])
    assert (shown["tool_name"], shown["asked_from"]["machine"]) == (call["tool_name"], session["host"])
    told = doors.client.post(f"{ASKS}/outcomes", json={**whole, **call, "outcome": "allowed"})
    assert told.get_json()["by"] == {"kind": "terminal", "name": beginning(f"{session['user']}@{session['host']}", 256)}
    for report in (
        {"kind": "call", **call, "result": character * 100_000},
        {"kind": "prompt", "text": character * MOST_TEXT},
    ):
        assert doors.client.post(f"{ASKS}/reports", json={**whole, **report}).status_code == 204
    carried_on(doors, f"{API}/{shown['conversation_id']}")


def confirmation(doors: Doors, _: str) -> None:
    url = doors.conversation(confirmation_seconds=MOST_CONFIRMATION_SECONDS)
    assert doors.client.patch(url, json={"confirmation_seconds": MOST_CONFIRMATION_SECONDS}).get_json()["success"]
    doors.changed_app(confirmation_seconds=MOST_CONFIRMATION_SECONDS)
    doors.asked(confirmation_seconds=MOST_CONFIRMATION_SECONDS)
    doors.client.post(f"{url}/confirmation_policy", json={"policy": {"kind": "AlwaysConfirm"}})
    proposed = action()
    posted(doors.client, url.rpartition("/")[2], proposed)
    [waiting] = doors.finds(INBOX, conversation_id=url.rpartition("/")[2])
    assert waiting["expires_at"].startswith("202")
    assert waiting["expires_at"] > waiting["since"]


def repositories(doors: Doors, character: str) -> None:
    of = {"selected_repository": f"a/{'b' * MOST_REPOSITORY}"[:MOST_REPOSITORY]}
    of["selected_branch"] = character * MOST_REPOSITORY
    doors.changed_app(**of)
    doors.asked(**of)
    for names in ({"ref": of["selected_branch"]}, {"since": of["selected_branch"], "until": of["selected_branch"]}):
        for what in ("changes", "diff"):
            # There is no sandbox to ask, which is said once the query has been read.
            query = {"path": "x", **names}
            assert doors.client.get(f"{APPS}/{doors.app()}/git/{what}", query_string=query).status_code == 410


def models(doors: Doors, character: str) -> None:
    llm = {"model": character * 256, "api_key": character * 8192, "base_url": character * 2048}
    assert doors.client.post("/api/profiles/largest", json={"llm": llm}).status_code in (200, 201)
    shown = doors.client.get("/api/profiles/largest").get_json()
    assert (shown["config"]["model"], shown["api_key_set"]) == (llm["model"], True)
    assert doors.client.patch("/api/settings", json={"agent_settings_diff": {"llm": llm}}).status_code == 200
    assert doors.client.delete("/api/profiles/largest").status_code == 200
    shared = {name: llm[name] for name in ("api_key", "base_url")}
    named = {"display_name": character * 128, "provider": character * 128}
    made = doors.client.post("/api/llm/provider-connections", json=named | shared)
    assert {name: made.get_json()[name] for name in named} == named
    path = f"/api/llm/provider-connections/{made.get_json()['id']}"
    assert doors.client.patch(path, json=named | shared).status_code == 200
    assert doors.client.delete(path).status_code == 200
    doors.asked(llm_model=llm["model"], sandbox_id="none")


def folders(doors: Doors, character: str) -> None:
    path = "/" + character * 4095
    one = {"id": path, "name": character * 256, "path": path}
    for where, member, sent in (
        ("/api/workspaces", "workspaces", {**one, "parentPath": path}),
        ("/api/workspaces/parents", "parents", one),
    ):
        kept = doors.client.post(where, json={member: [sent]})
        assert kept.status_code in (200, 201), kept.text[:500]
        assert path in kept.text or path in json.dumps(kept.get_json(), ensure_ascii=False) or character in '"\x01'
        assert doors.client.delete(where, query_string={"path": path}).status_code == 200


def rules(doors: Doors, character: str) -> None:
    if character != "\x01":  # of which a rule, that is JSON, has six bytes each, and is refused by its own bound
        doors.ruled(tool_name=character * (MOST_CALL_BYTES // len(character.encode())))
    doors.ruled(arguments={f"{n}": {"any": True} for n in range(approvals.MOST_ARGUMENTS)})
    doors.ruled(arguments={"a": {"pattern": "x" * MOST_MATCHED}})
    doors.ruled(arguments={"a": {"command": "x" * MOST_PATTERN}, "b": {"path": "x" * MOST_PATH}})
    doors.ruled(arguments={character * MOST_NAME: {"any": True}})
    doors.ruled(conversation_ids=[str(uuid4()) for _ in range(approvals.MOST_CONVERSATIONS)])
    doors.ruled(max_uses=approvals.MOST_USES)
    doors.ruled(reason=character * approvals.MOST_REASON)
    for name in ("machine", "person", "agent"):
        doors.ruled(**{name: character * MOST_SCOPE})
    for name in ("machine", "agent"):
        assert doors.finds(INBOX, **{name: character * MOST_SCOPE}) == []


def calls(doors: Doors, character: str) -> None:
    tool = character * (MOST_CALL_BYTES // len(character.encode()))
    url = doors.conversation(confirmation_policy={"kind": "AlwaysConfirm"})
    identity = url.rpartition("/")[2]
    proposed = action(tool_name=tool, tool_call_id=tool, llm_response_id=tool)
    posted(doors.client, identity, proposed)
    [waiting] = doors.finds(INBOX, tool_name=tool, conversation_id=identity)
    assert doors.client.get(f"{INBOX}/count", query_string={"tool_name": tool}).get_json() >= 1
    assert doors.finds("/api/v1/audit", tool_name=tool) == []
    decision = {"action_id": proposed["id"], "decision": "reject", "digest": waiting["digest"], "always": True}
    decided = doors.client.post(
        f"/api/v1/conversation/{identity}/pending-actions/decisions", json={"decisions": [decision]}
    )
    assert decided.status_code == 200, decided.text[:500]
    [made] = decided.get_json()["rules"]
    if character == "\x01":  # the decision is taken, and says why there is no rule
        assert "MOST_RULE_BYTES" in made["detail"]
    else:
        assert doors.client.delete(f"{RULES}/{made['rule_id']}").status_code == 200
    carried_on(doors, url)


def names(doors: Doors, character: str) -> None:
    """Of an event: its id, its kind and its source."""
    url = doors.conversation(confirmation_policy={"kind": "AlwaysConfirm"})
    identity, most = url.rpartition("/")[2], character * (MOST_NAME - 4)
    told = message("hello") | {"id": f"told{most}", "kind": f"Kind{most}", "source": f"from{most}"}
    proposed = action() | {"id": f"does{most}"}
    posted(doors.client, identity, told, proposed)
    for one in (told, proposed):
        assert doors.client.get(f"{url}/events/{quote(one['id'], safe='')}").get_json()["id"] == one["id"]
        assert doors.client.get(f"{url}/events", query_string={"event_ids": one["id"]}).get_json()[0]["id"] == one["id"]
    query = {"kind": told["kind"], "source": told["source"]}
    assert [one["id"] for one in doors.finds(f"{url}/events/search", **query)] == [told["id"]]
    page = doors.client.get(f"{url}/events/search", query_string={"limit": 1}).get_json()["next_page_id"]
    assert proposed["id"] in [one["id"] for one in doors.finds(f"{url}/events/search", page_id=page)]
    fork = doors.client.post(f"{url}/fork", json={"from_event_id": told["id"]})
    assert fork.status_code == 201, fork.text[:500]
    decision = {"action_id": proposed["id"], "decision": "reject"}
    path = f"/api/v1/conversation/{identity}/pending-actions/decisions"
    assert doors.client.post(path, json={"decisions": [decision]}).status_code == 200
    [entry] = doors.finds(f"/api/v1/conversation/{identity}/audit")
    assert entry["action_ids"] == [proposed["id"]]
    carried_on(doors, url)


def searches(doors: Doors, character: str) -> None:
    url = doors.conversation(title=character * 200, confirmation_policy={"kind": "AlwaysConfirm"})
    identity = url.rpartition("/")[2]
    posted(doors.client, identity, message(character * 500), action(summary=character * 256))
    assert identity in [one["conversation_id"] for one in doors.finds(SEARCH, text=character * 500)]
    assert identity in [one["conversation_id"] for one in doors.finds(INBOX, text=character * 256)]
    assert doors.client.post(f"{url}/events/respond_to_confirmation", json={"accept": False}).status_code == 200
    assert identity in [one["conversation_id"] for one in doors.finds("/api/v1/audit", text=character * 140)]
    assert doors.finds("/api/v1/audit", text="y" * 256) == []


def batches(doors: Doors, _: str) -> None:
    """As many things at once as a request may name or bring."""
    url = doors.conversation(confirmation_policy={"kind": "AlwaysConfirm"})
    identity = url.rpartition("/")[2]
    told = [message("hello") for _ in range(events.MOST_EVENTS)]
    posted(doors.client, identity, *told)
    ids = [one["id"] for one in told[: events.MOST_IDS]]
    for named in ({"query_string": {"event_ids": ids}}, {"json": ids}):
        assert [one["id"] for one in doors.client.get(f"{url}/events", **named).get_json()] == ids
    for path, name in ((API, "ids"), (APPS, "ids"), (f"{APPS}/start-tasks", "ids"), ("/api/v1/sandboxes", "id")):
        query = {name: [str(uuid4()) for _ in range(events.MOST_IDS)]}
        assert len(doors.client.get(path, query_string=query).get_json()) == events.MOST_IDS
    assert Config().conversations.max_pending_actions <= MOST_DECISIONS
    proposed = [action() for _ in range(MOST_DECISIONS)]
    posted(doors.client, identity, *proposed)
    decisions = [{"action_id": one["id"], "decision": "reject"} for one in proposed]
    path = f"/api/v1/conversation/{identity}/pending-actions/decisions"
    decided = doors.client.post(path, json={"decisions": decisions})
    assert decided.status_code == 200, decided.text[:500]
    query = {"action_id": [one["id"] for one in proposed[: events.MOST_IDS]]}
    found = doors.client.get(f"/api/v1/conversation/{identity}/decisions", query_string=query).get_json()
    assert [one["decision"] for one in found] == ["reject"] * events.MOST_IDS


def destinations(doors: Doors, character: str) -> None:
    sandbox = running_sandbox(fresh_sandboxes(doors.redis_url)).id
    name = ".".join(["x" * 63] * 3 + ["x" * 61])
    assert len(name) == MOST_HOST
    assert not doors.store.destinations.verdict(sandbox, name, 65535, "curl").is_allowed
    [item] = doors.finds("/api/v1/destinations", sandbox_id=sandbox)
    bound = {member: item[member] for member in ("sandbox_id", "name", "port", "digest")}
    decision = {"decision": "approve", "scope": "conversation", "reason": character * 1000}
    decided = doors.client.post("/api/v1/destinations/decisions", json=bound | decision)
    assert decided.status_code == 200, decided.text[:500]
    [entry] = doors.finds("/api/v1/audit", sort_order="TIME_DESC", limit=1)
    assert (entry["reason"], entry["destination"]["name"]) == (character * 1000, name)
    made = doors.client.post("/api/v1/destination-rules", json={"name": name, "port": 65535, "decision": "reject"})
    assert made.status_code == 201, made.text[:500]
    assert doors.client.delete(f"/api/v1/destination-rules/{made.get_json()['id']}").status_code == 200


def key_names(doors: Doors, character: str) -> None:
    name = ("x" if character == "\x01" else character) * access.MOST_NAME
    made = doors.client.post("/api/v1/keys", json={"name": name, "scopes": ["read", "write", "approve", "admin"]})
    assert made.status_code == 201, made.text[:500]
    assert access.MOST_NAME <= audit._MOST_NAME
    assert doors.finds("/api/v1/audit", actor=name) == []  # the server is open: everybody has another name
    assert name in [one["name"] for one in doors.client.get("/api/v1/keys").get_json()]
    assert doors.client.delete(f"/api/v1/keys/{made.get_json()['id']}").status_code == 200


def device_names(doors: Doors, character: str) -> None:
    name = ("x" if character == "\x01" else character) * access.MOST_NAME
    wanted = next(one for one in operations() if one.name == "add_device").body() | {"name": name}
    start = "https://push.example.org/"
    endpoint = start + "x" * (devices._MOST_URL - len(start))
    made = doors.client.post("/api/v1/devices", json=wanted | {"endpoint": endpoint})
    assert made.status_code == 201, made.text[:500]
    assert doors.client.post("/api/v1/devices", json=wanted | {"endpoint": f"{endpoint}x"}).status_code == 422
    assert name in [one["name"] for one in doors.client.get("/api/v1/devices").get_json()["items"]]
    assert doors.client.delete(f"/api/v1/devices/{made.get_json()['id']}").status_code == 200


def people(doors: Doors, character: str) -> None:
    """Names of people are plain ASCII, whatever the character."""
    url, name = doors.conversation(), "a" * MOST_PERSON
    tag = {"team": character * MOST_TAG}
    tags_of_all = {f"{number}": "x" * MOST_TAG for number in range(approvals.MOST_TAGS)}
    for wanted in ({"person": name, "tags": tag}, {"group": name, "tags": tags_of_all}):
        made = doors.client.post("/api/v1/grants", json={"role": "ask", **wanted})
        assert made.status_code == 201, made.text[:500]
        assert {one: made.get_json()[one] for one in wanted} == wanted
        assert doors.client.delete(made.headers["Location"]).status_code == 200
    owner = f"/api/v1/conversation/{url.rpartition('/')[2]}/owner"
    assert doors.client.put(owner, json={"owner": name}).get_json() == doors.client.get(owner).get_json()
    key = {"name": "of a person", "scopes": ["read"], "person": name}
    made = doors.client.post("/api/v1/keys", json=key).get_json()
    assert made["person"] == name
    assert doors.client.delete(f"/api/v1/keys/{made['id']}").status_code == 200
    doors.ruled(decision="ask", quorum=approvals.MOST_QUORUM)


def secrets(doors: Doors, character: str) -> None:
    value = character * (MOST_SECRET_BYTES // (len(json.dumps(character)) - len('""')))
    secret = {"name": "S" * 64, "value": value}
    kept = doors.client.put("/api/settings/secrets", json=secret)
    assert kept.status_code == (422 if "\0" in character else 200), kept.text[:500]
    assert doors.client.delete(f"/api/settings/secrets/{secret['name']}").status_code == 200
    url = doors.conversation(secrets={"n" * MOST_SECRET_NAME: value[:-2]})
    assert doors.client.post(f"{url}/fork", json={}).status_code == 201
    larger = {**secret, "value": value + character}
    refused = doors.client.put("/api/settings/secrets", json=larger)
    assert refused.get_json()["detail"][0]["loc"] == ["body", "value"]


def repeats(doors: Doors, _: str) -> None:
    headers = {"Idempotency-Key": uuid4().hex + "x" * (255 - 32)}
    first, second = (doors.client.post(API, json={}, headers=headers) for _ in range(2))
    assert first.get_json()["id"] == second.get_json()["id"]


def keystrokes(_: Doors, character: str) -> None:
    for is_ascii in (True, False):
        said = json.dumps({"input": character * MOST_INPUT}, ensure_ascii=is_ascii).encode()
        assert len(said) <= terminals._MOST_MESSAGE
        assert len(json.dumps({"input": character * MOST_INPUT})) < agents_terminals._MOST_LINE


def carried_on(doors: Doors, url: str) -> None:
    """Fork, export and import what has an event at least."""
    posted(doors.client, url.rpartition("/")[2], message("hello"))
    carried(doors.client, url)


class BoundRow(NamedTuple):
    """Bounds of one thing: places of the document with their values, constants of schemas/, and how it is carried on.

    carried: what tries it, the test elsewhere that does, or the reason why nothing carries it.
    """

    places: dict[str, int]
    constants: str
    carried: Callable[[Doors, str], None] | str


_GIT = f"{APPS}/{{conversation_id}}/git"
_NEW = ("StartConversationRequest", "UpdateConversationRequest", "ForkRequest")
_APP = ("AppConversationStartRequest", "UpdateAppConversationRequest")
_RULE = ("RuleMembers", "ApprovalRuleRequest")
_STREAM, _COUNT = f"{INBOX}/stream", f"{INBOX}/count"


def of(most: int, member: str, *schemas: str) -> dict[str, int]:
    """The bound of one member of several schemas."""
    return {f"{schema}{member}": most for schema in schemas}


def asked(most: int, name: str, *paths: str) -> dict[str, int]:
    """The bound of one member of several queries."""
    return {f"query {name} of {path}": most for path in paths}


_CONNECTION = ("ProviderConnectionCreate", "ProviderConnectionUpdate")

#: of what an agent in a terminal says of its session
_SESSION = {"id": 256, "cwd": 1024, "host": 253, "user": 100, "mode": 64, "subagent": 256}

_SEARCHES = (
    "/api/conversations/{conversation_id}/events/search",
    "/api/v1/conversation/{conversation_id}/events/search",
)

TABLE = {
    "a title": BoundRow(of(MOST_TITLE, ".title", *_NEW, _APP[1]) | asked(MOST_TITLE, "text", LIST), "", titles),
    "tags": BoundRow(
        of(MOST_TAGS, ".tags", *_NEW, *_APP)
        | of(MOST_TAG_KEY, ".tags names", *_NEW, *_APP)
        | of(MOST_TAG, ".tags{}", *_NEW, *_APP, *_RULE)
        | of(approvals.MOST_TAGS, ".tags", *_RULE)
        | asked(MOST_TAG_KEY + 1 + MOST_TAG, "tag", LIST, INBOX, _COUNT, _STREAM),
        "conversations.MOST_TAGS approvals.MOST_TAGS",
        tags,
    ),
    "when a pending action expires": BoundRow(
        of(MOST_CONFIRMATION_SECONDS, ".confirmation_seconds", _NEW[0], _NEW[1], *_APP), "", confirmation
    ),
    "a repository": BoundRow(
        of(MOST_REPOSITORY, ".selected_repository", *_APP)
        | of(MOST_REPOSITORY, ".selected_branch", *_APP)
        | {
            place: MOST_REPOSITORY
            for name in ("ref", "since", "until")
            for place in asked(0, name, f"{_GIT}/changes", f"{_GIT}/diff")
        },
        "",
        repositories,
    ),
    "a model": BoundRow(
        of(256, ".model", "Llm", "SavedLlm")
        | of(256, ".llm_model", _APP[0])
        | of(8192, ".api_key", "Llm", "SavedLlm", *_CONNECTION)
        | of(2048, ".base_url", "Llm", "SavedLlm", *_CONNECTION)
        | of(128, ".provider_connection_id", "Llm", "SavedLlm")
        | of(128, ".display_name", *_CONNECTION)
        | of(128, ".provider", *_CONNECTION)
        | asked(128, "provider", "/api/llm/models"),
        "client_settings._MOST_NAME",
        models,
    ),
    "a secret": BoundRow(
        of(100, ".secrets", _NEW[0], _APP[0], "UpdateSecrets")
        | of(MOST_SECRET_NAME, ".secrets names", _NEW[0], _APP[0], "UpdateSecrets")
        | {"SecretPut.value": MOST_SECRET_BYTES}
        | {"AgentProfile.secret_refs[]": 64, "AgentProfile.mcp_server_refs[]": 128},
        "conversations.MOST_SECRET_NAME conversations.MOST_SECRET_BYTES",
        secrets,
    ),
    "a folder that clients remember": BoundRow(
        of(4096, ".id", "Workspace", "WorkspaceParent")
        | of(256, ".name", "Workspace", "WorkspaceParent")
        | of(4096, ".path", "Workspace", "WorkspaceParent")
        | {"Workspace.parentPath": 4096}
        | asked(4096, "path", "/api/workspaces", "/api/workspaces/parents"),
        "catalogs._MOST_PATH",
        folders,
    ),
    "an agent in a terminal": BoundRow(
        of(64, ".name", "AskingAgent")
        | of(64, ".version", "AskingAgent")
        | {f"AskingSession.{name}": most for name, most in _SESSION.items()}
        | of(MOST_CALL_BYTES, ".tool_name", "PermissionRequest", "PermissionOutcomeOfCall", "PermissionReport")
        | {"PermissionRequest.lease_seconds": 600, "PermissionRequest.expires_in": 86_400}
        | of(MOST_TEXT, ".text", "PermissionReport"),
        "permission_requests.MOST_WAIT permission_requests.MOST_LEASE permission_requests.MOST_PATIENCE "
        "permission_requests.MOST_SESSION permission_requests.MOST_FOLDER permission_requests.MOST_TEXT",
        terminals_ask,
    ),
    "a rule": BoundRow(
        of(approvals.MOST_ARGUMENTS, ".arguments", *_RULE)
        | of(MOST_MATCHED, ".arguments{}.pattern", *_RULE)
        | of(MOST_PATTERN, ".arguments{}.command", *_RULE)
        | of(MOST_PATH, ".arguments{}.path", *_RULE)
        | of(approvals.MOST_CONVERSATIONS, ".conversation_ids", *_RULE)
        | of(approvals.MOST_USES, ".max_uses", *_RULE)
        | of(approvals.MOST_REASON, ".reason", *_RULE)
        | of(MOST_SCOPE, ".machine", *_RULE)
        | of(MOST_SCOPE, ".person", *_RULE)
        | of(MOST_SCOPE, ".agent", *_RULE)
        | asked(MOST_SCOPE, "machine", INBOX, _COUNT, _STREAM)
        | asked(MOST_SCOPE, "agent", INBOX, _COUNT, _STREAM),
        "approvals.MOST_ARGUMENTS approvals.MOST_CONVERSATIONS approvals.MOST_REASON approvals.MOST_USES",
        rules,
    ),
    "a person": BoundRow(
        of(MOST_PERSON, ".person", "GrantRequest", "KeyRequest")
        | of(MOST_PERSON, ".group", "GrantRequest")
        | of(MOST_PERSON, ".owner", "OwnerRequest")
        | of(MOST_TAG, ".tags{}", "GrantRequest")
        | of(approvals.MOST_TAGS, ".tags", "GrantRequest")
        | of(approvals.MOST_QUORUM, ".quorum", "ApprovalRuleRequest"),
        "approvals.MOST_QUORUM",
        people,
    ),
    "the names of a call": BoundRow(
        {"ApprovalRuleRequest.tool_name": MOST_CALL_BYTES}
        | asked(MOST_CALL_BYTES, "tool_name", INBOX, _COUNT, _STREAM, "/api/v1/audit"),
        "",
        calls,
    ),
    "the names of an event": BoundRow(
        of(MOST_NAME, ".id", "Event")
        | of(MOST_NAME, ".kind", "Event")
        | of(MOST_NAME, ".source", "Event")
        | asked(MOST_NAME, "page_id", *_SEARCHES),
        "",
        names,
    ),
    "what is searched for": BoundRow(
        asked(500, "text", SEARCH) | asked(256, "text", INBOX, _COUNT, "/api/v1/audit"),
        "events._LONGEST_TEXT approvals._LONGEST audit._MOST_TEXT",
        searches,
    ),
    "a batch": BoundRow(
        of(
            events.MOST_EVENTS,
            "",
            *(f"body of /api/v1/webhooks/{way}events/{{conversation_id}}" for way in ("", "{sandbox_id}/")),
        )
        | asked(events.MOST_IDS, "event_ids", f"{API}/{{conversation_id}}/events")
        | {f"body of {API}/{{conversation_id}}/events": events.MOST_IDS}
        | asked(events.MOST_IDS, "ids", API, APPS, f"{APPS}/start-tasks")
        | asked(events.MOST_IDS, "id", "/api/v1/conversation/{conversation_id}/events", "/api/v1/sandboxes")
        | asked(events.MOST_IDS, "id", "/api/v1/sandbox-specs")
        | asked(events.MOST_IDS, "action_id", "/api/v1/conversation/{conversation_id}/decisions")
        | {"DecisionsRequest.decisions": MOST_DECISIONS},
        "events.MOST_EVENTS events.MOST_IDS approvals.MOST_DECISIONS",
        batches,
    ),
    "a destination": BoundRow(
        of(MOST_HOST, ".name", "DestinationDecision", "DestinationRuleRequest")
        | of(65535, ".port", "DestinationDecision", "DestinationRuleRequest")
        | {"DestinationDecision.sandbox_id": 128, "DestinationDecision.reason": 1000}
        | asked(128, "sandbox_id", "/api/v1/destinations"),
        "destinations._MOST_ID destinations._MOST_REASON",
        destinations,
    ),
    "the name of a key": BoundRow(
        {"KeyRequest.name": access.MOST_NAME} | asked(256, "actor", "/api/v1/audit"),
        "access.MOST_NAME audit._MOST_NAME",
        key_names,
    ),
    "a device": BoundRow(
        {"DeviceRequest.name": access.MOST_NAME, "DeviceRequest.endpoint": devices._MOST_URL},
        "devices._MOST_URL",
        device_names,
    ),
    "the key of a repeat": BoundRow({"header Idempotency-Key": 255}, "", repeats),
    "what is typed into a terminal": BoundRow(
        {}, "forwarding.MOST_INPUT forwarding.MOST_COLS forwarding.MOST_ROWS", keystrokes
    ),
    "edited arguments": BoundRow(
        {}, "approvals.MOST_ARGUMENTS_BYTES", "test_the_largest_edit_fits_with_its_result_into_an_event"
    ),
    "a line of an export": BoundRow(
        {},
        "exports.MOST_LINE_BYTES exports._MOST_LOGGED_BYTES",
        "test_the_largest_event_that_is_nothing_but_secrets_is_carried_with_what_stands_for_them",
    ),
    "a working folder": BoundRow(
        {},
        "conversations.MOST_PATH conversations.MOST_FILE_NAME",
        "test_a_working_folder_that_no_system_can_make_is_refused_at_the_door",
    ),
}

_PAGES = "how much one response has: what follows is on the next page"

#: bounds of which nothing is carried on, and why
OF_ONE_DOOR = {
    _PAGES: asked(100, "limit", f"{API}/{{conversation_id}}/events/search", SEARCH, f"{API}/search", LIST)
    | asked(100, "limit", f"{API}/{{conversation_id}}/bash/bash_events/search", "/api/bash/bash_events/search")
    | asked(100, "limit", "/api/file/search_subdirs", APPS, f"{APPS}/start-tasks/search", f"{APPS}/search")
    | asked(100, "limit", "/api/v1/conversation/{conversation_id}/events/search", INBOX, "/api/v1/sandboxes/search")
    | asked(100, "limit", "/api/v1/sandbox-specs/search", "/api/v1/destinations", "/api/v1/audit")
    | asked(100, "limit", "/api/v1/conversation/{conversation_id}/audit", f"{RULES}/rehearse")
    | asked(200, "limit", f"{API}/{{conversation_id}}/git/commits", "/api/git/commits"),
    "how often people have approved what is proposed": asked(100, "least", f"{RULES}/proposals"),
    "a few examples of all that the response counts": {"ProposedRule.examples": 3},
    "how finely a response divides time": asked(200, "buckets", f"{API}/{{conversation_id}}/events/histogram")
    | asked(200, "buckets", "/api/v1/conversation/{conversation_id}/events/histogram"),
    "a place in a log, which no log is long enough for": asked(
        10**10 - 1, "after_seq", f"{API}/{{conversation_id}}/events/search", f"{API}/{{conversation_id}}/events/stream"
    )
    | asked(10**16 - 1, "last_event_id", "/api/v1/conversations/stream", "/api/v1/sandboxes/stream"),
    "a port of a sandbox, which the address of a preview names": of(65535, ".port", "PreviewRequest"),
    "a name that is compared, or that an agent's settings keep": of(
        128, ".arguments names", "ApprovalRuleRequest", "RuleMembers"
    )
    | of(128, ".key_id", *_RULE)
    | of(128, ".mcp_config names", "AgentSettings"),
    "where a rule holds, which has a form of its own": of(1024, ".folder", *_RULE) | of(1024, ".repository", *_RULE),
    "how long a response waits": asked(30, "wait", f"{API}/{{conversation_id}}/events/search")
    | asked(60, "wait", "/api/v1/permission-requests/{request_id}")
    | asked(86_400, "patience", "/api/v1/hooks/{agent}"),
    "lines of a log, of which a supervisor keeps fewer": asked(10_000, "tail", "/api/v1/sandboxes/{sandbox_id}/logs"),
    "a path goes on to an agent server, whose system has the bound of Linux": asked(
        4096, "path", f"{APPS}/{{conversation_id}}/files", f"{_GIT}/changes", f"{_GIT}/diff", f"{_GIT}/remote"
    )
    | {"PushRequest.path": 4096}
    | asked(4096, "file_path", f"{APPS}/{{conversation_id}}/file")
    | {"ProjectQuery.project_dir": 4096},
    "what Git in a sandbox is given, which tests/agents/test_pushes.py tries": of(200, ".title", "PushRequest")
    | of(200, ".branch", "PushRequest")
    | of(200, ".base", "PushRequest")
    | of(20_000, ".description", "PushRequest"),
    "an address that is compared": of(4096, ".url", "PushRequest"),
    "a response, which says that it was cut": {f"response of {APPS}/{{conversation_id}}/files": 2000}
    | {"StrayConversations.newest": 20},
    "as many as there are": {"KeyRequest.scopes": 5, "TicketRequest.scopes": 5}
    | of(len(RISK_OF), ".effects", "ApprovalRuleRequest", "RuleMembers"),
    "the id of a target comes from a list of the settings": {"NotificationTest.target": 64},
    "all messages become one, which has the bound of an event": {
        "ChatCompletionRequest.messages": 10_000,
        "ResponseRequest.input": 10_000,
    },
}

#: constants of the modules of schemas/ with bounds of OF_ONE_DOOR
_OF_ONE_DOOR = {"events.MOST_WAIT", "events.MOST_BUCKETS", "sandboxes.MOST_LINES", "openai.MOST_MESSAGES"} | {
    *("app_conversations._MOST_PATH", "app_conversations._MOST_DESCRIPTION", "app_conversations._MOST_BRANCH")
}


def bounds(schema: Any, place: str) -> Iterator[tuple[str, int]]:
    """The places below a schema of the document that have a bound, with the bound."""
    if not isinstance(schema, dict):
        return
    limits = [name for name in LIMITS if isinstance(schema.get(name), int)]
    if "maxProperties" in limits:
        limits.remove("maxLength") if "maxLength" in limits else None
    yield from ((place, schema[name]) for name in limits)
    for name, member in schema.get("properties", {}).items():
        yield from bounds(member, f"{place}.{name}")
    for name, mark in (("items", "[]"), ("additionalProperties", "{}"), ("propertyNames", " names")):
        yield from bounds(schema.get(name), f"{place}{mark}")
    for name in ("oneOf", "anyOf", "allOf"):
        for choice in schema.get(name, ()):
            yield from bounds(choice, place)


def documented() -> Iterator[tuple[str, int]]:
    """All bounds of the document."""
    for name, schema in DOCUMENT["components"]["schemas"].items():
        yield from bounds(schema, name)
    for one in DOCUMENT["components"]["parameters"].values():
        yield from bounds(one["schema"], f"{one['in']} {one['name']}")
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            parameters = operation if method == "parameters" else operation.get("parameters", [])
            for one in parameters:
                yield from bounds(one.get("schema"), f"{one.get('in')} {one.get('name')} of {path}")
            if method != "parameters":
                for content in operation.get("requestBody", {}).get("content", {}).values():
                    yield from bounds(content.get("schema"), f"body of {path}")
                for response in operation["responses"].values():
                    for content in response.get("content", {}).values():
                        yield from bounds(content.get("schema"), f"response of {path}")


def constants() -> Iterator[str]:
    """The names of the bounds at the heads of the modules of schemas/, as MODULE.NAME."""
    for path in sorted((PROJECT / "schemas").glob("*.py")):
        for statement in ast.parse(path.read_text()).body:
            for target in statement.targets if isinstance(statement, ast.Assign) else ():
                for name in ast.walk(target):
                    if isinstance(name, ast.Name) and name.id.lstrip("_").startswith(("MOST", "LONGEST")):
                        yield f"{path.stem}.{name.id}"


IN_ROWS = [place for row in TABLE.values() for place in row.places.items()]
IN_ROWS += [place for places in OF_ONE_DOOR.values() for place in places.items()]

#: the bounds that no row names, by schema and member
OF_OWN_DOOR = sorted({*documented()} - {*IN_ROWS})


def test_no_bound_stands_in_two_rows_and_each_that_has_one_is_in_the_document():
    assert sorted(IN_ROWS) == sorted({*IN_ROWS})
    assert {*IN_ROWS} - {*documented()} == set(), "there is no such bound any more"


def test_every_constant_of_the_schemas_that_is_a_bound_is_in_the_document_or_has_a_row():
    in_rows = {name for row in TABLE.values() for name in row.constants.split()} | _OF_ONE_DOOR
    own = {f"{schema.partition('.')[0]} {most}" for schema, most in OF_OWN_DOOR}

    for name in {*constants()} - in_rows:
        module = import_module(f"schemas.{name.partition('.')[0]}")
        assert any(f"{one} {getattr(module, name.partition('.')[2])}" in own for one in vars(module)), name
    assert in_rows - {*constants()} == set(), "there is no such constant any more"


def taken_by(schema: str) -> FittingOperation:
    """The operation whose body has a schema of the document."""
    reference = {"$ref": f"#/components/schemas/{schema}"}
    return next(one for one in operations() if one.takes_json() and one.schema() == reference)


@pytest.mark.parametrize("character", CHARACTERS)
@pytest.mark.parametrize(("place", "most"), OF_OWN_DOOR)
def test_a_text_without_a_row_is_taken_at_its_largest_and_shown_and_one_more_is_refused(client, place, most, character):
    """Give it a row of TABLE where anything carries it on, or where its smallest request does not succeed."""
    schema, _, member = place.partition(".")
    operation = taken_by(schema)
    names = {"conversation_id": client.post(API, json={}).get_json()["id"]}
    url, body = operation.path.format(**names), operation.body()

    taken = client.open(url, method=operation.method, json={**body, member: character * most})
    shown = [taken.get_json(), client.get(url).get_json()]
    refused = client.open(url, method=operation.method, json={**body, member: character * (most + 1)})

    assert taken.status_code in (200, 201), taken.text[:500]
    assert json.dumps(character * most) in json.dumps(shown)
    assert refused.get_json()["detail"][0]["loc"] == ["body", member]


def test_what_a_row_says_is_tried_elsewhere_is_a_test():
    named = {row.carried for row in TABLE.values() if isinstance(row.carried, str)}
    sources = [(PROJECT / path).read_text() for path in ("tests/blueprints/test_doors.py", "tests/test_any_text.py")]

    assert [name for name in named if not any(f"def {name}(" in source for source in sources)] == []


@pytest.mark.parametrize("character", CHARACTERS)
@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if callable(row.carried)])
def test_the_largest_of_a_row_passes_all_of_its_doors(client, store, redis_url, name, character):
    TABLE[name].carried(Doors(client, store, redis_url), character)


def _numbers() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            for one in operation.get("parameters", []) if method != "parameters" else ():
                if one.get("in") == "query" and "maximum" in one.get("schema", {}):
                    yield method, path, one


def test_the_largest_number_of_every_query_is_taken_and_one_more_is_refused_by_name(client):
    tried = 0
    for method, path, one in _numbers():
        url = path.replace("{conversation_id}", str(uuid4())).replace("{", "").replace("}", "")
        most, statuses = one["schema"]["maximum"], []
        needed = {"after_seq": 0} if one["name"] == "wait" and "/events/" in path else {}
        for value in (most, most + 1):
            response = client.open(url, method=method.upper(), query_string={one["name"]: value, **needed})
            faults = response.get_json()["detail"] if response.status_code == 422 else []
            statuses.append(["query", one["name"]] in [fault["loc"] for fault in faults])
            response.close()  # of a stream nothing is read
        forwarded = "/bash/" in path or "/git/" in path or "/file/" in path  # the agent server refuses it
        assert statuses == [False, not forwarded], (path, one["name"])
        tried += 1
    assert tried > 20

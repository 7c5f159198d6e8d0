"""A conversation's hash, and the state that is read from it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any

from core.paths import MOST_PATH
from core.wire import ConversationId, Micros, Seq
from store.keys import APP_FIELD, REPORTED_FIELD, ConversationKeys
from store.listing import folded
from store.record import JSON, HashRecord

#: A conversation's state: its members by name, including those of its start request.
State = dict[str, Any]

#: Members of `Conversation` that no state has: for cold storage, masks, the listing and rights.
_UNSHOWN = (
    *("cold", "cold_digest", "aside_until", "secrets_version", "folded_title", "folder"),
    *("owner", "asker", "right_tags"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation(HashRecord):
    """The fields of a conversation for its state, or written by Python. Every state has those with a default."""

    key = ConversationKeys(ConversationId("ID")).root
    id: ConversationId
    incarnation: str  #: one per creation
    seq: Seq  #: seq of the last event
    execution_status: str
    confirmation_policy: Mapping[str, object] | None = None
    title: Annotated[str | None, JSON] = None
    tags: dict[str, str] | None = None
    stats: Mapping[str, object] | None = None
    security_analyzer: Mapping[str, object] | None = None
    info: Mapping[str, object]  #: the rest of the start request
    held: str  #: risks that the policy holds back, joined by commas
    created_at: str  #: UTC, Z
    updated_at: str  #: UTC, Z
    imported_at: str  #: UTC, Z
    approves_inside: Annotated[bool | None, JSON] = (
        None  #: this server approves actions inside the folder: `core/modes.py`
    )
    origin: Mapping[str, str] | None = None  #: origin, never changed: `core/scopes.py`; missing: unknown
    external: Mapping[str, Any] | None = None  #: session of an agent in a terminal: `agents/asking.py`
    revision: str  #: number that grows with every change, also across incarnations
    last_user_message_id: str
    text_chunk: int  #: number of the chunk of text that grows
    secrets_version: str  #: version of the secrets that mask its events
    sandbox_id: str
    groups: str  #: joined by commas
    app: Annotated[Mapping[str, object], f"{APP_FIELD}*"]  #: member of an app conversation
    agent: Mapping[str, object]  #: as last reported by its agent server
    told: Annotated[Mapping[str, object], f"{REPORTED_FIELD}*"]  #: another reported member
    labels_due: str  #: id of a request whose title or tags the agent may not have
    posted: int  #: number of the log's events that the agent has
    agent_log: list[object] | None = None  #: how far both logs were compared: `supervisor/agent_log.py`
    unattended: Annotated[bool | None, JSON] = None  #: detached copy, until an agent posts to it
    interrupted: Annotated[bool | None, JSON] = None  #: a run was in progress when the agent server ended or froze
    unapproved_resumes: int  #: runs without a decision
    approvals: str  #: number that grows with every change of pending actions, also across incarnations
    confirmation_seconds: int | None = None  #: of this conversation; missing: the setting
    delivery_id: str  #: id prefix of the request whose decision the agent may not have received
    folded_title: str  #: title for sorting and searching; missing: from an earlier release
    cold: str  #: name of the object with its log; missing: the log is in Redis
    cold_digest: str  #: SHA-256 of that object, so that nobody with access to the objects can replace the log
    folder: str  #: absolute path of its agent's folder; missing: none, or from an earlier release
    aside_until: Micros  #: µs before which it is not frozen again
    owner: str  #: name of the person or the key that owns it; missing: unknown
    asker: str  #: sender of the last user message, as `core.people.voter`; missing: the owner
    right_tags: dict[str, str]  #: tags that clients have set, for grants


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationUpkeep(HashRecord):
    """Fields of a conversation that only the scripts use."""

    key = Conversation.key
    snapshot_id: str  #: id of the last full state that an agent posted
    log_bytes: int  #: size of the log, in bytes
    latest_at: Micros  #: latest time of an event, µs
    final_seq: Seq  #: seq of the event with the final response
    final_at: Micros  #: time of that event, µs
    owner_set: str  #: id prefix of the last request that set the owner
    state_at: Micros  #: time of the agent's latest event that set a state, µs
    decision_id: str  #: id prefix of the last request that decided
    early_ends: list[list[str]]  #: ends of actions that arrived before their actions, and times of the ends, µs
    sender: Mapping[str, str]  #: actor and reason of the last message to the agent, each as canonical JSON
    decided_trace: str  #: W3C traceparent of the last decision, for the agent's next batch; empty: none
    delivery_verb: str  #: `accept` or `reject`
    delivery_reason: Annotated[str, JSON]
    delivery_actions: list[str]  #: ids of actions
    delivery_at: Micros  #: µs
    delivery_decisions: list[Mapping[str, object]]  #: decision of each action
    delivery_trace: str  #: W3C traceparent


def read_state(stored: Mapping[bytes, bytes], secret_names: Iterable[bytes]) -> State:
    """Return a conversation's state, from its hash and the names of its secrets."""
    found = Conversation.members(stored)
    for name in _UNSHOWN:
        found.pop(name, None)
    told = found.pop("told")
    if "agent" in found:
        told["agent"] = found.pop("agent")
    info = {**found["info"], **told}
    names = sorted(name.decode() for name in secret_names)
    return {**info, **_always(), **found, "info": info, "secret_names": names}


@cache
def _always() -> State:
    return {one.name: one.default for one in fields(Conversation) if one.default is None}


def info_fields(info: Mapping[str, object]) -> dict[str, str]:
    """Return the fields for the rest of a start request: the request itself, and its workspace's folder if absolute.

    The effects of an action depend on the folder, and judging many actions must not parse all of the rest.
    """
    workspace = info.get("workspace")
    folder = workspace.get("working_dir") if isinstance(workspace, Mapping) else None
    fields = Conversation.fields_of(info=info)
    if not isinstance(folder, str) or not folder.startswith("/") or len(folder) > MOST_PATH or not folder.isprintable():
        return fields
    return fields | Conversation.fields_of(folder=folder)


def title_fields(title: str | None) -> dict[str, str]:
    """Return the fields for a title: the title itself, and folded."""
    return Conversation.fields_of(title=title, folded_title=folded(title))

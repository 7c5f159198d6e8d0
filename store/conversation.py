"""A conversation's hash, and the state that is read from it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any

from core.paths import MOST_PATH
from core.wire import ConversationId, Micros, Seq
from store.keys import APP_FIELD, REPORTED_FIELD, ConversationKeys
from store.listing import folded
from store.record import JSON, Record

#: a conversation's state: its members by name, those of its start request among them
State = dict[str, Any]

#: members of `Conversation` that no state has: where its log lies, what masks it, and its place in the listing
_UNSHOWN = (
    *("cold", "cold_digest", "aside_until", "secrets_version", "folded_title", "folder"),
    *("owner", "asker", "right_tags"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation(Record):
    """The fields of a conversation that its state has, or that Python writes. Every state has those with a default."""

    key = ConversationKeys(ConversationId("ID")).root
    id: ConversationId
    incarnation: str  #: one per creation
    seq: Seq  #: of the last event
    execution_status: str
    confirmation_policy: Mapping[str, object] | None = None
    title: Annotated[str | None, JSON] = None
    tags: dict[str, str] | None = None
    stats: Mapping[str, object] | None = None
    security_analyzer: Mapping[str, object] | None = None
    info: Mapping[str, object]  #: the rest of the start request
    held: str  #: risks that are held back, joined by commas
    created_at: str  #: UTC, Z
    updated_at: str  #: UTC, Z
    imported_at: str  #: UTC, Z
    approves_inside: Annotated[bool | None, JSON] = None  #: this server approves what stays inside: `core/modes.py`
    origin: Mapping[str, str] | None = None  #: where it began, never changed: `core/scopes.py`; missing: not known
    external: Mapping[str, Any] | None = None  #: the session of an agent in a terminal: `agents/asking.py`
    revision: str  #: a number that grows with every change, also from one life of an id to the next
    last_user_message_id: str
    text_chunk: int  #: number of the chunk of text that grows
    secrets_version: str  #: version of the secrets that mask its events
    sandbox_id: str
    groups: str  #: of the listing, joined by commas
    app: Annotated[Mapping[str, object], f"{APP_FIELD}*"]  #: a member that only app conversations have
    agent: Mapping[str, object]  #: as its agent server reported it last
    told: Annotated[Mapping[str, object], f"{REPORTED_FIELD}*"]  #: another member that it reports
    labels_due: str  #: request whose title or tags the agent may not have
    posted: int  #: number of the log's events that the agent has too
    agent_log: list[object] | None = None  #: how far both logs were compared: `supervisor/agent_log.py`
    unattended: Annotated[bool | None, JSON] = None  #: a detached copy, until an agent posts to it
    interrupted: Annotated[bool | None, JSON] = None  #: a run was under way when the agent server ended or froze
    unapproved_resumes: int  #: runs that nobody decided
    approvals: str  #: a number that grows with every change of what waits, also from one life of an id to the next
    confirmation_seconds: int | None = None  #: of this conversation alone; missing: the setting's
    delivery_id: str  #: of a decision that the agent may not have received: id prefix of its request
    folded_title: str  #: its title as the listing sorts and searches it; missing: of an earlier release
    cold: str  #: name of the object that has its log; missing: Redis has it
    cold_digest: str  #: SHA-256 of that object: who can write where the objects are cannot put another log there
    folder: str  #: absolute path of its agent's folder; missing: there is none, or it is of an earlier release
    aside_until: Micros  #: µs before which it is not frozen again
    owner: str  #: name of the person or the key that started it, or was given it; missing: nobody is known
    asker: str  #: who sent the last user's message, as `core.people.voter` has them; missing: the owner
    right_tags: dict[str, str]  #: its tags as clients gave them: what grants are compared with


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationUpkeep(Record):
    """Fields of a conversation that the scripts alone use."""

    key = Conversation.key
    snapshot_id: str  #: of the last full state that an agent posted
    log_bytes: int  #: length of the log, in bytes
    latest_at: Micros  #: greatest time of an event, µs
    final_seq: Seq  #: of the event that holds the final response
    final_at: Micros  #: time of that event, µs
    owner_set: str  #: id prefix of the request that set the owner last
    state_at: Micros  #: time of the agent's newest event that set a state, µs
    decision_id: str  #: id prefix of the request that decided last
    decided_trace: str  #: W3C traceparent of the last decision, for the agent's next batch; empty: none
    delivery_verb: str  #: `accept` or `reject`
    delivery_reason: Annotated[str, JSON]
    delivery_actions: list[str]  #: ids
    delivery_at: Micros  #: µs
    delivery_decisions: list[Mapping[str, object]]  #: the decision of each action
    delivery_trace: str  #: W3C traceparent


def read_state(stored: Mapping[bytes, bytes], secret_names: Iterable[bytes]) -> State:
    """A conversation's state, its members by name, from its hash and the names of its secrets."""
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
    """The fields that the rest of a start request has: as it is, and the folder of its workspace where it is absolute.

    What an action does depends on the folder, and whoever judges many actions has no time to read all of the rest.
    """
    workspace = info.get("workspace")
    folder = workspace.get("working_dir") if isinstance(workspace, Mapping) else None
    fields = Conversation.fields_of(info=info)
    if not isinstance(folder, str) or not folder.startswith("/") or len(folder) > MOST_PATH or not folder.isprintable():
        return fields
    return fields | Conversation.fields_of(folder=folder)


def title_fields(title: str | None) -> dict[str, str]:
    """The fields that a title has: as it is, and folded."""
    return Conversation.fields_of(title=title, folded_title=folded(title))

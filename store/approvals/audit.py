"""The audit of a conversation: who decided what, when and why. Each entry contains the hash of the previous one.

The script that decides writes the entry, in the conversation's slot: `scripts/_audit.lua`. Appended events cannot write
an entry. Entry: {action_ids, actor: {kind, name, address}, conversation_id, decision, digests, hash, previous, reason,
seq, time}; `conversation_title` if there is a title; `shown` for actions: {tool_name, text, summary} of the first 20;
and `edited` (digests) for edited arguments. `hash` is the hex SHA-256 of the canonical JSON (RFC 8785) of the entry
without `hash`; `previous` is the hash of the previous entry, "" in the first.

The same script publishes the decision to followers of the conversation, and indexes the entry by its actions. Everybody
who may read the conversation thus sees the decision beside the action, without the address.

Requests of sandboxes for destinations have one chain per day, in the slot of the sandboxes:
`scripts/_destinations.lua`. These entries also have `chain` (destinations-2026-11-25), `destination` {name, port,
program, sandbox_id}, and where they apply `rule_id` and `scope`. Their `conversation_id` is null if the sandbox has
none or several. The chain also has entries `joined`: a key has begun to act in a running sandbox. They have
`sandbox_id` instead of `destination`, and the `conversation_id` in which the key acts.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from core.approvals import Rule, canonical, text_of
from core.cuts import beginning
from core.rule_words import rule_sentence
from core.wire import ConversationId, Micros, micros
from store.errors import ConversationNotFound
from store.keys import ApprovalKeys, ConversationKeys, SandboxKeys, audit_key
from store.link.attempts import Stamp
from store.link.commands import Redis
from store.listing import MOST_SCANNED, SCAN_CHUNK
from store.log.feed import FeedEntry
from store.log.text import fold
from store.projections import Projections
from store.scripts import Scripts

#: Kinds of actors. Source: docs/approvals.md.
ActorKind = Literal[
    "key",
    "link",
    "message",
    "run",
    "rule",
    "expiry",
    "agent",
    "sandbox",
    "deletion",
    "server",
    "person",
    "terminal",
    "lease",
]
ACTOR_KINDS: tuple[ActorKind, ...] = get_args(ActorKind)

#: Kinds of actors by which a person decides about the action in view, and decisions about actions.
PEOPLE, VERBS = frozenset({"key", "link", "run", "person"}), frozenset({"approve", "reject", "edit"})

#: Maximum length of an actor's name and address, in characters.
_LONGEST = 256

#: Maximum length of an action's text, summary and tool name in an entry, in characters.
LONGEST_TEXT, LONGEST_SUMMARY, LONGEST_TOOL = 300, 150, 100

#: Kind of the event that tells followers of a decision. It is not stored.
DECISION = "DecisionEvent"

#: Maximum distance of two entries of a chain that are read with those between them.
_DENSE = 3

#: Prefix of the chains of destinations, followed by the day.
DESTINATION_CHAIN = "destinations-"


def chain_key(chain: str) -> str:
    """Return the key of a chain's entries. chain: of the destinations of a day, or the id of a conversation."""
    if chain.startswith(DESTINATION_CHAIN):
        return f"{SandboxKeys.root}:audit:{chain.removeprefix(DESTINATION_CHAIN)}"
    return audit_key(ConversationKeys(ConversationId(chain)))


def audit_member(chain: str, seq: int) -> str:
    """Return an entry's member of the index of all audits. At equal times, members of a chain sort by seq."""
    return f"{chain} {seq:010d}"


class DecisionActor(NamedTuple):
    """An actor that decides: a person, a key, a link, a message, a run, a rule, a deadline, or a running agent."""

    kind: ActorKind
    name: str
    address: str = ""
    may_decide: bool = True
    rights: str = ""  #: what the right of a person was read from, for `scripts/_rights.lua` to compare
    voter: str = ""  #: voter where several people must approve, see `core.people.voter`; empty: does not count
    key_id: str = ""  #: id of the requesting key
    groups: tuple[str, ...] = ()

    def by(self, kind: ActorKind) -> "DecisionActor":
        """Return this actor with another kind. A run has no vote where several people must approve."""
        return self._replace(kind=kind, voter="" if kind == "run" else self.voter)

    @property
    def ballot(self) -> str:
        """Return its vote where several people must approve, for `decide_pending.lua`; empty: does not count."""
        if not self.voter:
            return ""
        of_person = {"person": self.name, "groups": ",".join(self.groups)} if self.kind == "person" else {}
        name = canonical_text(beginning(self.name, _LONGEST))
        return json.dumps({"voter": self.voter, "name": name, "key": self.key_id, **of_person})

    @property
    def json(self) -> str:
        """Return its canonical JSON, as the scripts take it."""
        name, address = (canonical_text(beginning(text, _LONGEST)) for text in (self.name, self.address))
        return f'{{"address":{address},"kind":"{self.kind}","name":{name}}}'


#: This server, acting by itself.
SERVER = DecisionActor("server", "server")


def canonical_text(text: str) -> str:
    """Return a text as canonical JSON. Lone surrogates, which RFC 8785 excludes, become replacement characters."""
    return canonical(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")).decode()


def shown(tool_name: str, summary: Any, arguments: Any) -> str:
    """Describe an action for an entry, as canonical JSON: {summary, text, tool_name}."""
    words = canonical_text(beginning(summary, LONGEST_SUMMARY)) if isinstance(summary, str) else "null"
    text = canonical_text(beginning(text_of(arguments), LONGEST_TEXT))
    return f'{{"summary":{words},"text":{text},"tool_name":{canonical_text(beginning(tool_name, LONGEST_TOOL))}}}'


class AuditPosition(NamedTuple):
    """The position of an entry in the order of all audits. A page follows the position of its cursor."""

    at: Micros
    chain: str  #: id of a conversation, or name of a day's chain of destinations
    seq: int


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """A filter of entries. Absent members let all pass."""

    since: Micros | None = None
    until: Micros | None = None
    chain: str | None = None
    actor: str | None = None  #: full name of the actor
    actor_kind: str | None = None
    people: bool = False  #: pass only decisions of people about actions, see PEOPLE
    decision: str | None = None
    tool_name: str | None = None  #: tool of one of the entry's described actions
    text: str | None = None  #: case-insensitive substring of the entry's texts

    @property
    def reads_entries(self) -> bool:
        """Return whether the filter needs more than the time and the chain of an entry."""
        return self.people or any((self.actor, self.actor_kind, self.decision, self.tool_name, self.text))

    def passes(self, place: AuditPosition, raw: bytes) -> bool:
        if not (self.since is None or place.at >= self.since) or not (self.until is None or place.at < self.until):
            return False
        if not self.reads_entries:
            return True
        entry = json.loads(raw)
        actor = entry["actor"]
        found = (actor["name"], actor["kind"], entry["decision"])
        wanted = (self.actor, self.actor_kind, self.decision)
        if not all(wish in (None, one) for wish, one in zip(wanted, found, strict=True)):
            return False
        if self.people and not is_by_person(entry):
            return False
        actions = [one for one in entry.get("shown", []) if one]
        tools = [one["tool_name"] for one in actions]
        if self.tool_name is not None and beginning(self.tool_name, LONGEST_TOOL) not in tools:
            return False
        return not self.text or fold(self.text) in fold("\n".join(_texts(entry, actions)))


class Audit:
    """The audits of all conversations. The list of a conversation is the record; the index of all is written after it.

    A deleted conversation keeps its list, and the index its entries, for AUDIT_DAYS.
    """

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def of(self, conversation_id: ConversationId, *, after: int = 0, limit: int) -> list[bytes]:
        """Return the entries after a seq, as JSON; empty for a conversation that never waited. One round trip."""
        entries = self._redis.lrange(audit_key(ConversationKeys(conversation_id)), after, after + limit - 1)
        return list(entries)

    def decisions(self, conversation_id: ConversationId, action_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the decisions about actions, by their ids. One round trip.

        A decision is {action_ids, actor: {kind, name}, decision, reason, seq, time}, for an edit with edited_shown: its
        entry without the address. Undecided actions, and those of a fork's source, are absent. Raises
        ConversationNotFound.
        """
        if not action_ids:
            return {}
        found = self._scripts.find_decisions(ConversationKeys(conversation_id).root, ids=action_ids)
        if found is None:
            raise ConversationNotFound
        return {
            action_id: decision_of(json.loads(entry))
            for action_id, entry in zip(action_ids, found.entries, strict=True)
            if entry is not None
        }

    def page(self, conversation_id: ConversationId, *, after: int = 0, limit: int) -> tuple[list[bytes], int | None]:
        """Return the entries of a conversation after a seq, the oldest first, as stored; and the next page's `after`.

        One round trip. Raises ConversationNotFound if neither the conversation nor an entry exists.
        """
        keys = ConversationKeys(conversation_id)
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.lrange(audit_key(keys), after, after + limit)
            pipe.exists(keys.root, audit_key(keys))
            entries, exists = pipe.execute()
        if not exists:
            raise ConversationNotFound
        return entries[:limit], after + limit if len(entries) > limit else None

    def search(
        self,
        filters: AuditFilter,
        *,
        descending: bool,
        limit: int,
        start: AuditPosition | None,
        most_scanned: int | None = None,
    ) -> tuple[list[bytes], AuditPosition | None]:
        """Return a page of the entries of all conversations, ordered by time, and the next cursor.

        At most `most_scanned` entries are read, MOST_SCANNED by default, in two round trips per SCAN_CHUNK. A page may
        be shorter than the limit without being the last. With a chain its own list is read, ordered by seq.
        """
        found: list[bytes] = []
        most = MOST_SCANNED if most_scanned is None else most_scanned
        chunk, scanned, more = SCAN_CHUNK if filters.reads_entries else min(limit, SCAN_CHUNK), 0, True
        if filters.people:  # most entries may pass: begin with few
            chunk = min(limit, SCAN_CHUNK)
        while more and scanned < most:
            entries = self._following(filters, descending, chunk + 1, start)
            more = len(entries) > chunk
            for start, raw in entries[:chunk]:
                scanned += 1
                if raw and filters.passes(start, raw):
                    found.append(raw)
                if len(found) == limit:
                    return found, start if more or start != entries[-1][0] else None
            chunk = SCAN_CHUNK if filters.reads_entries else chunk
        return found, start if more else None

    def _following(
        self, filters: AuditFilter, descending: bool, most: int, start: AuditPosition | None
    ) -> list[tuple[AuditPosition, bytes | None]]:
        """Return the entries after a position; None for an expired entry."""
        if filters.chain is not None:
            return self._following_in(filters.chain, descending, most, start)
        reply = self._scripts.page_audit(
            ApprovalKeys.root,
            order="desc" if descending else "asc",
            most=most,
            since="-inf" if filters.since is None else str(filters.since),
            before="+inf" if filters.until is None else str(filters.until),
            at=None if start is None else start.at,
            member="" if start is None else audit_member(start.chain, start.seq),
        )
        return self._at([_place(member, at) for member, at in reply])

    def _at(self, places: Sequence[AuditPosition]) -> list[tuple[AuditPosition, bytes | None]]:
        """Return the entries at these positions, in one round trip. Neighbours in a chain share a command."""
        seqs: dict[str, list[int]] = {}
        for place in places:
            seqs.setdefault(place.chain, []).append(place.seq)
        ranges = [(chain, run[0], run[-1]) for chain, some in seqs.items() for run in _runs(sorted(some))]
        with self._redis.pipeline(transaction=False) as pipe:
            for chain, first, last in ranges:
                pipe.lrange(chain_key(chain), first - 1, last - 1)
            replies = pipe.execute() if ranges else []
        found = {
            (chain, seq): raw
            for (chain, first, _), raws in zip(ranges, replies, strict=True)
            for seq, raw in enumerate(raws, first)
        }
        return [(place, found.get((place.chain, place.seq))) for place in places]

    def before(self, place: AuditPosition | None, most: int) -> list[tuple[AuditPosition, bytes | None]]:
        """Return the entries of all conversations before a position, the newest first; None for an expired entry."""
        return self._following(AuditFilter(), True, most, place)

    def size(self) -> int:
        """Return the number of entries of all audits."""
        return int(self._redis.zcard(f"{ApprovalKeys.root}:audit"))

    def _following_in(
        self, chain: str, descending: bool, most: int, start: AuditPosition | None
    ) -> list[tuple[AuditPosition, bytes | None]]:
        """Return the entries of one chain after a position."""
        if not descending:
            first, last = (0 if start is None else start.seq), (0 if start is None else start.seq) + most - 1
        elif start is None:
            first, last = -most, -1
        elif start.seq == 1:
            return []
        else:
            first, last = max(0, start.seq - 1 - most), start.seq - 2
        entries = self._redis.lrange(chain_key(chain), first, last)
        found: list[tuple[AuditPosition, bytes | None]] = [(place_of(raw), raw) for raw in entries]
        return found[::-1] if descending else found


class TerminalAudit:
    """Writes audit entries about terminals, previews, pushes and rules of a conversation, which concern no action."""

    def __init__(self, scripts: Scripts, projections: Projections) -> None:
        self._scripts = scripts
        self._projections = projections

    def opened(self, conversation_id: ConversationId, actor: DecisionActor, terminal_id: str, sandbox_id: str) -> None:
        """Record that a terminal was opened. One round trip, then those of `Projections.settle`.

        Raises ConversationNotFound.
        """
        self._note("terminal_opened", conversation_id, actor, f"Terminal {terminal_id} in sandbox {sandbox_id}.")

    def closed(
        self, conversation_id: ConversationId, actor: DecisionActor, terminal_id: str, sandbox_id: str, seconds: float
    ) -> None:
        """Record that a terminal was closed, after some seconds. As `opened`."""
        reason = f"Terminal {terminal_id} in sandbox {sandbox_id}, open for {seconds:.0f} s."
        self._note("terminal_closed", conversation_id, actor, reason)

    def previewed(
        self, conversation_id: ConversationId, actor: DecisionActor, preview_id: str, sandbox_id: str, port: int
    ) -> None:
        """Record that a preview of a port was opened. As `opened`."""
        self._note(
            "preview_opened", conversation_id, actor, f"Preview {preview_id} of port {port} of sandbox {sandbox_id}."
        )

    def pushed(
        self,
        conversation_id: ConversationId,
        actor: DecisionActor,
        push_id: str,
        commit: str,
        branch: str,
        address: str,
    ) -> None:
        """Record that a commit is about to be pushed as a branch to an address. As `opened`."""
        reason = f"Push {push_id} of commit {commit} as branch {branch} to {address}."
        self._note("push_begun", conversation_id, actor, reason)

    def rule_changed(self, conversation_id: ConversationId, actor: DecisionActor, what: str, rule: Rule) -> None:
        """Record that a rule of the conversation was made or revoked. what: `rule_made`, `rule_revoked`.

        As `opened`.
        """
        self._note(what, conversation_id, actor, f"Rule {rule.id}. {rule_sentence(rule)}.")

    def _note(self, what: str, conversation_id: ConversationId, actor: DecisionActor, reason: str) -> None:
        stamp = Stamp.now()
        reply = self._scripts.audit_terminal(
            ConversationKeys(conversation_id).root,
            id_prefix=stamp.id_prefix,
            time=stamp.utc_time,
            what=what,
            actor=actor.json,
            reason=canonical_text(reason),
        )
        if reply is None:
            raise ConversationNotFound
        self._projections.settle(conversation_id, reply.state)


def _texts(entry: dict[str, Any], actions: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the texts of an entry: its actions, its destination or budget, its reason, the title."""
    for action in (*actions, *entry.get("edited_shown", ())):
        yield from (action["tool_name"], action["text"], action["summary"] or "")
    yield (entry.get("destination") or {}).get("name", "")
    yield (entry.get("budget") or {}).get("setting", "")
    yield from (entry["reason"], entry.get("conversation_title", ""))


def _runs(seqs: Sequence[int]) -> Iterator[list[int]]:
    """Yield runs of ascending seqs, in which at least every _DENSEth seq is present."""
    run: list[int] = []
    for seq in seqs:
        if run and seq - run[-1] > _DENSE:
            yield run
            run = []
        run.append(seq)
    if run:
        yield run


def _place(member: str, at: float) -> AuditPosition:
    chain, _, seq = member.partition(" ")
    return AuditPosition(Micros(int(at)), chain, int(seq))


def place_of(raw: bytes) -> AuditPosition:
    entry = json.loads(raw)
    return AuditPosition(micros(entry["time"]), chain_of(entry), entry["seq"])


def is_by_person(entry: dict[str, Any]) -> bool:
    """Return whether an entry is a person's decision about actions, see PEOPLE."""
    return entry["actor"]["kind"] in PEOPLE and entry["decision"] in VERBS and bool(entry.get("action_ids"))


def decider_of(entry: dict[str, Any]) -> dict[str, str]:
    """Return who decided, without the address."""
    return {name: entry["actor"][name] for name in ("kind", "name")}


def decision_of(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the part of an entry for everybody who may read the conversation."""
    return {
        "actor": decider_of(entry),
        **{name: entry[name] for name in ("action_ids", "decision", "reason", "seq", "time")},
        **({"edited_shown": entry["edited_shown"]} if "edited_shown" in entry else {}),
    }


def is_decision(entry: FeedEntry) -> bool:
    """Return whether a follower's event is a decision, which is not stored."""
    return entry.seq == 0 and DECISION.encode() in entry.raw and entry.fields.get("kind") == DECISION


def chain_of(entry: dict[str, object]) -> str:
    """Return the chain of an entry: its conversation, unless it names another."""
    return str(entry.get("chain") or entry["conversation_id"])

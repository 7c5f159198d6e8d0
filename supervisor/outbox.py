"""Moves entries of the outboxes into the queues of the targets, each once, in the words of its messages.

Every supervisor with targets does it, and none has a lease: a queue takes a message once per id. The body for each
target is made here, once: so every try sends the same bytes, also when the subject has changed or is gone.
"""

import json
import logging
from collections.abc import Sequence
from typing import Any

from approvals.digests import action_digest, shown_arguments
from approvals.links import Links
from notifications.messages import Subject, body_of
from notifications.quiet import QuietRules
from notifications.targets import Target
from store import Store
from store.errors import UNAVAILABLE, ConversationNotFound, EventsTooLong
from store.sandboxes.sandbox_record import SandboxId
from wire import ConversationId, Micros, micros, parse_json, utc_time

log = logging.getLogger("supervisor")

#: entries of one outbox that one round moves
_BATCH = 50


class OutboxMover:
    """Moves entries from the outboxes to the queues. One thread per process uses it."""

    def __init__(
        self, store: Store, targets: Sequence[Target], rules: QuietRules, links: Links, *, public_url: str
    ) -> None:
        """links: makes the one-time links. public_url: by which people reach the server; empty: there are no links."""
        self._store = store
        self._targets = targets
        self._rules = rules
        self._links = links
        self._public_url = public_url

    def move(self) -> int:
        """Move the oldest entries of each outbox. Returns their number. Raises one of UNAVAILABLE."""
        found = self._store.outboxes.read(_BATCH)
        for name, entries in found.items():
            self.queue(entries)
            self._store.outboxes.remove(name, entries)
        return sum(map(len, found.values()))

    def queue(self, entries: Sequence[bytes]) -> None:
        """Queue the messages of those entries that no quiet rule holds back."""
        traced: dict[str, str] = {}
        messages = [message for raw in entries if (message := self._message(raw, traced))]
        dropped = self._store.targets.add([target.id for target in self._targets], messages, traced)
        for target in self._targets:
            if number := dropped.get(target.id):
                words = (target.name, number)
                log.warning("notifications: the queue of %s is full: its %d oldest messages are dropped", *words)

    def _message(self, raw: bytes, traced: dict[str, str]) -> tuple[str, list[str]] | None:
        """The id of an entry's message, and its body for each target; None: it is not notified of.

        traced: gets the W3C traceparent of a message whose subject has one, by its id.
        """
        try:
            entry: dict[str, Any] = json.loads(raw)
            entry["time"] = utc_time(micros(entry["time"]) if "time" in entry else Micros(int(entry["at"])))
            if not self._rules.pass_entry(entry):
                return None
            if "conversation_id" not in entry:
                return entry["id"], self._bodies(entry, self._sandbox(SandboxId(entry["sandbox_id"])))
            identity = ConversationId(entry["conversation_id"])
            [state] = self._store.conversations.get_many([identity])
            if not self._rules.pass_tags((state or {}).get("tags") or {}):
                return None
            subject = self._conversation(identity, entry, state) if state else Subject()
            if subject.trace:
                traced[entry["id"]] = subject.trace
            return entry["id"], self._bodies(entry, subject)
        except UNAVAILABLE:
            raise
        except Exception:  # the entries after it must not wait for it
            log.exception("notifications: no message can be made of an entry of an outbox, which is dropped")
            return None

    def _sandbox(self, sandbox_id: SandboxId) -> Subject:
        [sandbox] = self._store.sandboxes.get_many([sandbox_id])
        # Its first line is the reason; below it are lines of a log.
        return Subject(detail=(sandbox.detail or "").partition("\n")[0]) if sandbox else Subject()

    def _conversation(self, identity: ConversationId, entry: dict[str, Any], state: dict[str, Any]) -> Subject:
        subject = Subject(title=state.get("title") or "", secrets=self._store.conversations.secrets_of(identity))
        if not (action_id := entry.get("action_id")):
            return subject
        try:
            [raw] = self._store.events.get_many(identity, [action_id])
        except (ConversationNotFound, EventsTooLong):
            return subject
        event = parse_json(raw) if raw else {}
        arguments = shown_arguments(event.get("action"))
        waiting = {one["id"]: one for one in self._store.confirmations.read_approvals(identity).pending}
        record = waiting.get(action_id, {})
        expires = record.get("expires")
        return subject._replace(
            summary=str(event.get("summary") or ""),
            arguments=arguments,
            since=record.get("since") or "",
            trace=record.get("trace") or "",
            expires_at=utc_time(Micros(int(expires))) if expires else "",
            digest=record.get("digest") or (action_digest(event.get("tool_name"), arguments) if event else ""),
        )

    def _bodies(self, entry: dict[str, Any], subject: Subject) -> list[str]:
        return [
            body_of(entry, subject, public_url=self._public_url, approval_link=self._link(entry, subject, target))
            for target in self._targets
        ]

    def _link(self, entry: dict[str, Any], subject: Subject, target: Target) -> str | None:
        """A link of a target's own to decide by, for an action that waits."""
        if entry["type"] != "action.pending" or not subject.since:
            return None
        identity, deadline = ConversationId(entry["conversation_id"]), subject.expires_at and micros(subject.expires_at)
        words = (identity, entry["action_id"], subject.digest, target.name)
        return self._links.make(*words, deadline=deadline or None)

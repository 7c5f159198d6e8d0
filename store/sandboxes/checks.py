"""When conversations are compared with their agents: soon after each webhook, message, run and decision.

A webhook makes its conversation due before its body is read, even if it is then refused or its worker is killed.
Everything that makes a conversation run also makes it due. A supervisor claims due conversations, compares them, and
closes the comparison. If it is killed, its claims are due again when their lease ends. All times are those of Redis'
clock.
"""

import json
import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import uuid4

from core import wire
from core.wire import ConversationId, Micros
from settings.limits import SandboxLimits
from store.keys import ConversationKeys, SandboxKeys
from store.link.commands import Redis
from store.sandboxes.sandboxes import SandboxId
from store.scripts import Scripts
from store.scripts.calls import Spans

_log = logging.getLogger(__name__)


class Check(NamedTuple):
    """A conversation that is due for comparison, and the lease on it."""

    conversation_id: ConversationId
    sandbox_id: SandboxId
    lease_end: Micros

    @property
    def entry(self) -> str:
        return f"{self.conversation_id} {self.sandbox_id}"


class Checks:
    def __init__(self, scripts: Scripts, limits: SandboxLimits) -> None:
        self._scripts = scripts
        self._spans = Spans(*limits.spans)

    def require(self, sandbox_id: SandboxId) -> None:
        """Make every conversation of a sandbox due at once."""
        self._scripts.check_sandbox(SandboxKeys.root, id=sandbox_id)

    def claim(self, host: str, seconds: float, most: int) -> list[Check]:
        """Claim due conversations of a host's sandboxes and of lost hosts. seconds: of the lease.

        most: maximum number.
        """
        reply = self._scripts.claim_checks(
            SandboxKeys.root, host=host, lease=round(seconds * 1000), most=most, spans=self._spans
        )
        if reply is None:
            return []
        found = list[Check]()
        for entry in (word.decode(errors="surrogateescape") for word in reply.entries):
            one, _, sandbox = entry.partition(" ")
            if one and sandbox and " " not in sandbox:
                found.append(Check(ConversationId(one), SandboxId(sandbox), reply.lease_end))
            else:
                _log.error("an entry of the comparisons cannot be read, and is given up: %r", entry)
                self._scripts.close_check(SandboxKeys.root, entry=entry, lease_end=reply.lease_end)
        return found

    def close(self, check: Check, *, again_in: float | None) -> None:
        """End a comparison. again_in: seconds until the conversation is due again; None: when something happens."""
        again = None if again_in is None else round(again_in * 1000)
        self._scripts.close_check(SandboxKeys.root, entry=check.entry, lease_end=check.lease_end, again=again)

    def note(
        self, conversation_id: ConversationId, before: Sequence[object], after: Sequence[object], *, ended: bool
    ) -> None:
        """Store how far the logs were compared, unless another comparison has replaced `before` meanwhile.

        ended: the conversation has no interrupted run any more.
        """
        self._scripts.note_comparison(
            ConversationKeys(conversation_id).root,
            before=json.dumps(before) if before else "",
            after=json.dumps(after),
            ended=ended,
        )


class Echoes:
    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def expect(self, conversation_id: ConversationId, claims: Iterable[str], token: str = "") -> None:
        """Record claims that the agent may make, each once, before the agent receives their cause.

        token: of the request that expects them; a repeat with it adds nothing. Beyond 1,000 the oldest are dropped.
        Ignores an unknown conversation.
        """
        root = ConversationKeys(conversation_id).root
        self._scripts.expect_echoes(root, at=wire.now(), token=token or uuid4().hex, claims=claims)

    def is_expected(self, conversation_id: ConversationId, claim: str, token: str) -> bool:
        """Return whether a claim of the agent is still expected. One round trip."""
        return self._redis.zscore(ConversationKeys(conversation_id).echoes, f"{claim} {token}") is not None

    def expects_any(self, conversation_id: ConversationId, since: Micros) -> bool:
        """Return whether something that the agent was sent since a time, such as a message, is missing in the log."""
        return bool(self._redis.zcount(ConversationKeys(conversation_id).echoes, since, "+inf"))

    def forget(self, conversation_id: ConversationId, claim: str, token: str) -> None:
        """Stop expecting a claim, because the agent has refused its cause."""
        self._scripts.forget_echo(ConversationKeys(conversation_id).root, claim=claim, token=token)

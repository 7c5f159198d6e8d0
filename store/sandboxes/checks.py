"""When conversations are compared with their agents: soon after each webhook, message, run and decision.

A webhook makes its conversation due before its body is read, in the script that opens its key: so also one that is
refused, or whose worker is killed. Everything that makes a conversation run goes that way, so every conversation of a
sandbox that is `running` is due at some time. A supervisor claims what is due, compares, and closes; what a killed
supervisor had claimed is due again when the lease ends. All times are those of Redis' clock.
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
    """A conversation that is due to be compared, and the lease on it."""

    conversation_id: ConversationId
    sandbox_id: SandboxId
    lease_end: Micros

    @property
    def entry(self) -> str:
        """Its member of the due index."""
        return f"{self.conversation_id} {self.sandbox_id}"


class Checks:
    """The comparisons that are due."""

    def __init__(self, scripts: Scripts, limits: SandboxLimits) -> None:
        self._scripts = scripts
        self._spans = Spans(*limits.spans)

    def require(self, sandbox_id: SandboxId) -> None:
        """Have every conversation of a sandbox compared at once."""
        self._scripts.check_sandbox(SandboxKeys.root, id=sandbox_id)

    def claim(self, host: str, seconds: float, most: int) -> list[Check]:
        """Take so many that are due, of a host's sandboxes and of those whose host is lost, for so many seconds."""
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
        """End a comparison: the conversation is due again in so many seconds, or (None) once something happens."""
        again = None if again_in is None else round(again_in * 1000)
        self._scripts.close_check(SandboxKeys.root, entry=check.entry, lease_end=check.lease_end, again=again)

    def note(
        self, conversation_id: ConversationId, before: Sequence[object], after: Sequence[object], *, ended: bool
    ) -> None:
        """Keep how far the logs were compared, unless another comparison has kept its own since `before` was read.

        ended: no run of the conversation is interrupted any more.
        """
        self._scripts.note_comparison(
            ConversationKeys(conversation_id).root,
            before=json.dumps(before) if before else "",
            after=json.dumps(after),
            ended=ended,
        )


class Echoes:
    """The expected echoes of all conversations."""

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def expect(self, conversation_id: ConversationId, claims: Iterable[str], token: str = "") -> None:
        """Note claims that the agent may make, each once, before it is sent what makes it claim them.

        token: of the request that expects them; a repeat with it adds nothing. Beyond 1,000 the oldest are forgotten.
        Of an unknown conversation nothing is kept.
        """
        root = ConversationKeys(conversation_id).root
        self._scripts.expect_echoes(root, at=wire.now(), token=token or uuid4().hex, claims=claims)

    def is_expected(self, conversation_id: ConversationId, claim: str, token: str) -> bool:
        """Whether the agent has not made a claim yet that is expected. One round trip."""
        return self._redis.zscore(ConversationKeys(conversation_id).echoes, f"{claim} {token}") is not None

    def expects_any(self, conversation_id: ConversationId, since: Micros) -> bool:
        """Whether something that the agent was sent since a time, such as a message, is not in the log yet."""
        return bool(self._redis.zcount(ConversationKeys(conversation_id).echoes, since, "+inf"))

    def forget(self, conversation_id: ConversationId, claim: str, token: str) -> None:
        """Expect a claim no longer: the agent has refused what was sent."""
        self._scripts.forget_echo(ConversationKeys(conversation_id).root, claim=claim, token=token)

"""Go-aheads: what was allowed to agents that asked for it, until a supervisor has found out whether to tell them.

The script that approves a destination or a budget leaves one, whoever approves it: a person, a link or a rule. A
supervisor claims it under a lease, so another one goes on where the first was killed. What becomes of it:
`supervisor/go_aheads.py`.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from core.wire import Micros
from store.keys import SandboxKeys
from store.scripts import Scripts

log = logging.getLogger("supervisor")

#: what the log says where no agent is told, and what a person can do
NOBODY_TOLD = "its agents are not told, and go on once somebody sends them a message"

#: seconds after which another supervisor may take one that a killed supervisor had claimed
LEASE = 5.0

#: the namespace of the ids of the messages
_MESSAGES = UUID("3d5f0d0a-6d52-4c47-9a52-6f0a3f0d9c11")


@dataclass(frozen=True, slots=True)
class GoAhead:
    """What was allowed to the agents of a sandbox."""

    member: str  #: "SANDBOX NAME:PORT", of a budget "SANDBOX SETTING:0"
    id: str  #: one per approval
    sandbox_id: str
    name: str  #: of a budget its setting
    port: int  #: 0: it is a budget
    actor: Mapping[str, Any]  #: who allowed it: `kind` and `name`
    tried_at: Micros  #: when the sandbox was refused last
    allowed_at: Micros
    ends_at: Micros | None  #: when the approval ends; None: as late as the sandbox
    is_reached: bool  #: the sandbox has reached it since
    has_waited: bool  #: its agent was at work after the approval
    now: Micros  #: by the clock of Redis, as are all of these

    def message_id(self, conversation_id: str) -> UUID:
        """The id of the message that tells an agent: the same in each try."""
        return uuid5(_MESSAGES, f"{self.member} {self.id} {conversation_id}")


def _read(member: str, entry: bytes, now: Micros) -> GoAhead:
    """Raises ValueError, KeyError or TypeError for what no script writes."""
    left = json.loads(entry)
    return GoAhead(
        member=member,
        id=left["id"],
        sandbox_id=left["sandbox"],
        name=left["name"],
        port=int(left["port"]),
        actor=json.loads(left["actor"]),
        tried_at=Micros(int(left["tried_at"])),
        allowed_at=Micros(int(left["allowed_at"])),
        ends_at=Micros(int(left["ends"])) if left["ends"] else None,
        is_reached="reached" in left,
        has_waited="waited" in left,
        now=now,
    )


class GoAheads:
    """The go-aheads of all sandboxes."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def claim(self) -> GoAhead | None:
        """Take one that is due, for LEASE seconds; None if nothing is due. One round trip.

        One whose record cannot be read is forgotten, and named in the log: no later try would read it.
        """
        while reply := self._scripts.claim_go_ahead(SandboxKeys.root, span=int(LEASE * 1e6)):
            try:
                return _read(reply.member, reply.entry, reply.now)
            except (ValueError, KeyError, TypeError) as error:
                self._scripts.forget_go_ahead(SandboxKeys.root, member=reply.member, entry=reply.entry)
                cause = f"{type(error).__name__}: {error}"
                log.error(
                    "the record of %s, which was allowed, cannot be read (%s): %s", reply.member, cause, NOBODY_TOLD
                )
        return None

    def postpone(self, go_ahead: GoAhead, seconds: float) -> None:
        """Have it looked at again after so many seconds, because its agent works."""
        self._scripts.close_go_ahead(
            SandboxKeys.root, member=go_ahead.member, id=go_ahead.id, again_in=max(1, int(seconds * 1e6))
        )

    def close(self, go_ahead: GoAhead) -> None:
        """Forget it: its agent is told, or need not be."""
        self._scripts.close_go_ahead(SandboxKeys.root, member=go_ahead.member, id=go_ahead.id, again_in=0)

"""Go-aheads: approvals for agents that were refused before, until a supervisor knows whether to notify them.

The script that approves a destination or a budget creates a go-ahead. A supervisor claims it with a lease, so that
another one continues if the first is killed. See `supervisor/go_aheads.py`.
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

#: Log text if no agent is notified, and what a person can do.
NOBODY_TOLD = "its agents are not told, and go on once somebody sends them a message"

#: Seconds after which another supervisor may claim a go-ahead from a killed supervisor.
LEASE = 5.0

_MESSAGES = UUID("3d5f0d0a-6d52-4c47-9a52-6f0a3f0d9c11")


@dataclass(frozen=True, slots=True)
class GoAhead:
    """An approval for the agents of a sandbox."""

    member: str  #: "SANDBOX NAME:PORT", for a budget "SANDBOX SETTING:0"
    id: str  #: one per approval
    sandbox_id: str
    name: str  #: setting, if it is a budget
    port: int  #: 0: it is a budget
    actor: Mapping[str, Any]  #: who approved it: `kind` and `name`
    tried_at: Micros  #: time of the sandbox' last refusal
    allowed_at: Micros
    ends_at: Micros | None  #: when the approval ends; None: with the sandbox
    is_reached: bool  #: the sandbox has reached it since
    has_waited: bool  #: its agent was working after the approval
    now: Micros  #: by Redis' clock, as all times here

    def message_id(self, conversation_id: str) -> UUID:
        """Return the id of the message that notifies an agent, the same in each attempt."""
        return uuid5(_MESSAGES, f"{self.member} {self.id} {conversation_id}")


def _read(member: str, entry: bytes, now: Micros) -> GoAhead:
    """Read a go-ahead. Raises ValueError, KeyError or TypeError for a corrupt record."""
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
    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def claim(self) -> GoAhead | None:
        """Claim a due go-ahead, for LEASE seconds; None if none is due. One round trip.

        A go-ahead with a corrupt record is deleted and logged, as no later attempt could read it.
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
        """Make it due again after some seconds, because its agent is working."""
        self._scripts.close_go_ahead(
            SandboxKeys.root, member=go_ahead.member, id=go_ahead.id, again_in=max(1, int(seconds * 1e6))
        )

    def close(self, go_ahead: GoAhead) -> None:
        """Delete it, because its agent is notified or need not be."""
        self._scripts.close_go_ahead(SandboxKeys.root, member=go_ahead.member, id=go_ahead.id, again_in=0)

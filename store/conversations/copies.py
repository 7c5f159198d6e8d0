"""A log that is written under keys of its own, then renamed by one script: no reader sees half of it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import TimeoutError

from store.approvals.effects import final_effect
from store.errors import ConversationNotFound
from store.keys import ConversationKeys, pair
from store.link.stamps import Stamp
from store.listing import Listing
from store.log.frames import compressed
from store.log.text import record
from store.policies import held_risks
from store.scripts import Scripts
from wire import Event, Seq

#: events that one call writes
PAGE = 100

#: seconds without a new page after which Redis removes an unfinished copy, and the error of its writer then
_HOUR, _EXPIRED = 3600, "The copy of the conversation took so long that it has expired"


class Copy:
    """One unfinished copy: nobody else knows its keys, and they expire unless it is adopted."""

    def __init__(self, scripts: Scripts, keys: ConversationKeys, stamp: Stamp) -> None:
        self.keys = keys
        self.seq = Seq(0)  #: of its last event
        self._scripts = scripts
        self._stamp = stamp
        self._fork = keys.fork  #: empty once it has begun

    def append(self, events: Sequence[Event]) -> None:
        """Write the next events, at most PAGE; one of an id that is in the log is not written
        again. Raises TimeoutError."""
        batch: list[Any] = [self._stamp.utc_time, _HOUR, self._fork]
        for event in events:
            final = "1" if final_effect(event) else ""
            what = (compressed(event.raw), record(event), final)
            batch += (event.id, pair(event.kind, event.source), event.at, *what)
        copied = self._scripts.copy_events([self.keys.root], batch)
        if copied is None:
            raise TimeoutError(_EXPIRED)
        self.seq, self._fork = Seq(copied), ""

    def adopt(self, listing: Listing, fields: Mapping[str, str], claims: Sequence[str] = ()) -> bool:
        """Make it the conversation of its id, with fields of the hash; False where that conversation exists.

        claims: what the agent may claim of it, see `claims.py`. Two round trips. Raises TimeoutError.
        """
        expected = [f"{claim} {self.keys.fork}" for claim in claims]
        words = [word for name_and_value in fields.items() for word in name_and_value]
        args = [self.keys.fork, self._stamp.at, len(expected), *expected, *words]
        try:
            [outcome] = listing.write(self._scripts.adopt_fork, self.keys.id, args)
        except ConversationNotFound:
            raise TimeoutError(_EXPIRED) from None
        return bool(outcome == "adopted")


def policy_fields(state: Mapping[str, Any]) -> dict[str, str]:
    """The fields of the hash that say which actions wait, and for how long."""
    fields = {
        "confirmation_policy": json.dumps(state["confirmation_policy"]),
        "held": held_risks(state["confirmation_policy"]),
        "security_analyzer": json.dumps(state["security_analyzer"]),
    }
    if (seconds := state["confirmation_seconds"]) is not None:
        fields["confirmation_seconds"] = str(seconds)
    return fields

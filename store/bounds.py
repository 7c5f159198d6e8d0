"""The bounds that the settings put on one conversation, and the most that one response may hold."""

from dataclasses import dataclass

from store.errors import ReasonTooLong

#: most bytes of the events of one page, and of one batch of ids: a client that takes nothing costs no more
PAGE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that one conversation may hold: so no script about a conversation blocks Redis for long."""

    pending_actions: int  #: actions that wait for a decision, and open actions that are remembered
    event_kinds: int  #: pairs of kind and source
    reason_bytes: int  #: of a rejection's reason, UTF-8
    confirmation_seconds: int = 0  #: until a pending action expires; 0: it does not
    audit_days: int = 400  #: for which the audit of a deleted conversation is kept
    archive_bytes: int = 256 * 1024 * 1024  #: of a log in Redis that may become an object; a longer one stays

    def check_reason(self, reason: str) -> None:
        """Raises ReasonTooLong."""
        if len(reason.encode("utf-8", "surrogatepass")) > self.reason_bytes:
            raise ReasonTooLong(self.reason_bytes)

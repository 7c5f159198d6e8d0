"""The bounds that the settings put on one conversation."""

from dataclasses import dataclass

from store.errors import ReasonTooLong


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that one conversation may hold: so no script about a conversation blocks Redis for long."""

    pending_actions: int  #: actions that wait for a decision, and open actions that are remembered
    event_kinds: int  #: pairs of kind and source
    reason_bytes: int  #: of a rejection's reason, UTF-8

    def check_reason(self, reason: str) -> None:
        """Raises ReasonTooLong."""
        if len(reason.encode("utf-8", "surrogatepass")) > self.reason_bytes:
            raise ReasonTooLong(self.reason_bytes)

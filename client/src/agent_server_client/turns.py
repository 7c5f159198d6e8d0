"""How far an agent is with a message, as the entries of the log tell it. The sync and the async client share it."""

from agent_server_client.wire import STOPPED, Entry, goes_on

#: seconds in which an agent must begin to work on a message, and in which a message must appear in the log
BEGINS, APPEARS = 15.0, 2.0

#: statuses of an agent that begins nothing by itself, whatever it was sent
_LEFT = ("paused", "error", "stuck")

#: what stands in the log for the value of a secret
_HIDDEN = "<secret-hidden>"

#: the kind of an event that tells of a rejection
REJECTION = "UserRejectObservation"

#: kinds of events that only an agent at work writes
_AT_WORK = ("ActionEvent", "ObservationEvent", "StreamingDeltaEvent", "CommandOutputEvent")


class Progress:
    """Whether the agent works, waits, or has stopped.

    message: the turn of this message, which begins where the log has it. None: whatever the log tells; then a stop
    counts only from `last` on, the seq of the last entry as the reading began.
    """

    def __init__(self, message: str | None = None) -> None:
        self.message, self.has_begun = message, message is None
        self.has_run = False  #: the agent has worked since the last message
        self.is_asked = False  #: a message is the last word so far
        self.works = False  #: the log will tell of a stop
        self.recovers = False  #: the agent has crashed, and its run goes on by itself
        self.status, self.last = "", 0
        self.is_over = False
        self.is_rejected = False  #: it stopped while an action waited
        self.words = list[str]()  #: what the agent has said since the last message
        self.error = ""

    @property
    def waits(self) -> bool:
        """Whether an action waits for a decision."""
        return self.status == "waiting_for_confirmation" and not self.is_over

    @property
    def patience(self) -> float:
        """Seconds in which a stopped agent may still begin."""
        return BEGINS if self.is_asked or not self.has_begun else APPEARS

    def take(self, entry: Entry) -> bool:
        """Read the next entry. Return whether it may have made an action wait."""
        if entry.kind == "MessageEvent" and entry.source == "user" and not (self.message and self.has_begun):
            if self._is_it(entry):
                self.has_begun, self.is_asked, self.has_run, self.words, self.error = True, True, False, [], ""
            return False
        if not self.has_begun:
            return False
        asks = self._take(entry)
        is_last = self.message is not None or (entry.seq or 0) >= self.last
        self.is_over = is_last and self.status in STOPPED and self._counts and not self.recovers
        return asks

    @property
    def _counts(self) -> bool:
        """Whether a stop is one of this turn, and not of an earlier run."""
        return self.has_run or (self.message is not None and self.status in _LEFT)

    def _take(self, entry: Entry) -> bool:
        status = entry.status
        if status is not None:
            self.is_rejected = self.status == "waiting_for_confirmation" and status == "idle"
            self.status, self.works = status, status not in STOPPED
        self.recovers = goes_on(entry.event, self.recovers)
        self.works = self.works or self.recovers
        speaks = entry.kind == "MessageEvent" and entry.source == "agent"
        if speaks or entry.kind in _AT_WORK or (status is not None and self.works):
            self.has_run, self.is_asked = True, False
        if speaks or entry.is_finish:
            self.words.append(entry.text)
        elif entry.kind == "ConversationErrorEvent":
            self.error = entry.text
        return self.waits and (status is not None or entry.kind == "ActionEvent")

    def _is_it(self, entry: Entry) -> bool:
        """Whether a user's message is that of this turn; one in which a secret was masked counts as it."""
        return not self.message or self.message.strip() in entry.text or _HIDDEN in entry.text

"""The errors of the store.

Each class has its kind, status and words (`core/refused.py`). Other errors are defined beside the code that raises
them.

REDIS_FULL, FULL       the error of redis-py when Redis is full, and its text for clients
UNREADABLE             errors of Python for a corrupt record
UNAVAILABLE            errors of redis-py while Redis cannot serve a request; the request itself is right
"""

import redis.exceptions
from redis.connection import DefaultParser

from core.bounds import MOST_SECRETS, MOST_SECRETS_BYTES
from core.cuts import beginning
from core.refused import RefusalKind, Refused
from core.wire import UNASKED

#: Raised for a record that this release did not write. A reader that has claimed it from a queue drops it.
UNREADABLE = (ValueError, KeyError, TypeError)


#: Redis has reached its `maxmemory`. Requests that need no more memory are served, others get 507.
REDIS_FULL = redis.exceptions.OutOfMemoryError

#: Text of the error for clients.
FULL = "Redis is full, and takes nothing more (maxmemory; for the embedded store MAX_STORE_BYTES)"


class StoreError(Refused):
    """A request that the store cannot serve; the message is for the client."""


class UnknownReply(Exception):
    """A script has returned a reply that its head does not declare."""

    def __init__(self, script: str, reply: object) -> None:
        super().__init__(f"The script {script} replied {reply!r}, which its head does not declare")


class TemporaryRefusal(redis.exceptions.ResponseError):
    """Redis refuses a command for now; the command itself is right."""


class ConversationNotFound(StoreError):
    """The conversation does not exist."""

    kind = RefusalKind.MISSING
    words = "Conversation not found. GET /api/conversations/search lists the conversations"


class NotStartedHere(ConversationNotFound):
    """A sandbox posts about a conversation that no start task has put into it."""

    words = (
        "Conversation not found: a sandbox posts to conversations that were started in it, and reports their "
        "children. Start it in this sandbox, or name its parent"
    )


class EventNotFound(StoreError):
    """The conversation has no event with this id."""

    kind = RefusalKind.MISSING
    words = "Event not found. GET /api/conversations/ID/events/search lists its events"


class EventsTooLong(StoreError):
    """The requested events are too large for one response."""

    kind = RefusalKind.MEMBER
    place = "query"
    member = "id"
    fault = "too_long"

    def __init__(self, most: int) -> None:
        super().__init__(f"These events have more than {most} bytes together: ask for fewer ids at once")


class UnknownCursor(StoreError):
    """The page cursor names an event that the conversation does not have."""

    kind = RefusalKind.MEMBER
    place = "query"
    member = "page_id"
    words = "Unknown cursor: page_id must be a next_page_id of this conversation"


class BeyondTheEnd(StoreError):
    """The cursor is beyond the last event: it belongs to an earlier conversation with this id."""

    kind = RefusalKind.MEMBER
    place = "query"
    member = "after_seq"

    def __init__(self, last: int) -> None:
        super().__init__(f"The last event of this conversation has seq {last}: follow from there, or from 0")


class ActionsWait(StoreError):
    """A message or a run with `decides=false` would decide pending actions."""

    kind = RefusalKind.CONFLICT
    words = (
        "Not sent: an action waits for a decision, and `rejects` or `accepts` is false. "
        "Decide it first: GET /api/v1/pending-actions lists it"
    )


class IllegalMove(StoreError):
    """The status of the conversation does not allow this operation."""

    kind = RefusalKind.CONFLICT

    def __init__(self, verb: str, status: str) -> None:
        later = {"running": "Wait until it stops", "waiting_for_confirmation": "Decide the pending actions first"}
        super().__init__(f"Cannot {verb}: the conversation is {status}. {later.get(status, 'Send a message instead')}")


class NobodyRuns(StoreError):
    """The conversation is a copy without a sandbox, so nobody would receive the message or the run."""

    kind = RefusalKind.CONFLICT
    words = (
        "No agent runs this conversation: it is a copy without a sandbox. An agent of your own takes it over with its "
        "first event to POST /api/v1/webhooks/events/{conversation_id}. Or start a new conversation: "
        "POST /api/v1/app-conversations"
    )


class RunsInTerminal(StoreError):
    """The agent runs in a terminal outside of sandboxes and cannot be steered from here."""

    kind = RefusalKind.CONFLICT
    words = (
        "The agent of this conversation runs in a terminal, and takes messages only there: write to it at its "
        "terminal. Its requests are decided here: GET /api/v1/pending-actions lists them"
    )


class ActsUnasked(StoreError):
    """The policy requires approval, but the agent never waits for any."""

    kind = RefusalKind.CONFLICT
    words = UNASKED


class TooManyPending(StoreError):
    """The batch would exceed the maximum number of pending actions."""

    kind = RefusalKind.CONFLICT

    def __init__(self, most: int) -> None:
        super().__init__(
            f"At most {most} actions of a conversation may wait for a decision (MAX_PENDING_ACTIONS): "
            "none of these events was appended. Decide some first"
        )


class TooManyKinds(StoreError):
    """The batch would exceed the maximum number of pairs of kind and source."""

    kind = RefusalKind.MEMBER
    fault = "too_long"

    def __init__(self, most: int) -> None:
        super().__init__(
            f"The events of a conversation should have at most {most} pairs of kind and source (MAX_EVENT_KINDS): "
            "none of these was appended. Use kinds that it has, or raise the limit"
        )


class LogTooLong(StoreError):
    """The append would exceed the maximum size of a conversation's log."""

    kind = RefusalKind.TOO_LONG

    def __init__(self, most: int) -> None:
        super().__init__(
            f"A conversation's log is limited to {most} bytes in Redis (MAX_CONVERSATION_BYTES): none of this was "
            "appended. Fork the conversation at an earlier event to continue"
        )


class LogDamaged(StoreError):
    """Redis has another number of events than the conversation counts."""

    kind = RefusalKind.CONFLICT

    def __init__(self, conversation_id: str, found: int, counted: int) -> None:
        super().__init__(
            f"The conversation {conversation_id} has lost events: Redis has {found} of {counted}. "
            "Restore Redis from a backup, or delete the conversation"
        )


class StoreFull(StoreError, TemporaryRefusal):
    """Redis is nearly out of memory. Deletions are served, new data are refused.

    A supervisor retries, as for all of UNAVAILABLE, so that what was acknowledged waits for room.
    """

    kind = RefusalKind.NO_ROOM

    def __init__(self, used: int, most: int) -> None:
        super().__init__(
            f"Redis is nearly full: {used} of {most} bytes are in use (maxmemory; for the embedded store "
            "MAX_STORE_BYTES). Delete conversations, let them become cold, or raise the limit"
        )


class DiskFull(StoreError, TemporaryRefusal):
    """The disk of the embedded store is nearly full. Deletions are served, new data are refused.

    A supervisor retries, as for StoreFull.
    """

    kind = RefusalKind.NO_ROOM


class SandboxPostedTooMuch(StoreError):
    """The sandbox has posted its maximum number of bytes."""

    kind = RefusalKind.NO_ROOM

    def __init__(self, most: int) -> None:
        super().__init__(
            f"A sandbox may post {most} bytes in all (MAX_SANDBOX_BYTES): start another one, or raise the limit"
        )


class SandboxPostsTooFast(StoreError):
    """The sandbox has posted too many bytes within a window."""

    kind = RefusalKind.TOO_FAST

    def __init__(self, rate: str, seconds_left: int) -> None:
        super().__init__(f"A sandbox may post {rate} bytes (RATE_LIMIT_HOOK_BYTES): try again in {seconds_left} s")
        self.retry_after = seconds_left


class ReasonTooLong(StoreError):
    """The reason of the rejection is too long."""

    kind = RefusalKind.MEMBER
    member = "reason"

    def __init__(self, most: int) -> None:
        super().__init__(f"A reason should have at most {most} bytes of UTF-8 (MAX_REASON_BYTES)")


class StartTaskNotFound(StoreError):
    """The start task does not exist."""

    kind = RefusalKind.MISSING
    words = "Start task not found. GET /api/v1/app-conversations/start-tasks/search lists the start tasks"


class StartIsReady(StoreError):
    """The start has already finished."""

    kind = RefusalKind.CONFLICT

    def __init__(self, conversation_id: str) -> None:
        super().__init__(f"The start is READY, and can no longer be ended: delete its conversation {conversation_id}")


class SandboxNotFound(StoreError):
    """The sandbox does not exist."""

    kind = RefusalKind.MISSING
    words = "Sandbox not found. GET /api/v1/sandboxes/search lists the sandboxes"


class SandboxRefuses(StoreError):
    """The status of the sandbox does not allow this operation."""

    kind = RefusalKind.CONFLICT

    def __init__(self, verb: str, status: str) -> None:
        later = {"STARTING": "Try again shortly", "ERROR": "Read its log"}
        if verb not in ("pause", "resume"):
            later["PAUSED"] = "Resume it first"
        super().__init__(f"Cannot {verb}: the sandbox is {status}. {later.get(status, 'Read its status again')}")


class TooManySandboxes(StoreError):
    """The maximum number of sandboxes is running, and none is idle."""

    kind = RefusalKind.TAKEN
    retry_after = 2

    def __init__(self, number: int, most: int) -> None:
        self.taken = f"{number} of {most} sandboxes are running (MAX_SANDBOXES), and none of them makes room"
        super().__init__(f"No place is free: {self.taken}. Try again shortly, pause or delete one, or raise the limit")


class TooManyStopped(StoreError):
    """The maximum number of stopped sandboxes is kept."""

    kind = RefusalKind.FULL

    def __init__(self, number: int, most: int) -> None:
        super().__init__(
            f"Limit of {most} stopped sandboxes reached ({number} stopped): delete one first (MAX_STOPPED)"
        )


class TooManyConversations(StoreError):
    """The sandbox has the maximum number of conversations."""

    kind = RefusalKind.FULL

    def __init__(self, number: int, most: int) -> None:
        super().__init__(
            f"Limit of {most} conversations per sandbox reached ({number}, starting ones included): delete one first "
            "(MAX_CONVERSATIONS_PER_SANDBOX)"
        )


class TooManyStarts(StoreError):
    """The maximum number of app conversations is starting."""

    kind = RefusalKind.FULL

    def __init__(self, number: int, most: int) -> None:
        super().__init__(
            f"Limit of {most} concurrent starts reached ({number} under way): try again later (MAX_STARTS)"
        )


class NotDoneYet(StoreError):
    """The pause or deletion of the sandbox takes longer than the request waits. The supervisor continues it."""

    kind = RefusalKind.LATER

    def __init__(self, done: str, reason: str) -> None:
        super().__init__(f"The sandbox is not {done} yet; the supervisor continues. {reason}".strip())


class NoSupervisor(StoreError):
    """No supervisor has a recent heartbeat, so no sandbox can start."""

    kind = RefusalKind.LATER
    words = "No supervisor is running that could do this; try again shortly"


class HostSilent(NoSupervisor):
    """The host of a sandbox did not reply in time: it is busy, or its supervisor is not running."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"The host of the sandbox did not reply within {seconds:g} s: it is busy, or its supervisor is not "
            "running. Try again shortly"
        )


class ArchiveUnreadable(StoreError):
    """The uploaded body is not an archive, or is truncated."""

    kind = RefusalKind.UNREADABLE


class ArchiveRefused(StoreError):
    """The uploaded archive has a member that is not allowed."""

    kind = RefusalKind.MEMBER


class ArchiveTooLarge(StoreError):
    """The uploaded archive has too many bytes or members."""

    kind = RefusalKind.TOO_LONG


class ArchivesBusy(StoreError):
    """The host is packing or unpacking its maximum number of archives."""

    kind = RefusalKind.LATER


class ArchiveFailed(StoreError):
    """The archive cannot be packed, unpacked or sent completely."""

    kind = RefusalKind.LATER


class NotItsSandbox(StoreError):
    """The webhook is from another sandbox than the conversation's."""

    kind = RefusalKind.UNKNOWN
    words = "Authorization must be `Bearer` and the hook key of the conversation's sandbox"


class IdInUse(StoreError):
    """A conversation with this id exists."""

    kind = RefusalKind.CONFLICT
    words = "A conversation with this id already exists: use it, or choose another id"


class CopyEnded(StoreError):
    """The conversation was deleted during its fork or import."""

    kind = RefusalKind.CONFLICT
    words = "A DELETE of the new conversation's id has ended this copy. Copy it under another id"


class SecretsRefused(StoreError):
    """The server has no SECRET_KEY to seal secrets with."""

    kind = RefusalKind.MEMBER
    member = "secrets"
    words = "Secrets cannot be kept: the server has no SECRET_KEY. Its operator sets one"


class TooManySecrets(StoreError):
    """The conversation would have too many secrets, or too large ones. None of the request is kept."""

    kind = RefusalKind.MEMBER
    member = "secrets"
    words = (
        f"A conversation has at most {MOST_SECRETS} secrets, of {MOST_SECRETS_BYTES} bytes together: the request "
        "exceeds this, so none of them was stored. Remove some first"
    )


class NeedsApproval(StoreError):
    """A message or a run would decide pending actions, and its sender cannot decide them."""

    kind = RefusalKind.FORBIDDEN
    words = "Decide the pending actions first: this request would decide them, which needs a key with the scope approve"


class RightsChanged(StoreError):
    """A grant, an owner or a rule changed during the request."""

    kind = RefusalKind.BUSY
    words = "Rights, rules or the owner changed at this moment, and nothing was done: send the request again"


class Outdated(StoreError):
    """The agent has posted events since the change was prepared."""

    kind = RefusalKind.BUSY
    words = "The agent has posted events at this moment, and nothing was done: send the request again"


class HeldByQuorum(StoreError):
    """A run would approve actions that need several people."""

    kind = RefusalKind.CONFLICT
    words = "Several people must approve a pending action, and a run cannot: decide the action by itself"


class OwnerChanged(StoreError):
    """The conversation has another owner now."""

    kind = RefusalKind.CONFLICT
    words = "The conversation has another owner by now: read it again"


class KeyUnreadable(StoreError):
    """The keys of the sandbox were sealed with another SECRET_KEY."""

    kind = RefusalKind.UNSERVED

    def __init__(self, sandbox_id: str) -> None:
        super().__init__(
            f"The keys of the sandbox {sandbox_id} cannot be read: another SECRET_KEY has sealed them. "
            "Append that key to SECRET_KEY, after a comma"
        )


class TooManyFollowers(StoreError):
    """The process has the maximum number of followers."""

    kind = RefusalKind.LATER
    words = "Too many connections follow conversations here; try again shortly"


class FellBehind(StoreError):
    """The follower was too slow, and events were dropped from the ring. The log still has them."""

    kind = RefusalKind.LATER
    words = "Too slow: connect again from the last event received"


class NewerData(StoreError):
    """The stored data have a newer version than this server knows."""

    kind = RefusalKind.UNSERVED

    def __init__(self, found: str, known: int) -> None:
        """found: value of the key `data_version`."""
        if found.isascii() and found.isdecimal() and int(found) > known:
            words = f"The stored data have version {found}, but this server knows version {known}: run a newer release"
        else:
            words = (
                f"The key data_version of Redis has {beginning(found, 40)!r}, which no release of this server "
                "writes: another program keeps its data there. Set REDIS_URL to a Redis that this server has for itself"
            )
        super().__init__(words)


class Stopping(StoreError):
    """The process is stopping. Reconnect."""

    kind = RefusalKind.LATER
    words = "The server is stopping: connect again"


#: MISCONF: Redis cannot write its file. BUSY: a script runs for too long. NOREPLICAS: too few replicas are connected.
#: redis-py has no classes for these codes; its parser takes the class of an error from this table.
DefaultParser.EXCEPTION_CLASSES.update(dict.fromkeys(("MISCONF", "BUSY", "NOREPLICAS"), TemporaryRefusal))


#: Redis cannot be reached, does not answer in time, or refuses for now. A request gets 503; a supervisor retries.
UNAVAILABLE: tuple[type[Exception], ...] = (
    redis.exceptions.ConnectionError,  # also: LOADING, authentication, no free connection in the pool
    redis.exceptions.TimeoutError,
    redis.exceptions.InvalidResponse,  # the peer speaks another protocol
    redis.exceptions.ReadOnlyError,
    REDIS_FULL,
    TemporaryRefusal,
    redis.exceptions.ExecAbortError,  # a transaction that Redis refused as a whole, at its EXEC
    redis.exceptions.ClusterError,  # also: the cluster is down, or a command was redirected too often
    redis.exceptions.RedisClusterException,  # no node of the cluster is reachable, or a slot has no node
    redis.exceptions.AskError,  # the slot is moving, and a transaction needs all of it on one node
    redis.exceptions.TryAgainError,
)

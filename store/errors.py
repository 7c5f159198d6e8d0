"""The errors of the store.

Each has its kind, its status and its words where it stands (`core/refused.py`); beside these stand those of the modules
that raise them.

REDIS_FULL, FULL       the error of redis-py where Redis takes nothing more, and what a client is told of it
UNREADABLE             errors of Python where a record of a queue is not what its writers write
UNAVAILABLE            errors of redis-py while Redis cannot serve a request; the request itself is right
"""

import redis.exceptions
from redis.connection import DefaultParser

from core.bounds import MOST_SECRETS, MOST_SECRETS_BYTES
from core.cuts import beginning
from core.refused import Kind, Refused
from core.wire import UNASKED

#: what reading a record raises that is not as this release writes it; who claims it from a queue gives it up
UNREADABLE = (ValueError, KeyError, TypeError)


#: Redis has reached its `maxmemory`: requests that need no more room are served. A request gets 507.
REDIS_FULL = redis.exceptions.OutOfMemoryError

#: what a client is told of it
FULL = "Redis is full, and takes nothing more (maxmemory; of the embedded store MAX_STORE_BYTES)"


class StoreError(Refused):
    """A request that the store cannot serve; the message is for the client."""


class UnknownReply(Exception):
    """A script has replied what its head does not name."""

    def __init__(self, script: str, reply: object) -> None:
        super().__init__(f"The script {script} replied {reply!r}, which its head does not name")


class TemporaryRefusal(redis.exceptions.ResponseError):
    """Redis refuses a command for now; the command itself is right."""


class ConversationNotFound(StoreError):
    """There is no conversation of that id."""

    kind = Kind.MISSING
    words = "Conversation not found. GET /api/conversations/search lists those that are there"


class NotStartedHere(ConversationNotFound):
    """A sandbox posts about a conversation that no start task has put into it."""

    words = (
        "Conversation not found: a sandbox posts to the conversations that were started in it, and may report "
        "children of those. Start it in this sandbox, or name its parent"
    )


class EventNotFound(StoreError):
    """The conversation has no event of that id."""

    kind = Kind.MISSING
    words = "Event not found. GET /api/conversations/ID/events/search lists those that are there"


class EventsTooLong(StoreError):
    """The events of a batch of ids have more bytes together than one response may have."""

    kind = Kind.MEMBER
    place = "query"
    member = "id"
    fault = "too_long"

    def __init__(self, most: int) -> None:
        super().__init__(f"These events have more than {most} bytes together: ask for fewer ids at once")


class UnknownCursor(StoreError):
    """The cursor of a page names an event that the conversation does not have."""

    kind = Kind.MEMBER
    place = "query"
    member = "page_id"
    words = "Unknown cursor: page_id must be a next_page_id of this conversation"


class BeyondTheEnd(StoreError):
    """A follower's cursor lies after the last event: the client has followed an earlier conversation of that id."""

    kind = Kind.MEMBER
    place = "query"
    member = "after_seq"

    def __init__(self, last: int) -> None:
        super().__init__(f"The last event of this conversation has seq {last}: follow from there, or from 0")


class ActionsWait(StoreError):
    """A message or a run that was to decide nothing would decide pending actions."""

    kind = Kind.CONFLICT
    words = (
        "Not sent: an action waits for a decision, and none was to be made (`rejects` or `accepts` is false). "
        "Decide it first: GET /api/v1/pending-actions lists it"
    )


class IllegalMove(StoreError):
    """The status of the conversation refuses a verb."""

    kind = Kind.CONFLICT

    def __init__(self, verb: str, status: str) -> None:
        later = {"running": "Wait until it stops", "waiting_for_confirmation": "Decide what waits first"}
        super().__init__(f"Cannot {verb}: the conversation is {status}. {later.get(status, 'Send a message instead')}")


class NobodyRuns(StoreError):
    """A message or a run for a copy without a sandbox, to which no agent has posted."""

    kind = Kind.CONFLICT
    words = (
        "No agent runs this conversation: it is a copy without a sandbox. An agent of your own takes it over with its "
        "first event to POST /api/v1/webhooks/events/{conversation_id}. Or start a new conversation: "
        "POST /api/v1/app-conversations"
    )


class RunsInTerminal(StoreError):
    """A message, a run, a pause or an interrupt for an agent that runs in a terminal outside of sandboxes."""

    kind = Kind.CONFLICT
    words = (
        "The agent of this conversation runs in a terminal, and takes messages there alone: write to it at its "
        "terminal. What it asks for is decided here: GET /api/v1/pending-actions lists it"
    )


class ActsUnasked(StoreError):
    """A policy would hold the actions of an agent that waits for nobody."""

    kind = Kind.CONFLICT
    words = UNASKED


class TooManyPending(StoreError):
    """A batch would make more actions wait than the settings allow."""

    kind = Kind.CONFLICT

    def __init__(self, most: int) -> None:
        super().__init__(
            f"At most {most} actions of a conversation may wait for a decision (MAX_PENDING_ACTIONS): "
            "none of these events was appended. Decide some first"
        )


class TooManyKinds(StoreError):
    """A batch would bring more pairs of kind and source than the settings allow."""

    kind = Kind.MEMBER
    fault = "too_long"

    def __init__(self, most: int) -> None:
        super().__init__(
            f"The events of a conversation should have at most {most} pairs of kind and source (MAX_EVENT_KINDS): "
            "none of these was appended. Use kinds that it has, or raise the limit"
        )


class LogTooLong(StoreError):
    """An append would make the log of a conversation longer than the settings allow."""

    kind = Kind.TOO_LONG

    def __init__(self, most: int) -> None:
        super().__init__(
            f"A conversation's log is limited to {most} bytes in Redis (MAX_CONVERSATION_BYTES): none of this was "
            "appended. Fork the conversation at an earlier event to continue"
        )


class LogDamaged(StoreError):
    """Redis has fewer or more events of a conversation than the conversation counts."""

    kind = Kind.CONFLICT

    def __init__(self, conversation_id: str, found: int, counted: int) -> None:
        super().__init__(
            f"The conversation {conversation_id} has lost events: Redis has {found} of {counted}. "
            "Restore Redis from a backup, or delete the conversation"
        )


class StoreFull(StoreError, TemporaryRefusal):
    """Redis has nearly all the memory that it may take: deletions are served, and new data are refused.

    A supervisor retries, as it does for all of UNAVAILABLE: what was acknowledged waits for room.
    """

    kind = Kind.NO_ROOM

    def __init__(self, used: int, most: int) -> None:
        super().__init__(
            f"Redis is nearly full: {used} of {most} bytes are in use (maxmemory; for the embedded store "
            "MAX_STORE_BYTES). Delete conversations, let them become cold, or raise the limit"
        )


class DiskFull(StoreError, TemporaryRefusal):
    """The disk of the embedded store is nearly full: deletions are served, and new data are refused.

    A supervisor retries, as it does at StoreFull.
    """

    kind = Kind.NO_ROOM


class SandboxPostedTooMuch(StoreError):
    """A sandbox has posted as many bytes as it may in all."""

    kind = Kind.NO_ROOM

    def __init__(self, most: int) -> None:
        super().__init__(
            f"A sandbox may post {most} bytes in all (MAX_SANDBOX_BYTES): start another one, or raise the limit"
        )


class SandboxPostsTooFast(StoreError):
    """A sandbox has posted as many bytes as it may within a while."""

    kind = Kind.TOO_FAST

    def __init__(self, rate: str, seconds_left: int) -> None:
        super().__init__(f"A sandbox may post {rate} bytes (RATE_LIMIT_HOOK_BYTES): try again in {seconds_left} s")
        self.retry_after = seconds_left


class ReasonTooLong(StoreError):
    """The reason of a rejection is longer than the settings allow."""

    kind = Kind.MEMBER
    member = "reason"

    def __init__(self, most: int) -> None:
        super().__init__(f"A reason should have at most {most} bytes of UTF-8 (MAX_REASON_BYTES)")


class StartTaskNotFound(StoreError):
    """There is no start task of that id."""

    kind = Kind.MISSING
    words = "Start task not found. GET /api/v1/app-conversations/start-tasks/search lists those that are there"


class StartIsReady(StoreError):
    """A start that is to be ended has come to its conversation."""

    kind = Kind.CONFLICT

    def __init__(self, conversation_id: str) -> None:
        super().__init__(f"The start is READY, so it can be ended no more: delete its conversation {conversation_id}")


class SandboxNotFound(StoreError):
    """There is no sandbox of that id."""

    kind = Kind.MISSING
    words = "Sandbox not found. GET /api/v1/sandboxes/search lists those that are there"


class SandboxRefuses(StoreError):
    """The status of the sandbox refuses a verb."""

    kind = Kind.CONFLICT

    def __init__(self, verb: str, status: str) -> None:
        later = {"STARTING": "Try again shortly", "ERROR": "Read its log"}
        if verb not in ("pause", "resume"):
            later["PAUSED"] = "Resume it first"
        super().__init__(f"Cannot {verb}: the sandbox is {status}. {later.get(status, 'Look at its status again')}")


class TooManySandboxes(StoreError):
    """The number of running sandboxes has reached its cap, and none of them makes room."""

    kind = Kind.TAKEN
    retry_after = 2

    def __init__(self, number: int, most: int) -> None:
        self.taken = f"{number} of {most} sandboxes are running (MAX_SANDBOXES), and none of them makes room"
        super().__init__(f"No place is free: {self.taken}. Try again shortly, pause or delete one, or raise the limit")


class TooManyStopped(StoreError):
    """The number of sandboxes that are kept and do not run has reached its cap."""

    kind = Kind.FULL

    def __init__(self, number: int, most: int) -> None:
        super().__init__(
            f"Limit of {most} stopped sandboxes reached ({number} stopped): delete one first (MAX_STOPPED)"
        )


class TooManyConversations(StoreError):
    """A sandbox has as many conversations as the settings allow."""

    kind = Kind.FULL

    def __init__(self, number: int, most: int) -> None:
        super().__init__(
            f"Limit of {most} conversations per sandbox reached ({number}, starting ones included): delete one first "
            "(MAX_CONVERSATIONS_PER_SANDBOX)"
        )


class TooManyStarts(StoreError):
    """As many app conversations start as the settings allow."""

    kind = Kind.FULL

    def __init__(self, number: int, most: int) -> None:
        super().__init__(
            f"Limit of {most} concurrent starts reached ({number} under way): try again later (MAX_STARTS)"
        )


class NotDoneYet(StoreError):
    """A pause or a deletion of a sandbox takes longer than a request waits; the supervisor continues it."""

    kind = Kind.LATER

    def __init__(self, done: str, reason: str) -> None:
        super().__init__(f"The sandbox is not {done} yet; the supervisor continues. {reason}".strip())


class NoSupervisor(StoreError):
    """No supervisor has a recent heartbeat, so no sandbox would start."""

    kind = Kind.LATER
    words = "No supervisor is running that could do this; try again shortly"


class HostSilent(NoSupervisor):
    """The host of a sandbox did not reply in time: it is busy, or its supervisor is not running."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"The host of the sandbox did not reply within {seconds:g} s: it is busy, or its supervisor is not "
            "running. Try again shortly"
        )


class ArchiveUnreadable(StoreError):
    """An uploaded body is not an archive, or not a whole one."""

    kind = Kind.UNREADABLE


class ArchiveRefused(StoreError):
    """An uploaded archive has a member that is refused."""

    kind = Kind.MEMBER


class ArchiveTooLarge(StoreError):
    """An uploaded archive has too many bytes or too many members."""

    kind = Kind.TOO_LONG


class ArchivesBusy(StoreError):
    """The host already packs or unpacks as many archives as it may."""

    kind = Kind.LATER


class ArchiveFailed(StoreError):
    """An archive cannot be packed, unpacked or sent to its end."""

    kind = Kind.LATER


class NotItsSandbox(StoreError):
    """The sandbox that posts is not the sandbox of the conversation."""

    kind = Kind.UNKNOWN
    words = "Authorization must be `Bearer` and the hook key of the conversation's sandbox"


class IdInUse(StoreError):
    """A conversation of that id exists."""

    kind = Kind.CONFLICT
    words = "A conversation with this id already exists: use it, or choose another id"


class CopyEnded(StoreError):
    """A fork or an import was under way when its id was deleted."""

    kind = Kind.CONFLICT
    words = "A DELETE of the new conversation's id has ended this copy: nothing comes of it. Copy it under another id"


class SecretsRefused(StoreError):
    """There is no key to seal secrets with."""

    kind = Kind.MEMBER
    member = "secrets"
    words = "Secrets cannot be kept: the server has no SECRET_KEY. Its operator sets one"


class TooManySecrets(StoreError):
    """A conversation would have more secrets, or longer ones, than it may; none of those that came is kept."""

    kind = Kind.MEMBER
    member = "secrets"
    words = (
        f"A conversation has at most {MOST_SECRETS} secrets, of {MOST_SECRETS_BYTES} bytes together: with these it "
        "would have more, so none of them was kept. Remove some first"
    )


class NeedsApproval(StoreError):
    """A message or a run would answer pending actions, and its sender may not answer them."""

    kind = Kind.FORBIDDEN
    words = "Decide the pending actions first: this would decide them, which needs a key with the scope approve"


class RightsChanged(StoreError):
    """A right, an owner or a rule has changed while it was used."""

    kind = Kind.BUSY
    words = "Rights, rules or the owner changed at this moment, and nothing was done: send the request again"


class HeldByQuorum(StoreError):
    """A run would approve what several people must."""

    kind = Kind.CONFLICT
    words = "Several people must approve an action that waits: each decides it by itself, and no run does"


class OwnerChanged(StoreError):
    """Another owns the conversation by now."""

    kind = Kind.CONFLICT
    words = "The conversation has another owner by now: read it again"


class KeyUnreadable(StoreError):
    """The keys of a sandbox were sealed with another SECRET_KEY than this process has."""

    kind = Kind.UNSERVED

    def __init__(self, sandbox_id: str) -> None:
        super().__init__(
            f"The keys of the sandbox {sandbox_id} cannot be read: another SECRET_KEY has sealed them. "
            "Append that key to SECRET_KEY, after a comma"
        )


class TooManyFollowers(StoreError):
    """This process has as many followers as its settings allow."""

    kind = Kind.LATER
    words = "Too many connections follow conversations here; try again shortly"


class FellBehind(StoreError):
    """A follower took no events for so long that the ring dropped them; the log still has them."""

    kind = Kind.LATER
    words = "Too slow: connect again from the last event received"


class NewerData(StoreError):
    """The stored data are of a version that this code does not know."""

    kind = Kind.UNSERVED

    def __init__(self, found: str, known: int) -> None:
        """found: the key `data_version`."""
        if found.isascii() and found.isdecimal() and int(found) > known:
            words = f"The stored data have version {found}, but this server knows version {known}: run a newer release"
        else:
            words = (
                f"The key data_version of Redis has {beginning(found, 40)!r}, which no release of this server "
                "writes: another program keeps its data there. Set REDIS_URL to a Redis that this server has for itself"
            )
        super().__init__(words)


class Stopping(StoreError):
    """This process ends: its followers must connect again."""

    kind = Kind.LATER
    words = "The server is stopping: connect again"


#: MISCONF: Redis cannot write its file. BUSY: a script runs for too long. NOREPLICAS: too few replicas are connected.
#: redis-py gives these codes no class of their own; its parser takes the class of an error from this table.
DefaultParser.EXCEPTION_CLASSES.update(dict.fromkeys(("MISCONF", "BUSY", "NOREPLICAS"), TemporaryRefusal))


#: Redis cannot be reached, does not answer in time, or refuses for now. A request gets 503; a supervisor retries.
UNAVAILABLE: tuple[type[Exception], ...] = (
    redis.exceptions.ConnectionError,  # also: LOADING, authentication, no free connection in the pool
    redis.exceptions.TimeoutError,
    redis.exceptions.InvalidResponse,  # what answers speaks another protocol
    redis.exceptions.ReadOnlyError,
    REDIS_FULL,
    TemporaryRefusal,
    redis.exceptions.ExecAbortError,  # a transaction that Redis refused as a whole, at its EXEC
    redis.exceptions.ClusterError,  # also: the cluster is down, or a command was sent from node to node too often
    redis.exceptions.RedisClusterException,  # no node of the cluster is reached, or a slot has no node
    redis.exceptions.AskError,  # the slot moves to another node, and a transaction needs all of it on one
    redis.exceptions.TryAgainError,
)

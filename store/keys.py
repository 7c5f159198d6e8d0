"""The names of keys in Redis. `keys.toml` lists all of them, with type, content and limit; docs/data.md shows it."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import ClassVar
from urllib.parse import quote

from core.wire import ConversationId

#: Keys of the data version, and of a word that a server has sealed.
DATA_VERSION, SEAL_CHECK = "data_version", "seal_check"

#: Version of the data that this code reads and writes, see `link/health.py`.
VERSION = 1

#: Prefixes of fields of a conversation's hash: members of app conversations, and members that an agent server reports.
APP_FIELD, REPORTED_FIELD = "app.", "told."

#: Maximum number of stored changes of a list (`store/scripts/_changes.lua`) and of the inbox. The oldest are dropped.
MOST_CHANGES = 100_000

#: Number of seqs per member of `conv:{ID}:peaks`, which `store/scripts/_log.lua` maintains.
PEAK_SEQS = 1000

#: Value in `keys.toml` for keys that are deleted with their conversation.
WITH_CONVERSATION = "with the conversation"

#: Any kind or source, in the scripts. No escaped name equals it.
ANY = "*"


@dataclass(frozen=True, slots=True)
class ConversationKeys:
    """The names of a conversation's keys; with a fork's id, of its copy."""

    id: ConversationId
    fork: str = ""

    #: Pattern of the roots of all conversations.
    roots: ClassVar[str] = f"conv:{{{'?' * 36}}}"

    @staticmethod
    def ending() -> list[str]:
        """Return the suffixes after the root of keys that are deleted with their conversation, from `keys.toml`.

        Names with words in capitals are omitted, because the script knows the values of these words.
        """
        groups = tomllib.loads((files("store") / "keys.toml").read_text())["group"]
        of_group: dict[str, dict[str, str]] = next(one["keys"] for one in groups if "conv:{ID}" in one["keys"])
        ending = (name for name, of in of_group.items() if of.get("ends") == WITH_CONVERSATION)
        return [rest for rest in (name.removeprefix("conv:{ID}") for name in ending) if rest == rest.lower()]

    @property
    def root(self) -> str:
        return f"conv:{{{self.id}}}" + (f":fork:{self.fork}" if self.fork else "")

    @property
    def log(self) -> str:
        return f"{self.root}:log"

    @property
    def pairs(self) -> str:
        return f"{self.root}:pairs"

    @property
    def peaks(self) -> str:
        return f"{self.root}:peaks"

    @property
    def pending(self) -> str:
        return f"{self.root}:pending"

    def at(self, pair: str) -> str:
        return f"{self.root}:at:{pair}"

    @property
    def echoes(self) -> str:
        return f"{self.root}:echoes"

    @property
    def secrets(self) -> str:
        return f"{self.root}:secrets"

    @property
    def start(self) -> str:
        return f"{self.root}:start"

    @property
    def signal(self) -> str:
        return f"{self.root}:signal"

    def text(self, chunk: int) -> str:
        return f"{self.root}:text:{chunk}"


class ListingKeys:
    """The names of the listing's keys, which share a slot."""

    root = "conversations:{all}"

    @classmethod
    def index(cls, by: str, among: str | None = None) -> str:
        """Return the order by `created`, `updated` or `title`, of a status, of a group or of all."""
        return f"{cls.root}:{by}:{among}" if among else f"{cls.root}:{by}"


class SandboxKeys:
    """The names of all sandboxes' keys, which share a slot, so that one script can decide about all of them."""

    root = "{sandboxes}"
    created = f"{root}:created"
    by_key = f"{root}:keys"
    hosts = f"{root}:hosts"
    isolation = f"{root}:isolation"
    deliveries = f"{root}:deliveries"
    asking = f"{root}:asking"
    unnoted = f"{root}:unnoted"
    destinations = f"{root}:destinations"
    destination_rules = f"{root}:destination_rules"
    destination_uses = f"{root}:destination_uses"
    models = f"{root}:models"
    workspaces = f"{root}:workspaces"
    signal = f"{root}:signal"

    @classmethod
    def created_in(cls, index: str) -> str:
        """Return the order of creation for a status, for a spec (`*:SPEC`) or for both (`STATUS:SPEC`)."""
        return f"{cls.created}:{index}"

    @classmethod
    def box(cls, sandbox_id: str) -> str:
        return f"{cls.root}:box:{sandbox_id}"

    @classmethod
    def log(cls, sandbox_id: str) -> str:
        return f"{cls.root}:log:{sandbox_id}"

    @classmethod
    def places(cls, sandbox_id: str) -> str:
        return f"{cls.root}:places:{sandbox_id}"

    @classmethod
    def reached(cls, sandbox_id: str) -> str:
        return f"{cls.root}:reached:{sandbox_id}"

    @classmethod
    def spent(cls, sandbox_id: str) -> str:
        return f"{cls.root}:spent:{sandbox_id}"

    @classmethod
    def spent_on(cls, day: int) -> str:
        return f"{cls.root}:spent_on:{day}"

    @classmethod
    def gone(cls, sandbox_id: str) -> str:
        return f"{cls.root}:gone:{sandbox_id}"

    @classmethod
    def of_host(cls, host: str) -> str:
        return f"{cls.root}:host:{host}"

    @classmethod
    def removals(cls, host: str) -> str:
        return f"{cls.root}:removals:{host}"

    @classmethod
    def reply(cls, request_id: str) -> str:
        return f"{cls.root}:reply:{request_id}"


class StartKeys:
    """The names of all start tasks' keys, which share a slot."""

    root = "{starts}"
    due = f"{root}:due"
    waiting = f"{root}:waiting"
    failed = f"{root}:failed"
    signal = f"{root}:signal"

    @classmethod
    def task(cls, start_id: str) -> str:
        return f"{cls.root}:task:{start_id}"

    @classmethod
    def body(cls, start_id: str) -> str:
        return f"{cls.root}:body:{start_id}"

    @classmethod
    def created(cls, conversation_id: ConversationId | None = None) -> str:
        """Return the order of creation, of all start tasks or of one conversation's."""
        return f"{cls.root}:created:{conversation_id}" if conversation_id else f"{cls.root}:created"

    @classmethod
    def updated(cls, conversation_id: ConversationId) -> str:
        """Return the order of the last change of one conversation's start tasks."""
        return f"{cls.root}:updated:{conversation_id}"


class AccessRoot:
    """The common root of access keys and tickets, in one slot."""

    root = "{access}"
    grants_version = f"{root}:grants_version"
    people = f"{root}:people"


class IdempotencyKeys:
    """The names of a client's records of Idempotency-Keys, which share a slot."""

    @staticmethod
    def root(client: str) -> str:
        return f"once:{{{client}}}"


def audit_key(keys: ConversationKeys) -> str:
    """Return the audit of a conversation, in its slot. It outlives the conversation."""
    return f"{keys.root}:audit"


class ApprovalKeys:
    """The names of the keys for all approvals, which share a slot."""

    root = "{approvals}"
    waiting = f"{root}:waiting"
    items = f"{root}:items"
    noted = f"{root}:noted"
    due = f"{root}:due"
    checks = f"{root}:checks"
    sweep = f"{root}:sweep"
    audit = f"{root}:audit"
    stream = f"{root}:stream"
    signal = f"{root}:signal"
    outbox = f"{root}:outbox"

    @classmethod
    def of(cls, conversation_id: str) -> str:
        """Return the ids of the pending actions of a conversation."""
        return f"{cls.root}:of:{conversation_id}"


class RuleKeys:
    """The names of the approval rules' keys, which share a slot."""

    root = "{rules}"
    version = f"{root}:version"
    ended = f"{root}:ended"

    @classmethod
    def rehearsal(cls, rehearsal_id: str) -> str:
        return f"{cls.root}:rehearsal:{rehearsal_id}"


class AskingKeys:
    """The root for the open requests of a key with the scope `ask`."""

    @staticmethod
    def root(owner: str) -> str:
        return f"asking:{{{quote(owner, safe='')}}}"


class NotifyKeys:
    """The common root of keys for notifications, in one slot."""

    root = "{notify}"

    @classmethod
    def state(cls, target_id: str) -> str:
        return f"{cls.root}:state:{target_id}"

    #: Private key by which push services identify this server.
    push_key = f"{root}:push_key"

    #: Ids of the devices, with their expiry as score.
    devices = f"{root}:devices"

    @classmethod
    def device(cls, device_id: str) -> str:
        return f"{cls.root}:device:{device_id}"


#: The outboxes by their subjects, each in the slot of its subject.
OUTBOXES = {
    "approvals": ApprovalKeys.outbox,
    "conversations": f"{ListingKeys.root}:outbox",
    "sandboxes": f"{SandboxKeys.root}:outbox",
}


def outbox_dropped(outbox: str) -> str:
    """Return the number of entries that an outbox dropped."""
    return f"{outbox}:dropped"


def outbox_wanted(outbox: str) -> str:
    """Return the key that exists while a supervisor has targets to notify."""
    return f"{outbox}:wanted"


def changed_channel(root: str) -> str:
    return f"{root}:changed"


def claimed_key(start_id: str) -> str:
    """Return the key of the warm sandbox that a start task has claimed."""
    return f"{{sandboxes}}:claimed:{start_id}"


class ColdKeys:
    """The names of the register of objects, and suffixes of keys that are moved, after a conversation's root."""

    root = "{cold}"
    objects = f"{root}:objects"

    #: Suffixes of the keys with the ids of a conversation's events.
    ids = (":seqs", ":ids")

    @staticmethod
    def moved(last_chunk: int, pairs: Iterable[str]) -> set[str]:
        """Return the suffixes of the keys that a log may have.

        last_chunk: number of its last chunk of text. pairs: its pairs of kind and source.
        """
        texts = (f":text:{number}" for number in range(last_chunk + 1))
        return {":log", ":peaks", *ColdKeys.ids, *(f":at:{pair}" for pair in pairs), *texts}

    @staticmethod
    def frame(root: str, name: str, text: str) -> str:
        """Return the staged frame of a text chunk. root: of the conversation. text: suffix of the chunk."""
        return f"{root}:freeze:{name}{text}"

    @staticmethod
    def back(root: str, name: str) -> str:
        """Return the number of pieces that a thaw has restored."""
        return f"{root}:thaw:{name}"

    @staticmethod
    def turn(task: str) -> str:
        """Return the claim of a task that one supervisor does at a time."""
        return f"{ColdKeys.root}:turn:{task}"


class ClientKeys:
    """The root of the entries that a key stores for its clients."""

    @staticmethod
    def root(owner: str) -> str:
        return f"client:{{{quote(owner, safe='')}}}"


def rate_key(name: str) -> str:
    """Return the counter of a window, by its client and its limit."""
    return f"rate:{{{name}}}"


def chat_root(digest: str) -> str:
    """Return the conversation that gave the last answer of a chat, by the digest of the chat."""
    return f"chat:{{{digest}}}"


def followers_channel(process: str) -> str:
    """Return the channel from a process to its own subscriber."""
    return f"follower:{process}"


@lru_cache(maxsize=4096)
def escaped(name: str) -> str:
    """Escape a kind or source for a key: without `:`, braces, `*` or bytes outside ASCII."""
    return quote(name, safe="")


def pair(kind: str, source: str) -> str:
    """Return the name of an event's sorted set, after the prefix `conv:{ID}:at:`."""
    return f"{escaped(kind)}:{escaped(source)}"

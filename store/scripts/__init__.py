"""Loads the Lua scripts beside this file: one verb per file, the stem is its name.

A file whose name begins with an underscore is shared code. A script names it in a line
`-- include: _log.lua`, which is replaced by that file's text. Every other script opens with its
contract: purpose, KEYS, ARGV, Returns, Cost, Idempotent (`tests/store/test_scripts.py` reads them).

A script that names a key of a log is guarded: where the log lies in an object (`store/cold.py`) it writes nothing and
replies with the error COLD. Its caller here thaws the conversation, and calls again.
"""

import re
from collections.abc import Callable
from hashlib import sha1
from importlib.resources import files
from typing import Any, Protocol

from redis import Redis
from redis.connection import DefaultParser
from redis.exceptions import NoScriptError, ResponseError

from store.cluster import LazyCluster
from store.durability import AS_REDIS, Durability

#: scripts whose writes no response acknowledges: they are not proven, so that reads go on while no write is kept
UNPROVEN = {
    # uses and hits that are noted in passing, and what a read finds lost
    *("count_hit", "find_access_key", "open_sandbox", "use_sandbox"),
    *("read_sandboxes", "page_sandboxes", "read_start_tasks", "page_start_tasks"),
    # leases: they end by themselves, and what they are of is claimed again
    *("beat_host", "release_host", "renew_delivery", "renew_notification", "renew_start_task", "claim_sweep"),
    *("check_sandbox", "claim_checks", "close_check", "claim_idempotency_key", "end_idempotency_claim"),
    # chunks of archives, which neither the file of Redis nor its replicas get
    *("open_transfer", "send_chunk", "take_chunk", "close_transfer"),
    # what nobody has seen, and what ends by itself
    "drop_copy",
    # where a log lies, which no client sees: what is lost of it is done again
    *("freeze_log", "thaw_log", "keep_warm", "note_objects", "forget_objects"),
}

#: WAIT is about the last write of its connection, and a repeat may write nothing: the mark is a write, gone at once.
_MARKED = """local function act()
{}
end
local reply = act()
redis.call('SET', KEYS[1] .. ':mark', '')
redis.call('DEL', KEYS[1] .. ':mark')
return reply
"""

#: A script joins the names of its keys from its root, so Redis cannot check them first. While their slot moves, some
#: are on one node and some on another: the script would find those absent, or end after half of its writes. Keys that
#: no node has are refused by both nodes while their slot moves, so the script ends before it has done anything.
_IN_A_CLUSTER = """do
  local found = redis.pcall('EXISTS', KEYS[1] .. ':no', KEYS[1] .. ':nor')
  if type(found) == 'table' then return redis.error_reply('TRYAGAIN the slot moves to another node: ' .. found.err) end
end
"""

_READS = re.compile(r"^-- Idempotent  reads only$", re.MULTILINE)

#: what a log consists of: the keys below a conversation's root that a freezing moves
_OF_A_LOG = re.compile(r"':(?:(?:log|seqs|ids|peaks)'|(?:at|text):)")

#: scripts that name such a key, and that a cold conversation needs no guard in
UNGUARDED = {
    # have guards of their own: a count of all events, a follower that has them all and the pause of a run need no log
    *("count_events", "read_log", "interrupt_conversation"),
    # know cold conversations
    *("plan_freeze", "freeze_log", "thaw_log", "delete_conversation", "pack_ids", "pack_events"),
    *("copy_events", "drop_copy"),  # of copies, which are never cold
    *("create_conversation", "adopt_fork"),  # write only where no conversation is
    *("list_pending", "list_decisions", "read_approvals", "drop_actions"),  # of open actions, which stay
}

_GUARD = """local cold = redis.call('HGET', KEYS[1], 'cold')
if cold then return redis.error_reply('COLD ' .. cold) end
"""

#: thaws of one call: a conversation that became cold again each time would be a fault of the sweep
_MOST_THAWS = 3

_INCLUDE = re.compile(r"^-- include: (_\w+\.lua)\n", re.MULTILINE)


class IsCold(ResponseError):
    """The error COLD: a script needs a log that lies in an object."""


DefaultParser.EXCEPTION_CLASSES["COLD"] = IsCold


class Script(Protocol):
    """A loaded script that replies with data, as Redis gives it: text as bytes, None where Lua returns false."""

    def __call__(self, keys: list[str], args: list[Any]) -> Any: ...


class _LoadedScript:
    """A script that is called by its hash: as redis-py's own, without 4 µs of each call."""

    def __init__(self, redis: "Redis", text: str, options: dict[str, Any], thaw: Callable[[str], None]) -> None:
        """options: of each call, for its connection. thaw: brings back the log of a root's conversation."""
        self._redis = redis
        self._text = text.encode()
        self._hash = sha1(self._text, usedforsecurity=False).hexdigest()
        self._options = options
        self._thaw = thaw

    def __call__(self, keys: list[str], args: list[Any]) -> Any:
        command = ("EVALSHA", self._hash, len(keys), *keys, *args)
        for _ in range(_MOST_THAWS):
            try:
                return self._send(command)
            except IsCold:
                self._thaw(keys[0])
        return self._send(command)

    def _send(self, command: tuple[Any, ...]) -> Any:
        try:
            return self._redis.execute_command(*command, **self._options)
        except NoScriptError:
            self._redis.script_load(self._text)
            return self._redis.execute_command(*command, **self._options)


class DecidingScript:
    """A loaded script that replies with one of the outcomes which its head names, and with the data of that outcome."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def __call__(self, keys: list[str], args: list[Any]) -> tuple[Any, ...] | None:
        """The outcome as text, then numbers and texts. None where Lua returns false: the subject does not exist."""
        reply = self._script(keys, args)
        if reply is None:
            return None
        words = reply if isinstance(reply, list) else [reply]
        return tuple(word.decode() if isinstance(word, bytes) else word for word in words)


def sources() -> dict[str, str]:
    """Text of every callable script by name, includes in place."""
    folder = files(__name__)
    texts = {entry.name: entry.read_text() for entry in folder.iterdir() if entry.name.endswith(".lua")}
    return {
        name.removesuffix(".lua"): _included(text, texts) for name, text in texts.items() if not name.startswith("_")
    }


def needs_log(name: str, text: str) -> bool:
    """Whether a script must find the log of its conversation in Redis."""
    return name not in UNGUARDED and _OF_A_LOG.search(text) is not None


def is_acknowledged(name: str, text: str) -> bool:
    """Whether a response says that what the script writes has happened."""
    return name not in UNPROVEN and not _READS.search(text)


def _included(text: str, texts: dict[str, str]) -> str:
    """A text with the texts that it names in their places, and with those that they name."""
    return _INCLUDE.sub(lambda match: _included(texts[match[1]], texts), text)


class Scripts:
    """Every script as an attribute, sent once per server and called by its hash.

    The annotation of a script says how its reply is read: here, and nowhere else.
    """

    append_events: DecidingScript
    expect_echoes: Script
    forget_echo: Script
    interrupt_conversation: DecidingScript
    reopen_actions: Script
    drop_actions: Script
    note_recovery: Script
    note_comparison: Script
    note_settled: Script
    send_message: DecidingScript
    count_events: Script
    count_over_time: Script
    page_events: Script
    page_audit: Script
    locate_event: DecidingScript
    find_events: Script
    cursor_before: Script
    get_events: Script
    get_final_event: Script
    pack_ids: Script
    pack_events: Script
    read_events: Script
    plan_freeze: Script
    freeze_log: Script
    thaw_log: Script
    keep_warm: Script
    note_objects: Script
    due_objects: Script
    forget_objects: Script
    decide_pending: DecidingScript
    list_pending: Script
    list_decisions: Script
    read_approvals: Script
    create_conversation: DecidingScript
    change_status: DecidingScript
    set_fields: DecidingScript
    copy_events: Script
    adopt_fork: DecidingScript
    drop_copy: Script
    put_secrets: DecidingScript
    report_conversation: DecidingScript
    settle_labels: Script
    read_log: Script
    read_versions: Script
    note_conversation: DecidingScript
    page_conversations: Script
    delete_conversation: DecidingScript
    bury_conversation: DecidingScript
    open_delivery: Script
    claim_delivery: Script
    renew_delivery: Script
    close_delivery: Script
    read_delivery: DecidingScript
    settle_delivery: Script
    check_sandbox: Script
    claim_checks: Script
    close_check: Script
    start_sandbox: DecidingScript
    ask_sandbox: DecidingScript
    begin_sandbox: DecidingScript
    stop_sandbox: DecidingScript
    expire_sandboxes: Script
    use_sandbox: Script
    open_sandbox: Script
    read_sandboxes: Script
    page_sandboxes: Script
    claim_sandbox: Script
    report_sandbox: DecidingScript
    beat_host: DecidingScript
    release_host: DecidingScript
    count_hosts: Script
    declare_warm_pools: Script
    fill_warm_pool: DecidingScript
    claim_warm_sandbox: Script
    discard_warm_sandbox: Script
    open_transfer: Script
    send_chunk: DecidingScript
    take_chunk: Script
    close_transfer: Script
    create_start_task: DecidingScript
    claim_start_task: Script
    claim_failed_start_task: Script
    renew_start_task: Script
    advance_start_task: Script
    finish_start_task: Script
    forget_start_task: Script
    read_start_tasks: Script
    page_start_tasks: Script
    queue_message: DecidingScript
    claim_queue: Script
    postpone_queue: Script
    settle_message: Script
    drop_queue: Script
    count_queue: Script
    make_access_key: DecidingScript
    find_access_key: Script
    live_access_keys: Script
    list_access_keys: Script
    revoke_access_key: Script
    make_rule: DecidingScript
    revoke_rule: Script
    list_rules: Script
    claim_rule_uses: Script
    return_rule_uses: Script
    make_ticket: Script
    take_ticket: Script
    read_link: Script
    take_link: DecidingScript
    claim_idempotency_key: DecidingScript
    end_idempotency_claim: DecidingScript
    count_hit: Script
    take_place: DecidingScript
    leave_place: Script
    note_approvals: DecidingScript
    page_pending_actions: Script
    read_changes: Script
    read_list_changes: Script
    due_approvals: Script
    claim_sweep: Script
    empty_outbox: Script
    open_targets: Script
    queue_notifications: Script
    claim_notification: Script
    renew_notification: Script
    close_notification: DecidingScript
    read_targets: Script

    def __init__(self, redis: "Redis", durability: Durability = AS_REDIS) -> None:
        """durability: what is proven of the scripts that write. The client's connections send the proofs."""
        #: brings back the log of a root's conversation; `open_store` sets it, whose steps are scripts too
        self.on_cold: Callable[[str], None]
        for name, text in sources().items():
            is_proven = durability.is_proven and is_acknowledged(name, text)
            sent = _MARKED.format(text) if is_proven and durability.replicas else text
            if needs_log(name, text):
                sent = _GUARD + sent
            if isinstance(redis, LazyCluster):
                sent = _IN_A_CLUSTER + sent
            options = {"proven": True} if is_proven else {}
            script = _LoadedScript(redis, sent, options, lambda root: self.on_cold(root))
            decides = self.__annotations__[name] is DecidingScript
            setattr(self, name, DecidingScript(script) if decides else script)

"""Loads the Lua scripts beside this file: one verb per file, the stem is its name.

`texts.py` says what Redis receives of each. A script that needs a log which lies in an object replies with the
error COLD: its caller here thaws the conversation (`store/conversations/cold.py`), and calls again.
"""

from collections.abc import Callable
from hashlib import sha1
from typing import Any, Protocol

from redis import Redis
from redis.connection import DefaultParser
from redis.exceptions import NoScriptError, ResponseError

from store.link.cluster import LazyCluster
from store.link.durability import AS_REDIS, Durability
from store.scripts.texts import as_sent, is_proven, sources

#: thaws of one call: a conversation that became cold again each time would be a fault of the sweep
_MOST_THAWS = 3


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
        #: brings back the log of a root's conversation; `Cold` sets it, whose own steps are scripts
        self.on_cold: Callable[[str], None]
        in_cluster = isinstance(redis, LazyCluster)
        for name, text in sources().items():
            sent = as_sent(name, text, durability, in_cluster=in_cluster)
            options = {"proven": True} if is_proven(name, text, durability) else {}
            script = _LoadedScript(redis, sent, options, lambda root: self.on_cold(root))
            decides = self.__annotations__[name] is DecidingScript
            setattr(self, name, DecidingScript(script) if decides else script)

"""The text of each script as Redis receives it: with its includes, its guards and the mark of a proof.

A file whose name begins with an underscore is shared code. A script names it in a line
`-- include: _log.lua`, which is replaced by that file's text. Every other script opens with its
contract: purpose, KEYS, ARGV, Returns, Cost, Idempotent (`tests/store/test_scripts.py` reads them).

A script that names a key of a log is guarded: where the log lies in an object it writes nothing and replies with the
error COLD (`store/conversations/cold.py`).
"""

import re
from importlib.resources import files

from store.link.durability import Durability

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
#: no node has are refused by both nodes while their slot moves, so the script ends before it has done anything. Every
#: root has a hash tag, so that both lie in its slot.
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

_INCLUDE = re.compile(r"^-- include: (_\w+\.lua)\n", re.MULTILINE)


def sources() -> dict[str, str]:
    """Text of every callable script by name, includes in place."""
    folder = files(__package__)
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


def is_proven(name: str, text: str, durability: Durability) -> bool:
    """Whether the writes of a script are to be kept as a durability says before its reply is used."""
    return durability.is_proven and is_acknowledged(name, text)


def as_sent(name: str, text: str, durability: Durability, *, in_cluster: bool) -> str:
    """The text of a script as Redis receives it."""
    sent = _MARKED.format(text) if durability.replicas and is_proven(name, text, durability) else text
    if needs_log(name, text):
        sent = _GUARD + sent
    return _IN_A_CLUSTER + sent if in_cluster else sent

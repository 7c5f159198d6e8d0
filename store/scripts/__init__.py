"""Loads the Lua scripts beside this file: one verb per file, the stem is its name.

A file whose name begins with an underscore is shared code. A script names it in a line
`-- include: _log.lua`, which is replaced by that file's text. Every other script opens with its
contract: purpose, KEYS, ARGV, Returns, Cost, Idempotent (`tests/store/test_scripts.py` reads them).
"""

import re
from importlib.resources import files
from typing import Any, Protocol

from redis import Redis

_INCLUDE = re.compile(r"^-- include: (_\w+\.lua)\n", re.MULTILINE)


class Script(Protocol):
    """A loaded script: called with the conversation's root key and its ARGV."""

    def __call__(self, keys: list[str], args: list[Any]) -> Any: ...


def sources() -> dict[str, str]:
    """Text of every callable script by name, includes in place."""
    folder = files(__name__)
    texts = {entry.name: entry.read_text() for entry in folder.iterdir() if entry.name.endswith(".lua")}
    return {
        name.removesuffix(".lua"): _INCLUDE.sub(lambda match: texts[match[1]], text)
        for name, text in texts.items()
        if not name.startswith("_")
    }


class Scripts:
    """Every script as an attribute, sent once per server and called by its hash."""

    append_events: Script
    send_message: Script
    count_events: Script
    page_events: Script
    locate_event: Script
    get_events: Script
    read_events: Script
    answer_pending: Script
    list_pending: Script
    create_conversation: Script
    change_status: Script
    set_fields: Script
    adopt_fork: Script
    put_secrets: Script
    read_log: Script
    note_conversation: Script
    page_conversations: Script
    delete_conversation: Script
    settle_answer: Script
    start_sandbox: Script
    ask_sandbox: Script
    claim_sandbox: Script
    report_sandbox: Script
    beat_host: Script
    claim_start: Script
    advance_start: Script
    fail_starts: Script

    def __init__(self, redis: "Redis") -> None:
        for name, text in sources().items():
            setattr(self, name, redis.register_script(text))

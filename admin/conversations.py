"""Export and import conversations:  python -m admin conversations export ID > FILE  and  import < FILE

The store is at REDIS_URL, or else embedded in DATA_DIR, whether its server runs or not. Format of the
lines: docs/keeping.md. Exit status 1: nothing was imported, or the export is incomplete; standard error has the reason.
"""

import argparse
import sys
from functools import partial
from typing import Any, BinaryIO

from marshmallow import ValidationError

from core.wire import ConversationId
from schemas.errors import validation_errors
from schemas.exports import BadLine, export, read_export
from schemas.fields import canonical_id
from settings import ConfigError
from store import Store
from store.conversations.copies import RepeatedEvent
from store.errors import UNAVAILABLE, StoreError
from wiring import store_here


def main(words: list[str] | None = None) -> int:
    """Run a command, and return the exit status. Standard output only has an export."""
    given = _parser().parse_args(words)
    try:
        with store_here() as store:
            store.data_version.ensure()
            if given.command == "export":
                _export(store, ConversationId(canonical_id(given.id)), sys.stdout.buffer)
            else:
                print(_import(store, sys.stdin.buffer), file=sys.stderr)
    except BadLine as bad:
        return _refuse(f"line {bad.number}: {_sentence(bad.messages)}")
    except RepeatedEvent as repeated:
        return _refuse(f"line {repeated.seq + 1}: {repeated}")
    except ValidationError as fault:
        return _refuse(_sentence(fault.messages))
    except (ConfigError, StoreError, RuntimeError) as error:
        return _refuse(str(error))
    except UNAVAILABLE as error:
        return _refuse(f"the store does not answer: {error}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m admin conversations", description="Conversations as JSON lines.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("export", help="write a conversation to standard output").add_argument("id")
    commands.add_parser("import", help="make a conversation of standard input, whole or not at all")
    return parser


def _export(store: Store, conversation_id: ConversationId, sink: BinaryIO) -> None:
    state = store.conversations.get(conversation_id)
    decisions = partial(store.approvals.audit.decisions, state["id"])
    sink.writelines(export(state, store.conversations.exports.pages(state), decisions))
    sink.flush()


def _import(store: Store, source: BinaryIO) -> str:
    head, events = read_export(source)
    created = store.conversations.exports.load(ConversationId(head["id"]), head, events)
    outcome = "imported" if created else "exists already, with all of these events"
    return f"conversation {head['id']}: {outcome}"


def _sentence(messages: Any) -> str:
    """Format marshmallow's messages as a sentence."""
    faults = validation_errors("", messages)
    return "; ".join(": ".join([*map(str, fault["loc"][1:]), fault["msg"]]) for fault in faults)


def _refuse(sentence: str) -> int:
    print(f"conversations: {sentence}", file=sys.stderr)
    return 1

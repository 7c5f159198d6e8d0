"""The modules of the Python client that are made: `python -m docs.make` writes them, and a test compares them.

`models.py` is made from the schemas of docs/openapi.json, and `_sync.py`, the blocking client, from `_async.py`.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parent.parent
PACKAGE = PROJECT / "client/src/agent_server_client"
MODELS, ASYNC, SYNC = (PACKAGE / name for name in ("models.py", "_async.py", "_sync.py"))
OPENAPI = PROJECT / "docs/openapi.json"

#: the schemas of responses that the client has types for; those that they refer to come with them
ROOTS = (
    *("ConversationInfo", "ListedConversation", "WaitingAction", "DecisionsResult", "AppConversationStartTask"),
    *("SandboxInfo", "KeyInfo", "NewKey", "User", "GitChange", "GitDiff", "ServerInfo"),
    *("AskedDestinationInfo", "DestinationDecided", "PreviewAddress"),
)

_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}

_MODELS_HEAD = '''"""What the server sends, as dicts. Made by docs/client.py from docs/openapi.json."""

from typing import Any, Literal, NotRequired, TypedDict

#: one entry of a log, whole: every kind has members of its own
Event = dict[str, Any]
'''

#: from the async client to the blocking one
_SYNC_RULES = (
    (r"^import asyncio$", "import time"),
    (r"\bawait asyncio\.to_thread\((\w+), ", r"\1("),
    (r"\bawait asyncio\.sleep\b", "time.sleep"),
    (r"\b(async|await) ", ""),
    (r"\bAsync(?=\w)", ""),
    (r"\b(__)?a(enter__|exit__|close|closing|read|iter_bytes)\b", r"\1\2"),
    (r"\A.*\n", '"""The blocking client. Made by docs/client.py from `_async.py`."""\n'),
)


def models() -> str:
    """The module of types."""
    schemas = json.loads(OPENAPI.read_text())["components"]["schemas"]
    wanted, classes = list(ROOTS), dict[str, str]()
    for name in wanted:
        if name not in classes:
            body, referred = _class(name, schemas[name])
            classes[name] = body
            wanted += referred
    return _formatted("\n\n".join([_MODELS_HEAD, *(classes[name] for name in sorted(classes))]))


def sync() -> str:
    """The module of the blocking client."""
    text = ASYNC.read_text()
    for pattern, replacement in _SYNC_RULES:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return _formatted(text)


def _class(name: str, schema: dict[str, Any]) -> tuple[str, list[str]]:
    """The class of a schema, and the names of those that it refers to. What only the server writes is always there."""
    referred: list[str] = []
    lines = [f"class {name}(TypedDict):"]
    for member, of in schema["properties"].items():
        hint = _hint(of, referred)
        is_there = member in schema.get("required", ()) or of.get("readOnly")
        lines.append(f"    {member}: {hint if is_there else f'NotRequired[{hint}]'}")
    return "\n".join(lines), referred


def _hint(of: dict[str, Any], referred: list[str]) -> str:
    if "$ref" in of:
        referred.append(of["$ref"].rpartition("/")[2])
        return f'"{referred[-1]}"'
    if "enum" in of:
        return f"Literal[{', '.join(map(repr, of['enum']))}]"
    if "anyOf" in of:
        hints = [_hint(one, referred) for one in of["anyOf"]]
        return f'"{" | ".join(hint.strip(chr(34)) for hint in hints)}"'
    types = of["type"] if isinstance(of.get("type"), list) else [of.get("type")]
    return " | ".join(_of_type(one, of, referred) for one in types)


def _of_type(one: str | None, of: dict[str, Any], referred: list[str]) -> str:
    if one == "array":
        return f"list[{_hint(of.get('items', {}), referred)}]"
    if one == "object":
        return "dict[str, Any]"
    return _PLAIN.get(one or "", "Any")


def _formatted(text: str) -> str:
    """As ruff would have it, which is a requirement of development."""
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        words = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(MODELS), "-"]
        text = subprocess.run(words, input=text, capture_output=True, text=True, check=True, cwd=PROJECT).stdout
    return text

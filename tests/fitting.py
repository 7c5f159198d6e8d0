"""The smallest request of each operation that fits the OpenAPI document: a new operation needs no row of a table."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from werkzeug.routing import Rule

from tests.servers import PROJECT

DOCUMENT = json.loads((PROJECT / "docs/openapi.json").read_text())

#: bodies of operations that ask for more than their schemas say, by the names of their views
UNSAID: dict[str, Any] = {
    "return_app_conversation": {"undo": True},
    "make_grant": {"role": "ask", "person": "ada@example.org"},
    "add_device": {
        "endpoint": "https://push.example.org/x",
        "keys": {
            "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
            "auth": "BTBZMqHH6r4Tts7J_aSIgg",
        },
        "name": "x",
    },
    "update_settings": {"agent_settings_diff": {}},
    "update_provider_connection": {"provider": "x"},
    "save_agent_profile": {"llm_profile_ref": "x"},
    "decide_destination": {
        **{"sandbox_id": "s", "name": "example.org", "port": 443, "decision": "approve", "scope": "once"},
        "digest": "0" * 64,
    },
    "report_of_agent": {
        "agent": {"name": "x"},
        "session": {"id": "x", "cwd": "/workspace/x", "host": "x"},
        "kind": "end",
    },
    "create_chat_completion": {"model": "openhands_reference-agent", "messages": [{"role": "user", "content": "x"}]},
    "create_response": {"model": "openhands_reference-agent", "input": "x"},
}

METHODS = ("get", "post", "put", "patch", "delete")

ID = "5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0021"

#: texts, one of which fits the pattern and the format of every member that must be there
TEXTS = ("x", "A", "/workspace/x", ID, "0" * 64, "example.org", "https://example.org", "2027-01-31T09:27:43Z")

#: the text that has a format
_FORMATS = {"uuid": ID, "date-time": TEXTS[-1]}


class FittingOperation(NamedTuple):
    """An operation of the document."""

    method: str
    path: str
    content: dict[str, Any]  #: the document's words about it

    @property
    def name(self) -> str:
        """The name of its view."""
        return str(self.content["operationId"]).partition(re.sub(r"\W", "_", self.path))[0]

    def parameters(self, place: str) -> Iterator[dict[str, Any]]:
        """Its parameters in the path or in the query."""
        shared = DOCUMENT["paths"][self.path].get("parameters", [])
        for one in map(resolved, [*shared, *self.content.get("parameters", [])]):
            if one["in"] == place:
                yield one

    def query(self) -> dict[str, Any]:
        """The members that its query must have, with their smallest values."""
        return {one["name"]: smallest(one["schema"]) for one in self.parameters("query") if one.get("required")}

    @property
    def is_forwarded(self) -> bool:
        """Whether an agent server reads its body."""
        return "Forwarded" in self.content["tags"]

    @property
    def is_of_sandboxes(self) -> bool:
        """Whether it checks the key of a sandbox before it reads the body."""
        return bool(self.content["security"] == [{"bearer": []}])

    def takes_json(self) -> bool:
        """Whether it reads a body of JSON."""
        return "application/json" in self.content.get("requestBody", {}).get("content", {})

    def body(self) -> Any:
        """Its smallest body of JSON."""
        return UNSAID[self.name] if self.name in UNSAID else smallest(self.schema())

    def schema(self) -> dict[str, Any]:
        """The schema of its body of JSON."""
        schema: dict[str, Any] = self.content["requestBody"]["content"]["application/json"]["schema"]
        return schema


@cache
def operations() -> tuple[FittingOperation, ...]:
    """The operations of the document."""
    return tuple(
        FittingOperation(method.upper(), path, content)
        for path, methods in DOCUMENT["paths"].items()
        for method, content in methods.items()
        if method in METHODS
    )


def operation_of(rule: Rule) -> FittingOperation | None:
    """The first operation of a rule; None: the document does not have it, as of metrics and sockets."""
    path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)
    return next((one for one in operations() if one.path == path and one.method in rule.methods), None)


def body_of(rule: Rule) -> Any:
    """The smallest body of a rule's operation; None: it reads no JSON."""
    found = operation_of(rule)
    return found.body() if found and found.takes_json() else None


def resolved(schema: Any) -> Any:
    """What a reference stands for."""
    while "$ref" in schema:
        found = DOCUMENT
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = found
    return schema


def smallest(schema: dict[str, Any]) -> Any:
    """The smallest value that fits a schema: members that must be there, texts of one character, empty arrays."""
    schema = resolved(schema)
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema and not schema.keys() & {"type", "properties"}:
            return smallest(schema[choice][0])
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else schema["enum"][0]
    kind = schema.get("type", "object")
    match kind if isinstance(kind, str) else kind[0]:
        case "object":
            members = schema.get("properties", {})
            return {name: smallest(members.get(name, {"type": "string"})) for name in schema.get("required", ())}
        case "array":
            return [smallest(schema["items"]) for _ in range(schema.get("minItems", 0))]
        case "string":
            return next(text for text in TEXTS if _fits(text, schema))
        case "boolean":
            return False
        case "null":
            return None
    return schema.get("minimum", 0)


def _fits(text: str, schema: dict[str, Any]) -> bool:
    return (
        re.search(schema.get("pattern", ""), text) is not None
        and schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", len(text))
        and text == _FORMATS.get(schema.get("format"), text)
    )

"""A scripted model: it speaks the wires of Anthropic, OpenAI (chat and responses) and Gemini, and obeys the user.

    python docs/examples/scripted_model.py [PORT]

Use it to try an agent without an account. Start the server with ANTHROPIC_BASE_URL=http://127.0.0.1:9990, with
OPENAI_BASE_URL=http://127.0.0.1:9990/v1 or with GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:9990, and with any key. The
last message of the user decides:

    run: CMD            a call of the agent's shell tool
    write: PATH TEXT    a call of its tool that writes a file
    anything else       the text `ok: …`, with the number of images of the message if it has any

After the result of a tool it says `done: RESULT`. A request without tools, such as for a title, gets `ok`.
"""

import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from uuid import uuid4

PORT = 9990

#: Agents' names of their shell tool, and of the tool that writes a file.
SHELL = ("Bash", "bash", "run_shell_command", "exec_command", "shell_command", "shell", "developer__shell", "terminal")
WRITE = ("Write", "write", "write_file", "create", "create_file", "str_replace_editor")

_LINE = re.compile(r"^\s*(run|write): *(.+)$", re.MULTILINE)

#: Sample values, by type, for required arguments that the line does not name.
_SAMPLES: dict[str, Any] = {
    "string": "scripted",
    "boolean": False,
    "number": 1,
    "integer": 1,
    "array": [],
    "object": {},
}

Json = dict[str, Any]


class Call(NamedTuple):
    name: str
    arguments: Json


def answer(prompt: str, result: str | None, tools: Mapping[str, Json], images: int = 0) -> str | list[Call]:
    """Return the model's response: a text, or calls of tools.

    prompt: the last message of the user. result: of the tool that was called after it. tools: schemas of the agent's
    tools, by name.
    """
    if not tools:
        return "ok"
    if result is not None:
        return f"done: {result[:200]}"
    calls = [call for verb, rest in _LINE.findall(prompt) if (call := _call(verb, rest.strip(), tools))]
    return calls or f"ok: {prompt.strip()[-80:]}" + (f" ({images} images)" if images else "")


def _call(verb: str, rest: str, tools: Mapping[str, Json]) -> Call | None:
    name = next((one for one in (SHELL if verb == "run" else WRITE) if one in tools), None)
    path, _, text = rest.partition(" ")
    if name is None:
        return _patch(path, text, tools) if verb == "write" else None
    known: Json = {"command": rest, "cmd": rest}
    if verb == "write":
        known = {"command": "create", "content": text, "file_text": text}
        known |= dict.fromkeys(("file_path", "path", "filePath"), path)
    # Codex asks before it leaves its own sandbox; other agents have no such arguments.
    return Call(name, _filled(tools[name], {**known, "sandbox_permissions": "require_escalated", "justification": "?"}))


def _patch(path: str, text: str, tools: Mapping[str, Json]) -> Call | None:
    """Return a call that adds a file by a patch, for agents without a tool that writes one."""
    patch = f"*** Begin Patch\n*** Add File: {path}\n+{text}\n*** End Patch\n"
    if "apply_patch" in tools:
        known = {"patchText": patch, "input": patch, "patch": patch}
        return Call("apply_patch", _filled(tools["apply_patch"], known) or {"input": patch})
    if "exec_command" in tools:
        return Call("exec_command", {"cmd": f"apply_patch <<'EOF'\n{patch}EOF"})
    return None


def _filled(schema: Json, known: Json) -> Json:
    """Return the known arguments of a tool, with samples for other required ones."""
    properties: Json = schema.get("properties") or {}
    arguments = {name: value for name, value in known.items() if name in properties}
    for name in schema.get("required") or []:
        one = properties.get(name) or {}
        kinds = one.get("type", "string")
        kind = next((each for each in kinds if each != "null"), "string") if isinstance(kinds, list) else kinds
        choices = one.get("enum") or [_SAMPLES.get(str(kind).lower(), "scripted")]
        arguments.setdefault(name, choices[0])
    return arguments


def texts(content: Any) -> str:
    """Return all text of a message or of a result, in any form."""
    if isinstance(content, list):
        return "\n".join(map(texts, content))
    if isinstance(content, dict):
        return texts(content.get("text") or content.get("content") or content.get("output") or "")
    return content if isinstance(content, str) else ""


def anthropic(body: Json) -> tuple[Json, list[Json]]:
    """Speak the Messages wire: return the response, and its events for a streaming client."""
    last = next((one for one in reversed(body["messages"]) if one["role"] == "user"), {"content": ""})
    blocks = last["content"] if isinstance(last["content"], list) else [{"type": "text", "text": last["content"]}]
    results = [one for one in blocks if one.get("type") == "tool_result"]
    prompt = "\n".join(one.get("text", "") for one in blocks if one.get("type") == "text")
    tools = {one["name"]: one["input_schema"] for one in body.get("tools") or [] if "input_schema" in one}
    # After an interruption the user's next message comes together with the result.
    is_result = bool(results) and not _LINE.search(prompt)
    reply = answer(prompt, texts(results) if is_result else None, tools, _count(blocks, "image"))
    usage = {"input_tokens": 10, "output_tokens": 5}
    content: list[Json] = [{"type": "text", "text": reply}] if isinstance(reply, str) else []
    if not isinstance(reply, str):
        content = [{"type": "tool_use", "id": _id("toolu"), "name": one.name, "input": one.arguments} for one in reply]
    stop = "end_turn" if isinstance(reply, str) else "tool_use"
    message = {"id": _id("msg"), "type": "message", "role": "assistant", "model": body.get("model"), "usage": usage}
    message |= {"content": content, "stop_reason": stop, "stop_sequence": None}
    events: list[Json] = [{"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}]
    for index, block in enumerate(content):
        is_text = block["type"] == "text"
        begun = {**block, "text": ""} if is_text else {**block, "input": {}}
        delta: Json = {"type": "text_delta", "text": block["text"]} if is_text else {"type": "input_json_delta"}
        if not is_text:
            delta["partial_json"] = json.dumps(block["input"])
        events += [
            {"type": "content_block_start", "index": index, "content_block": begun},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    ending = {"stop_reason": stop, "stop_sequence": None}
    return message, [*events, {"type": "message_delta", "delta": ending, "usage": usage}, {"type": "message_stop"}]


def chat(body: Json) -> tuple[Json, list[Json]]:
    messages = [one for one in body["messages"] if one["role"] not in ("system", "developer")]
    # Some agents add reminders after the user's message, so all user messages at the end count.
    at_end = next((at for at, one in enumerate(reversed(messages)) if one["role"] != "user"), len(messages))
    mine, before = messages[len(messages) - at_end :], messages[: len(messages) - at_end]
    prompt = "\n".join(texts(one["content"]) for one in mine)
    called = before[-1] if before and before[-1]["role"] == "tool" and not _LINE.search(prompt) else None
    tools, custom = dict[str, Json](), set[str]()  # a custom tool takes a text instead of arguments
    for one in body.get("tools") or []:
        about = one.get("function") or one.get("custom") or {}
        tools[about.get("name", "")] = about.get("parameters") or {}
        custom |= {about["name"]} if "custom" in one else set()
    images = sum(_count(one["content"], "image_url") for one in mine)
    reply = answer(prompt, texts(called["content"]) if called else None, tools, images)
    is_text = isinstance(reply, str)
    calls: list[Json] = []
    for at, call in enumerate([] if isinstance(reply, str) else reply):
        function = {"function": {"name": call.name, "arguments": json.dumps(call.arguments)}, "type": "function"}
        text = {"custom": {"name": call.name, "input": "".join(call.arguments.values())}, "type": "custom"}
        calls.append({"index": at, "id": _id("call"), **(text if call.name in custom else function)})
    message = {"role": "assistant", "content": reply if is_text else None, **({"tool_calls": calls} if calls else {})}
    stop, usage = "stop" if is_text else "tool_calls", {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    about = {"id": _id("chatcmpl"), "created": int(time.time()), "model": body.get("model")}
    whole = {**about, "object": "chat.completion", "usage": usage}
    whole["choices"] = [{"index": 0, "message": message, "finish_reason": stop}]
    about["object"] = "chat.completion.chunk"
    deltas = [(message, None), ({}, stop)]
    chunks = [{**about, "choices": [{"index": 0, "delta": one, "finish_reason": end}]} for one, end in deltas]
    return whole, [*chunks, {**about, "choices": [], "usage": usage}]


def responses(body: Json) -> tuple[Json, list[Json]]:
    given = body.get("input") or []
    items: list[Json] = [{"role": "user", "content": given}] if isinstance(given, str) else given
    items = [one for one in items if one.get("role") not in ("developer", "system")]
    at_end = next((at for at, one in enumerate(reversed(items)) if one.get("role") != "user"), len(items))
    mine, before = items[len(items) - at_end :], items[: len(items) - at_end]
    result = before[-1] if not mine and before and str(before[-1].get("type", "")).endswith("_output") else None
    listed = [each for one in body.get("tools") or [] for each in one.get("tools", [one])]  # namespaces have tools
    tools = {one["name"]: one.get("parameters") or {} for one in listed if one.get("name")}
    images = sum(_count(one.get("content"), "input_image") for one in mine)
    prompt = "\n".join(texts(one.get("content")) for one in mine)
    reply = answer(prompt, texts(result.get("output", "")) if result else None, tools, images)
    output: list[Json] = []
    if isinstance(reply, str):
        part = {"type": "output_text", "text": reply, "annotations": []}
        output = [{"type": "message", "id": _id("msg"), "role": "assistant", "status": "completed", "content": [part]}]
    else:
        for one in reply:
            call = {"type": "function_call", "id": _id("fc"), "call_id": _id("call"), "status": "completed"}
            output.append({**call, "name": one.name, "arguments": json.dumps(one.arguments)})
    usage: Json = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15}
    response: Json = {"id": _id("resp"), "object": "response", "created_at": int(time.time()), "status": "completed"}
    response |= {"model": body.get("model"), "output": output, "parallel_tool_calls": True, "tools": [], "usage": usage}
    events: list[Json] = [{"type": "response.created", "response": {**response, "status": "in_progress", "output": []}}]
    for at, item in enumerate(output):
        place: Json = {"item_id": item["id"], "output_index": at}
        events.append({"type": "response.output_item.added", "output_index": at, "item": item})
        if item["type"] == "message":
            delta = {"content_index": 0, "delta": item["content"][0]["text"]}
            events.append({"type": "response.output_text.delta", **place, **delta})
        else:
            arguments = item["arguments"]
            events.append({"type": "response.function_call_arguments.delta", **place, "delta": arguments})
            events.append({"type": "response.function_call_arguments.done", **place, "arguments": arguments})
        events.append({"type": "response.output_item.done", "output_index": at, "item": item})
    events.append({"type": "response.completed", "response": response})
    return response, [{**one, "sequence_number": number} for number, one in enumerate(events)]


def gemini(body: Json) -> tuple[Json, list[Json]]:
    parts = body["contents"][-1]["parts"]
    results = [one["functionResponse"] for one in parts if "functionResponse" in one]
    prompt = "\n".join(one.get("text", "") for one in parts)
    declared = [each for one in body.get("tools") or [] for each in one.get("functionDeclarations", [])]
    tools = {one["name"]: one.get("parametersJsonSchema") or one.get("parameters") or {} for one in declared}
    images = sum("inlineData" in one for one in parts)
    output = answer(prompt, json.dumps(results) if results else None, tools, images)
    shown: list[Json] = (
        [{"text": output}]
        if isinstance(output, str)
        else [{"functionCall": {"name": one.name, "args": one.arguments}} for one in output]
    )
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    candidate = {"content": {"role": "model", "parts": shown}, "finishReason": "STOP", "index": 0}
    reply = {"candidates": [candidate], "usageMetadata": usage}
    return reply, [reply]


#: The wire by a part of the path, and whether its events have a line `event:`.
_WIRES = {"/messages": (anthropic, True), "/chat/completions": (chat, False), "/responses": (responses, True)}


class ModelHandler(BaseHTTPRequestHandler):
    """Answers every request of the four wires."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_HEAD(self) -> None:
        self._send(200, b"")

    def do_GET(self) -> None:
        is_list = self.path.partition("?")[0].endswith("/models")
        self._send(200 if is_list else 404, b'{"object": "list", "data": []}' if is_list else b"{}")

    def do_POST(self) -> None:
        path, raw = self.path.partition("?")[0], self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            body = json.loads(raw)
        except ValueError:
            self._send(400, b'{"error": {"message": "no JSON"}}')
            return
        self.heard(body)
        if path.endswith("/count_tokens"):
            self._send(200, b'{"input_tokens": 10}')
        elif "enerateContent" in path:
            whole, events = gemini(body)
            self._reply(whole, events if "stream" in path else [], has_names=False)
        elif wire := next((one for end, one in _WIRES.items() if path.endswith(end)), None):
            whole, events = wire[0](body)
            self._reply(whole, events if body.get("stream") else [], has_names=wire[1], ends=wire[0] is chat)
        else:
            self._send(404, b'{"error": {"message": "no such path"}}')

    def heard(self, body: Json) -> None:
        """Called with each request."""

    def _reply(self, whole: Json, events: Sequence[Json], *, has_names: bool, ends: bool = False) -> None:
        if not events:
            self._send(200, json.dumps(whole).encode())
            return
        names = [f"event: {one['type']}\n" if has_names else "" for one in events]
        frames = [f"{name}data: {json.dumps(one)}\n\n" for name, one in zip(names, events, strict=True)]
        self._send(200, "".join([*frames, *(["data: [DONE]\n\n"] if ends else [])]).encode(), "text/event-stream")

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def _count(content: Any, kind: str) -> int:
    return sum(one.get("type") == kind for one in content) if isinstance(content, list) else 0


def _id(prefix: str) -> str:
    return f"{prefix}_{uuid4().hex[:16]}"


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else PORT
    url = f"http://127.0.0.1:{port}"
    print(f"A scripted model at {url}. Start the server with the variables of your agent's provider:")
    print(f"    ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY=none make run")
    print(f"    OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY=none make run")
    print(f"    GOOGLE_GEMINI_BASE_URL={url} GEMINI_API_KEY=none make run", flush=True)
    ThreadingHTTPServer(("127.0.0.1", port), ModelHandler).serve_forever()

"""OpenAI's shapes: models, chat completions, responses and errors. A model represents an agent.

Source: OpenAI's API reference, and the gateway of the published agent server. Unknown members are ignored, as there.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from marshmallow import ValidationError, fields, post_load, pre_load, validate

from core.wire import MOST_EVENT_BYTES
from schemas.fields import BaseSchema, Choice, FieldFault, StrictBoolean, Text, refusal

#: Prefix of a spec's id in the name of a model.
MODEL_PREFIX = "openhands_"

#: Maximum number of messages of a request.
MOST_MESSAGES = 10_000

#: Types of text parts, and of image parts.
_TEXTS, _IMAGES = ("text", "input_text", "output_text"), ("image_url", "input_image")

_NULLABLE = {"type": ["string", "null"]}


_SOME = {"type": "string", "minLength": 1}
_TEXT = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"type": "string", "enum": [*_TEXTS]}, "text": {"type": "string"}},
}
_IMAGE = {
    "type": "object",
    "required": ["type", "image_url"],
    "properties": {
        "type": {"type": "string", "enum": [*_IMAGES]},
        "image_url": {"anyOf": [_SOME, {"type": "object", "required": ["url"], "properties": {"url": _SOME}}]},
    },
}
_PART = {"oneOf": [_TEXT, _IMAGE]}

#: A user's message with content. A call must have one.
_SAYING = {"allOf": [_TEXT, {"required": ["text"], "properties": {"text": _SOME}}]}
_OF_USER = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"const": "user"},
        "content": {"anyOf": [_SOME, {"type": "array", "contains": {"anyOf": [_SAYING, _IMAGE]}}]},
    },
}

_CONTENTS = [{"type": "string"}, {"type": "array", "items": _PART}, {"type": "null"}]

_MESSAGE = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "type": {"type": "string", "enum": ["message"]},
        "role": {"type": "string", "enum": ["system", "developer", "user", "assistant"]},
        "content": {"anyOf": _CONTENTS},
    },
}

#: Status → type of an error, and its default code.
_KINDS = {
    401: ("authentication_error", "invalid_api_key"),
    403: ("permission_error", "insufficient_permissions"),
    404: ("invalid_request_error", "not_found"),
    409: ("invalid_request_error", "conflict"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}


class Model(BaseSchema):
    """A sandbox spec as a model: a call starts a sandbox with an agent."""

    id = fields.String(required=True, metadata={"description": f"`{MODEL_PREFIX}` and the id of the spec."})
    object = fields.Constant("model", metadata={"type": "string"})
    created = fields.Integer(required=True, metadata={"description": "Seconds since 1970."})
    owned_by = fields.Constant("openhands", metadata={"type": "string"})


class ModelList(BaseSchema):
    object = fields.Constant("list", metadata={"type": "string"})
    data = fields.List(fields.Nested(Model), required=True)


class Content(fields.Raw):
    """Text, or parts that are texts and images. Loaded as the parts of a message of the agent-server wire."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_none=True, load_default=list, metadata={"anyOf": _CONTENTS}, **kwargs)

    def deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        return [] if value is None else super().deserialize(value, *args, **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        if isinstance(value, str):
            return [_text(value)] if value else []
        if not isinstance(value, list):
            raise refusal("Input should be text or an array of parts", "list_type")
        parts, faults = list[dict[str, Any]](), {}
        for index, part in enumerate(value):
            try:
                parts += _part(part)
            except ValidationError as fault:
                faults[index] = fault.messages
        if faults:
            raise ValidationError(faults)
        return parts


def _part(part: Any) -> list[dict[str, Any]]:
    """Return a part of a message in the form of the agent-server wire; empty for empty text. Raises ValidationError."""
    if not isinstance(part, dict):
        raise refusal("Input should be a valid object", "dict_type")
    kind = part.get("type")
    if kind in _TEXTS:
        text = part.get("text", "")
        if not isinstance(text, str):
            raise ValidationError({"text": ["Not a valid string."]})
        return [_text(text)] if text else []
    if kind in _IMAGES:
        url = part.get("image_url")
        url = url.get("url") if isinstance(url, dict) else url
        if not isinstance(url, str) or not url:
            raise ValidationError(
                {"image_url": [FieldFault("Input should be a URL, or an object with a url", "missing")]}
            )
        return [{"cache_prompt": False, "type": "image", "image_urls": [url]}]
    raise ValidationError(
        {
            "type": [
                FieldFault(f"Input should be one of {', '.join((*_TEXTS, *_IMAGES))}: an agent reads no other", "enum")
            ]
        }
    )


def _text(text: str) -> dict[str, Any]:
    return {"cache_prompt": False, "type": "text", "text": text}


class ChatMessage(BaseSchema):
    role = Choice("system", "developer", "user", "assistant", "tool", required=True)
    content = Content()


class StreamOptions(BaseSchema):
    include_usage = StrictBoolean(load_default=False)


class ChatCompletionRequest(BaseSchema):
    """A call of an agent. Unknown members are ignored: an agent has its own tools and model settings."""

    model = Text(required=True, least=1)
    messages = fields.List(
        fields.Nested(ChatMessage),
        required=True,
        validate=validate.Length(min=1, max=MOST_MESSAGES),
        metadata={"contains": _OF_USER},
    )
    stream = StrictBoolean(allow_none=True, load_default=False)
    stream_options = fields.Nested(StreamOptions, allow_none=True)

    @post_load
    def _read(self, request: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {**request, "words": words_of(request["messages"], "messages")}


class InputMessage(ChatMessage):
    """A message of an input. Other items, such as tool calls, are refused, because an agent has its own tools."""

    role = Choice("system", "developer", "user", "assistant", required=True)
    type = Choice("message", load_default="message")


class Input(fields.Raw):
    """A text, or messages. Loaded as messages."""

    def __init__(self) -> None:
        messages = {"type": "array", "items": _MESSAGE, "minItems": 1, "maxItems": MOST_MESSAGES, "contains": _OF_USER}
        super().__init__(required=True, metadata={"anyOf": [{"type": "string", "minLength": 1}, messages]})

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        if isinstance(value, str):
            if not value:
                raise refusal("String should have at least 1 character", "string_too_short")
            return [{"role": "user", "content": [_text(value)]}]
        if not isinstance(value, list):
            raise refusal("Input should be text or an array of messages", "list_type")
        if not 1 <= len(value) <= MOST_MESSAGES:
            fault = "too_long" if value else "too_short"
            raise refusal(f"Array should have from 1 to {MOST_MESSAGES} messages", fault)
        loaded: list[dict[str, Any]] = InputMessage(many=True).load(value)
        return loaded


class ResponseRequest(BaseSchema):
    """A call of an agent by the Responses API. Unknown members are ignored."""

    model = Text(required=True, least=1)
    input = Input()
    instructions = Text(allow_none=True, load_default=None)
    previous_response_id = Text(
        allow_none=True,
        load_default=None,
        metadata={"description": "Id of an earlier response, whose conversation the call continues."},
    )
    store = StrictBoolean(
        allow_none=True,
        load_default=False,
        metadata={"enum": [False, None], "description": "True is refused: no response can be fetched by its id."},
    )
    stream = StrictBoolean(allow_none=True, load_default=False)
    metadata = fields.Dict(keys=fields.String(), values=fields.String(), allow_none=True, load_default=None)

    @pre_load
    def _no_store(self, request: Any, **_: Any) -> Any:
        if isinstance(request, dict) and request.get("store") is True:
            text = "Input should be false: a response cannot be fetched by its id. previous_response_id needs no store"
            raise ValidationError({"store": [FieldFault(text, "unsupported")]})
        return request

    @post_load
    def _read(self, request: dict[str, Any], **_: Any) -> dict[str, Any]:
        messages = request["input"]
        if request["instructions"]:
            messages = [{"role": "system", "content": [_text(request["instructions"])]}, *messages]
        return {**request, "words": words_of(messages, "input")}


class Words(NamedTuple):
    """The messages of a call: all of them for a new agent, and the new part for an agent that knows the rest."""

    whole: list[dict[str, Any]]
    new: list[dict[str, Any]]
    instructions: list[dict[str, Any]]  #: the messages of the roles system and developer
    earlier: list[Mapping[str, Any]]  #: the messages before the new ones
    recent: list[Mapping[str, Any]]  #: the messages with the new part


def words_of(messages: Sequence[Mapping[str, Any]], member: str) -> Words:
    """Return the content of a call's messages. New are the user's messages after the last one of another role.

    If the last message is not a user's, only the user's last message is new. Raises ValidationError of `member` without
    a user's message, or if it is too long.
    """
    told = [one for one in messages if one["role"] in ("system", "developer")]
    said = [one for one in messages if one["role"] not in ("system", "developer")]
    start = len(said)
    while start and said[start - 1]["role"] == "user":
        start -= 1
    ends_with_user = start < len(said)
    recent = said[start:] if ends_with_user else [one for one in said if one["role"] == "user"][-1:]
    new = [part for one in recent for part in one["content"]]
    if not new:
        fault = FieldFault("There should be a message of the role user that says something", "missing")
        raise ValidationError({member: [fault]})
    earlier = [*told, *(said[:start] if ends_with_user else said)]
    whole = [*(part for one in earlier for part in _marked(one)), *(new if ends_with_user else [])]
    if len(json.dumps(whole)) > MOST_EVENT_BYTES - 1024:
        text = (
            f"The messages should have less than {MOST_EVENT_BYTES} bytes together: send the last one alone, with the "
            "X-OpenHands-ServerConversation-ID of its conversation"
        )
        raise ValidationError({member: [FieldFault(text, "context_length_exceeded")]})
    instructions = [part for one in told for part in _marked(one)]
    return Words(whole, new, instructions, said[:start] if ends_with_user else [], list(recent))


def _marked(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts of an earlier message, enclosed by marks with its role."""
    if message["content"]:
        yield _text(f'<message role="{message["role"]}">')
        yield from message["content"]
        yield _text("</message>")


class Usage(BaseSchema):
    """Tokens of the whole conversation, as far as its agent has reported them."""

    prompt_tokens = fields.Integer(required=True)
    completion_tokens = fields.Integer(required=True)
    total_tokens = fields.Integer(required=True)


def _member(name: str, type: str | list[str] = "string") -> dict[str, Any]:
    return {name: {"type": type}}


class ChatChoice(BaseSchema):
    index = fields.Constant(0, metadata={"type": "integer"})
    message = fields.Dict(
        required=True, metadata={"properties": {**_member("role"), **_member("content", ["string", "null"])}}
    )
    finish_reason = fields.String(
        required=True,
        metadata={
            "enum": ["stop", "length"],
            "description": "`length`: an action still waits for a decision. The content names it.",
        },
    )


class ChatCompletion(BaseSchema):
    id = fields.String(required=True)
    object = fields.Constant("chat.completion", metadata={"type": "string"})
    created = fields.Integer(required=True)
    model = fields.String(required=True)
    choices = fields.List(fields.Nested(ChatChoice), required=True)
    usage = fields.Nested(Usage, required=True)


class ResponseObject(BaseSchema):
    """A response of the Responses API."""

    id = fields.String(required=True, metadata={"description": "Id of the response, for previous_response_id."})
    object = fields.Constant("response", metadata={"type": "string"})
    created_at = fields.Float(required=True)
    completed_at = fields.Float(allow_none=True)
    status = fields.String(required=True, metadata={"enum": ["in_progress", "completed", "incomplete", "failed"]})
    error = fields.Dict(allow_none=True)
    incomplete_details = fields.Dict(
        allow_none=True,
        metadata={
            "description": "For `incomplete`: an action still waits for a decision. The text names it.",
        },
    )
    instructions = fields.String(allow_none=True)
    metadata = fields.Dict(allow_none=True)
    model = fields.String(required=True)
    output = fields.List(fields.Dict(), required=True)
    parallel_tool_calls = fields.Constant(False, metadata={"type": "boolean"})
    previous_response_id = fields.String(allow_none=True)
    tool_choice = fields.Constant("none", metadata={"type": "string"})
    tools = fields.List(fields.Dict(), dump_default=list)
    usage = fields.Dict(allow_none=True)


class OpenAIFault(BaseSchema):
    message = fields.String(required=True, metadata={"description": "The error, for people."})
    type = fields.String(required=True)
    param = fields.String(required=True, allow_none=True, metadata={"description": "The invalid member."})
    code = fields.String(required=True, allow_none=True, metadata={"description": "Kind of refusal, for programs."})


class OpenAIError(BaseSchema):
    """Every error below `/v1/`."""

    error = fields.Nested(OpenAIFault, required=True)


def error_of(detail: Any, status: int, code: str = "", param: str | None = None) -> dict[str, Any]:
    """Make an error in OpenAI's shape. detail: a sentence, or the faults of an agent server."""
    kind, usual = _KINDS.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    message = detail if isinstance(detail, str) else json.dumps(detail, ensure_ascii=False)
    return {"error": {"message": message, "type": kind, "param": param, "code": code or usual}}


def faulty(faults: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Make the error of an invalid request. faults: of an HTTPValidationError; the first gives the code."""
    places = [_place(one["loc"]) for one in faults]
    said = "; ".join(
        f"{place}: {one['msg']}" if place else one["msg"] for place, one in zip(places, faults, strict=True)
    )
    return error_of(said, 422, faults[0]["type"], places[0] or None)


def _place(location: Sequence[str | int]) -> str:
    """Return OpenAI's notation of a member: `messages[0].role`."""
    return "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in location[1:]).removeprefix(".")


def usage_of(tokens: Mapping[str, Any]) -> dict[str, int]:
    """Return the token use. tokens: `accumulated_token_usage` of an agent's metrics."""
    read, written = (int(tokens.get(name) or 0) for name in ("prompt_tokens", "completion_tokens"))
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def response_usage(tokens: Mapping[str, Any]) -> dict[str, Any]:
    """Return the token use in the form of the Responses API."""
    use = usage_of(tokens)
    return {
        "input_tokens": use["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": int(tokens.get("cache_read_tokens") or 0)},
        "output_tokens": use["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": int(tokens.get("reasoning_tokens") or 0)},
        "total_tokens": use["total_tokens"],
    }

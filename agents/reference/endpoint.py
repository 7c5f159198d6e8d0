"""A model at an OpenAI-compatible endpoint: one streamed chat completion, with its retries, bounds and errors.

The stream is read as bytes, because endpoints send what no type of a client library says.
"""

import json
import re
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx2
import openai

from agents.reference.llm import Llm
from agents.reference.mind import Tell

#: tries of a request, and most seconds between two of them, also where the endpoint asks for more
TRIES, MOST_PAUSE = 6, 60.0

#: seconds until a connection stands, between two parts of a response, and for a whole response
CONNECT_SECONDS, SILENCE_SECONDS, RESPONSE_SECONDS = 10.0, 120.0, 600.0

#: most characters of a response's text and calls, and most bytes of its stream. An event of both is below 1 MiB
MOST_CHARACTERS, MOST_BYTES = 100_000, 32 << 20

#: seconds between two parts of a response that clients are shown
_SHOWN_EVERY = 0.1

#: how endpoints say that a conversation is too long; they have no common code for it
_TOO_LONG = re.compile(r"context.{0,20}(length|window|size)|maximum context|prompt is too long|too many .*tokens", re.I)

_LOOPBACK = re.compile(r"//(127\.|localhost\b|\[::1\])")


class ModelError(Exception):
    """The model gives no response; the code is one that the SDK classifies, the detail is a sentence of one line."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code, self.detail = code, detail


class Garbage(Exception):
    """The endpoint's response is no chat completion, or reports an error in the middle."""


class Call(NamedTuple):
    """A call of a tool, as it came."""

    id: str
    name: str
    arguments: str


class Reply:
    """A response, as much of it as has come."""

    def __init__(self) -> None:
        self.id = self.text = self.reasoning = ""
        self.is_cut = False  #: it was too long, for us or for the endpoint
        self.usage: dict[str, Any] | None = None
        self.calls: dict[Any, list[str]] = {}  #: id, name and arguments by the call's index

    @property
    def size(self) -> int:
        return len(self.text) + len(self.reasoning) + sum(len("".join(call)) for call in self.calls.values())

    def take(self, chunk: Any) -> tuple[str, str]:
        """Add a chunk, or a whole completion. Returns its text and its reasoning. Raises Garbage."""
        if not isinstance(chunk, dict):
            raise Garbage
        if chunk.get("error"):
            raise Garbage(_line(chunk["error"]))
        self.id = self.id or _text(chunk.get("id"))
        self.usage = chunk["usage"] if isinstance(chunk.get("usage"), dict) else self.usage
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else {}
        delta = (choice.get("delta") or choice.get("message") or {}) if isinstance(choice, dict) else None
        if not isinstance(delta, dict):
            raise Garbage("a choice is no object")
        self.is_cut = self.is_cut or choice.get("finish_reason") == "length"
        text, reasoning = _text(delta.get("content")), _text(delta.get("reasoning_content") or delta.get("reasoning"))
        self.text, self.reasoning = self.text + text, self.reasoning + reasoning
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            self._add(call)
        return text, reasoning

    def _add(self, call: Any) -> None:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise Garbage("a call is no object")
        index = call.get("index")
        if index is None:  # some endpoints number nothing: an id begins a call, and what has none goes on with the last
            index = len(self.calls) if call.get("id") else max(len(self.calls) - 1, 0)
        known = self.calls.setdefault(str(index), ["", "", ""])
        known[0] = known[0] or _text(call.get("id"))
        known[1] += _text(function.get("name"))
        known[2] += _text(function.get("arguments"))


class Endpoint:
    """Any thread may use it."""

    def __init__(self, llm: Llm) -> None:
        self._model = re.sub(r"^(openai|litellm_proxy)/", "", llm.model)  # the SDK's names bear their provider
        self._key, self._url = llm.api_key, llm.base_url
        self._client = openai.OpenAI(
            api_key=llm.api_key or "none",
            base_url=llm.base_url or "https://api.openai.com/v1",
            max_retries=0,
            timeout=openai.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS),
        )

    def ask(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], tell: Tell, most: int) -> Reply:
        """The response to messages, cut off after `most` characters. Raises ModelError, and what `tell` raises.

        A try that failed in the middle of a response begins it again. Cost: at most RESPONSE_SECONDS for each try.
        """
        for tries_left in reversed(range(TRIES)):
            tell("", "")
            try:
                return self._try(messages, tools, tell, most)
            except (openai.APIError, httpx2.HTTPError, httpx2.StreamError, Garbage) as error:
                pause = _pause(error, TRIES - 1 - tries_left)
                if pause is None or not tries_left:
                    raise self._failure(error) from error
                time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _try(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], tell: Tell, most: int) -> Reply:
        reply, unshown, shown_at = Reply(), ["", ""], time.monotonic()
        asked: dict[str, Any] = {"model": self._model, "messages": messages, "tools": tools}
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
        with self._client.chat.completions.with_streaming_response.create(**asked) as response:
            is_stream = "json" not in response.headers.get("content-type", "")
            for data in _payloads(response.iter_bytes(), is_stream):
                unshown = [said + new for said, new in zip(unshown, reply.take(data), strict=True)]
                if any(unshown) and time.monotonic() - shown_at > _SHOWN_EVERY:
                    tell(*unshown)
                    unshown, shown_at = ["", ""], time.monotonic()
                if reply.size > min(most, MOST_CHARACTERS):
                    reply.is_cut = True
                    break
        tell(*unshown)
        if not (reply.text.strip() or reply.calls):
            raise Garbage("it is empty")
        return reply

    def _failure(self, error: Exception) -> ModelError:
        text = _line(error, self._key)
        match error:
            case Garbage():
                return ModelError("LLMNoResponseError", f"The model's endpoint sends no chat completion: {text}")
            case openai.AuthenticationError() | openai.PermissionDeniedError():
                return ModelError("LLMAuthenticationError", f"The model's endpoint refuses the key: {text}")
            case openai.RateLimitError():
                return ModelError("LLMRateLimitError", f"The model's endpoint limits the rate: {text}")
            case openai.APIStatusError(status_code=400 | 413 | 422) if _TOO_LONG.search(f"{error.code} {error}"):
                return ModelError("LLMContextWindowExceedError", f"The conversation is too long for the model: {text}")
            case openai.APIStatusError(status_code=status) if status < 500:
                return ModelError("LLMBadRequestError", f"The model's endpoint refuses the request: {text}")
            case openai.APITimeoutError() | httpx2.TimeoutException():
                return ModelError("LLMTimeoutError", f"The model's endpoint sends nothing for {SILENCE_SECONDS:g} s")
        if _LOOPBACK.search(self._url):
            text += " (a sandbox has a loopback of its own, which is not the host's)"
        return ModelError("LLMServiceUnavailableError", f"The model's endpoint does not answer: {text}")


def _payloads(received: Iterator[bytes], is_stream: bool) -> Iterator[Any]:
    """The JSON of each server-sent event, or of the whole body. Raises Garbage and ModelError."""
    deadline, size, rest = time.monotonic() + RESPONSE_SECONDS, 0, b""
    for part in received:
        size += len(part)
        if size > MOST_BYTES or time.monotonic() > deadline:
            limit = f"{MOST_BYTES} bytes" if size > MOST_BYTES else f"{RESPONSE_SECONDS:g} s"
            raise ModelError("LLMTimeoutError", f"The model's response has not ended within {limit}")
        *lines, rest = (rest + part).split(b"\n") if is_stream else (rest + part,)
        for line in lines:
            if line.startswith(b"data:") and (data := line[5:].strip()) != b"[DONE]":
                yield _json(data)
    if not is_stream:
        yield _json(rest)


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise Garbage("a part is no JSON") from None


def _pause(error: Exception, tries: int) -> float | None:
    """Seconds until the next try; None for an error that stays."""
    pause: float = min(0.5 * 2**tries, 8.0)
    if not isinstance(error, openai.APIStatusError):
        return pause
    passes = error.status_code in (408, 409, 429) or error.status_code >= 500
    if not passes or error.code == "insufficient_quota":
        return None
    try:
        asked = float(error.response.headers.get("retry-after", pause))
    except ValueError:  # a date
        return pause
    return max(asked, 0.0) if asked <= MOST_PAUSE else None


def _text(value: Any) -> str:
    """Text that can be written as UTF-8; "" for what is no text."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


def _line(error: Any, hidden: str = "") -> str:
    text = " ".join(str(error).split())
    text = text.replace(hidden, "…") if hidden else text
    return (text[:500] or type(error).__name__).encode(errors="replace").decode()

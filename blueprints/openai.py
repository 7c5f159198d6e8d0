"""OpenAI's API for agents: models, chat completions and responses. Its errors: `blueprints/errors.py`.

A model is a sandbox spec. A call starts a conversation with an agent in a sandbox, or continues the conversation in its
header `X-OpenHands-ServerConversation-ID`, and returns the agent's output until the agent stops (`agents/turns.py`). An
unknown id becomes the id of the new conversation. Source: the gateway of the published agent server.

Clients retry a failed call automatically. A retry with the messages that the agent is working on sends nothing and
follows that turn. So does a retry with a retry header, even if the turn has ended. A call without a conversation cannot
be retried, because it would start another conversation: its errors forbid it (`X-Should-Retry`).
"""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from flask import Response, g, request
from werkzeug.exceptions import Unauthorized

from agents.starts import StartWaits, started
from agents.turns import MessageTurn, Piece, TurnNotDone, matches_claim
from blueprints import current_commands, current_joiner, current_server, current_specs, current_store
from blueprints.api import Blueprint, InvalidInput, needs, refused
from blueprints.errors import code_of
from blueprints.following import caller_required, event_lines, streamed
from core.access import REVOKED
from core.approvals import digest
from core.cuts import beginning
from core.refused import RefusalKind, Refused
from core.wire import ConversationId, Seq
from schemas.app_conversations import AppConversationStartRequest, combined, echo
from schemas.fields import canonical_id
from schemas.openai import (
    MODEL_PREFIX,
    ChatCompletion,
    ChatCompletionRequest,
    Model,
    ModelList,
    ResponseObject,
    ResponseRequest,
    Words,
    error_of,
    response_usage,
    usage_of,
)
from settings.specs import Spec
from store.approvals.effects import message_claim
from store.errors import REDIS_FULL, UNAVAILABLE, StoreError, StoreFull
from store.link.attempts import is_finished, is_later, minted
from store.sandboxes.start_tasks import StartTask

openai = Blueprint("OpenAI Compatibility", __name__, url_prefix="/v1")

#: Header that names the conversation of a call and of its response.
CONVERSATION = "X-OpenHands-ServerConversation-ID"

#: Headers of OpenAI's clients: number of the retry, and whether the client should retry.
_REPEAT, _SHOULD_RETRY = "X-Stainless-Retry-Count", "X-Should-Retry"

#: Member of an app conversation: the digest of the instructions that its agent received last.
_INSTRUCTED = "instructions_digest"

#: Interval in seconds between two checks that the client of a call without streaming still waits.
_POLL = 1.0

#: Maximum wait for a person's decision in a call without streaming, in seconds. Clients time out after a minute or
#: less.
_DECISION_SECONDS = 10.0

#: Prefix of a response's id. 32 digits of its conversation and 16 random digits follow.
_RESPONSE = "resp_"

_DOCUMENTED = {
    "in": "header",
    "name": CONVERSATION,
    "schema": {"type": "string", "format": "uuid"},
    "description": "The conversation to continue. An unknown id becomes the id of a new conversation. "
    "Default: a new conversation.",
}
_RETURNED = {CONVERSATION: {"description": "The conversation.", "schema": {"type": "string", "format": "uuid"}}}

#: Statuses of refusals of a call.
_REFUSALS = (404, 409, 410, 413, 415, 429, 502)


class ModelNotFound(Refused):
    """No sandbox spec has a model of this name."""

    kind = RefusalKind.MISSING

    def __init__(self, model: str) -> None:
        name = json.dumps(beginning(model, 200))
        super().__init__(f"The model {name} does not exist: GET /v1/models lists those that do")


class PreviousResponseNotFound(Refused):
    """The previous response is unknown, or its conversation was deleted."""

    kind = RefusalKind.MISSING
    words = "previous_response_id is the id of no response whose conversation is there: send the messages without it"


def _spec_of(model: str) -> Spec:
    """Return the spec of a model. Raises ModelNotFound."""
    spec = current_specs.find(model.removeprefix(MODEL_PREFIX)) if model.startswith(MODEL_PREFIX) else None
    if spec is None:
        raise ModelNotFound(model)
    return spec


def _model(spec: Spec) -> dict[str, Any]:
    return {"id": f"{MODEL_PREFIX}{spec.id}", "created": int(spec.created_at.timestamp())}


@openai.get("/models")
@needs("read")
@openai.fails()
@openai.response(200, ModelList)
def list_models() -> dict[str, Any]:
    """List the models: one for each sandbox spec, the default one first."""
    return {"data": [_model(spec) for spec in current_specs.all]}


@openai.get("/models/<path:model>")
@needs("read")
@openai.fails()
@openai.response(200, Model)
def get_model(model: str) -> dict[str, Any]:
    """Get a model."""
    return _model(_spec_of(model))


def _is_start() -> bool:
    """Return whether a call starts a conversation, by its headers."""
    return CONVERSATION not in request.headers


@openai.post("/chat/completions")
@needs("write")
@openai.starts_if(_is_start)
@openai.replay(remade=True)
@openai.fails(*_REFUSALS)
@openai.doc(parameters=[_DOCUMENTED])
@openai.arguments(ChatCompletionRequest())
@openai.alt_response(200, schema={"type": "string"}, content_type="text/event-stream", headers=_RETURNED)
@openai.response(200, ChatCompletion, headers=_RETURNED)
def create_chat_completion(call: dict[str, Any]) -> Any:
    """Send messages to an agent and get its reply, as a stream with `stream`."""
    spec, words = _spec_of(call["model"]), call["words"]
    turn = _turn(spec, words, _conversation_in_header() or _of_chat(words))
    options = call.get("stream_options") or {}
    telling = ChatTelling(call["model"], turn, words, with_usage=options.get("include_usage", False))
    return _streamed(telling) if call["stream"] else telling.whole(_waited(turn))


@openai.post("/responses")
@needs("write")
@openai.starts_if(_is_start)
@openai.replay(remade=True)
@openai.fails(*_REFUSALS)
@openai.doc(parameters=[_DOCUMENTED])
@openai.arguments(ResponseRequest())
@openai.alt_response(200, schema={"type": "string"}, content_type="text/event-stream", headers=_RETURNED)
@openai.response(200, ResponseObject, headers=_RETURNED)
def create_response(call: dict[str, Any]) -> Any:
    """Send an input to an agent and get its response, as a stream with `stream`."""
    spec = _spec_of(call["model"])
    previous = call["previous_response_id"]
    turn = _turn(spec, call["words"], _conversation_in_header() if previous is None else _of_response(previous))
    telling = Responses(call, turn)
    return _streamed(telling) if call["stream"] else telling.whole(_waited(turn))


@openai.after_request
def _tell_conversation(response: Response) -> Response:
    """Name the conversation in every response to a call, including errors."""
    conversation_id = g.get("conversation_of_call")
    if conversation_id is None:
        return response
    response.headers[CONVERSATION] = conversation_id
    if response.status_code >= 400 and not g.call_can_be_repeated:
        response.headers[_SHOULD_RETRY] = "false"
    return response


def _conversation_in_header() -> ConversationId | None:
    """Return the conversation in the header. Raises InvalidInput."""
    text = request.headers.get(CONVERSATION)
    with refused("header", CONVERSATION):
        return ConversationId(canonical_id(text)) if text else None


def _of_chat(words: Words) -> ConversationId | None:
    """Return the remembered conversation whose reply precedes the new messages; None if it is unknown or deleted."""
    if not words.earlier:
        return None
    conversations = current_store.conversations
    found = conversations.chats.take(g.principal.key_id, words.earlier, words.recent)
    return found if found and conversations.get_many([found]) != [None] else None


def _of_response(identity: str) -> ConversationId:
    """Return the conversation of an earlier response. Raises PreviousResponseNotFound, InvalidInput."""
    digits = identity.removeprefix(_RESPONSE)
    try:
        found = ConversationId(str(UUID(digits[:32]))) if len(digits) == 48 and identity.startswith(_RESPONSE) else None
    except ValueError:
        found = None
    if found is None or current_store.conversations.get_many([found]) == [None]:
        raise PreviousResponseNotFound
    if _conversation_in_header() not in (None, found):
        text = "The header should name the conversation of previous_response_id, or be absent"
        raise InvalidInput("header", {CONVERSATION: [text]})
    return found


def _turn(spec: Spec, words: Words, named: ConversationId | None) -> MessageTurn:
    """Return the turn of a call: in a new conversation, after another message, or a running turn."""
    conversation_id = named or ConversationId(str(minted("conversation")))
    g.conversation_of_call = conversation_id
    g.call_can_be_repeated = True
    [state] = current_store.conversations.get_many([conversation_id])
    is_new, content = False, words.new
    if state is None or _is_starting(state):
        g.call_can_be_repeated = named is not None or "Idempotency-Key" in request.headers
        try:
            state, is_new = started(current_store, conversation_id, partial(_start, conversation_id, spec, words.whole))
        except StartWaits:
            if not g.call_can_be_repeated:  # a retry starts another conversation
                current_store.start_tasks.end_of(conversation_id)
            raise
        content = words.whole if is_new else content
    is_instructed = _has_new_instructions(words, state)
    has_run = state["execution_status"] in ("running", "waiting_for_confirmation")
    after: Seq | None = Seq(0)
    instructed = [*words.instructions, *words.new]
    if not is_new and (under_way := _under_way(conversation_id, (words.new, instructed, words.whole), has_run)):
        after, content = under_way
    elif not is_new:
        after, content = None, instructed if is_instructed else content
    turn = MessageTurn(
        current_store._get_current_object(),  # type: ignore[attr-defined]
        conversation_id,
        current_store.streams.events.follow(conversation_id, after),
        content,
        has_run=has_run and after is None,
        place=_place_of(conversation_id),
    )
    try:
        if after is None:
            current_commands.send(conversation_id, content=content, run=True)
        if is_instructed:
            current_store.conversations.update(conversation_id, app={_INSTRUCTED: digest(words.instructions)})
    except BaseException:
        turn.close()
        raise
    return turn


def _has_new_instructions(words: Words, state: dict[str, Any]) -> bool:
    """Return whether the instructions of a call differ from the last ones. Clients send them with every call."""
    return bool(words.instructions) and state["app"].get(_INSTRUCTED) != digest(words.instructions)


def _place_of(conversation_id: ConversationId) -> str:
    """Return the URL where a person decides the pending actions of a conversation."""
    base = current_server().config.http.public_url or request.root_url
    return f"{base.rstrip('/')}/console/#/conversations/{conversation_id}"


def _is_starting(state: dict[str, Any]) -> bool:
    """Return whether a conversation's agent is starting: `started` waits for it."""
    start_id = state["app"].get("start_id")
    [start] = current_store.start_tasks.get_many([start_id]) if start_id else [None]
    return start is not None and start.status != "READY"


def _start(conversation_id: ConversationId, spec: Spec, content: list[dict[str, Any]]) -> tuple[StartTask, bool]:
    message = {"role": "user", "content": content, "run": True}
    wanted = AppConversationStartRequest().load({"conversation_id": conversation_id, "sandbox_spec_id": spec.id})
    wanted["initial_message"] = message
    joiner = current_joiner()
    return current_store.start_tasks.create_beside_none(wanted, echo=echo(wanted), owner=joiner.owner, joiner=joiner)


def _under_way(
    conversation_id: ConversationId, wordings: Sequence[list[dict[str, Any]]], runs: bool
) -> tuple[Seq, list[dict[str, Any]]] | None:
    """Return the turn that a retry asks for: the seq before its message, and its content; None for a new call.

    runs: whether the agent works, or waits for a decision.
    """
    is_repeat = is_finished() or is_later() or request.headers.get(_REPEAT, "0") != "0"
    if not runs and not is_repeat:
        return None
    last, _ = current_store.events.search(conversation_id, kind="MessageEvent", source="user", descending=True, limit=1)
    for content in wordings if last else ():
        if matches_claim(message := json.loads(last[0]), message_claim(content)):
            return Seq(current_store.events.seq(conversation_id, message["id"]) - 1), content
    return None


def _waited(turn: MessageTurn) -> list[Piece]:
    """Return an agent's output until it stops, or until an action has waited _DECISION_SECONDS for a decision.

    Raises TurnNotDone, ClientGone, Unauthorized if the key ends meanwhile, and the failure of the turn.
    """
    seconds, asked_at = current_server().config.http.completion_seconds, None
    deadline, pieces, require_client = time.monotonic() + seconds, list[Piece](), caller_required()
    with turn, current_server().guard.following.going_on(g.principal, turn.close):
        while not turn.is_over and (remaining := deadline - (now := time.monotonic())) > 0:
            asked_at = (asked_at or now) if turn.waits else None
            if asked_at and now - asked_at > _DECISION_SECONDS:
                break
            try:
                pieces += turn.next(min(_POLL, remaining))
            except UNAVAILABLE:
                turn.pause()
            if turn.closed:
                raise Unauthorized(REVOKED)
            require_client()
        if turn.failure:
            raise turn.failure
        if not turn.is_over and not turn.waits:
            raise TurnNotDone(seconds)
    return pieces


class Telling(ABC):
    """Formats a turn in a shape of OpenAI's. As the source of a stream it returns frames."""

    def __init__(self, model: str, turn: MessageTurn) -> None:
        self.model = model
        self._turn = turn
        self._conversation_id: ConversationId = g.conversation_of_call
        self.created = int(time.time())
        self.said = ""  #: streamed text
        self._has_ended = False

    @property
    def seq(self) -> int:
        return self._turn.seq

    @property
    def closed(self) -> bool:
        return self._has_ended or self._turn.closed

    def pause(self) -> None:
        self._turn.pause()

    def close(self) -> None:
        self._turn.close()

    def next(self, timeout: float) -> list[bytes]:
        """Return the next frames. Raises one of UNAVAILABLE; call it again then."""
        try:
            frames = [frame for piece in self._turn.next(timeout) for frame in self._frames_of(piece)]
            if self._turn.is_over:
                frames += self._failed(self._turn.failure) if self._turn.failure else self._end()
                self._has_ended = True
        except UNAVAILABLE:
            raise
        except StoreError as error:  # the server stops, the conversation was deleted, or the client was too slow
            self._has_ended = True
            return list(self._failed(error))
        return frames

    def _frames_of(self, piece: Piece) -> Iterator[bytes]:
        if piece.kind == "step":
            yield from self._step(piece.text)
            return
        text = f"\n\n{piece.text}" if self.said else piece.text
        self.said += text
        yield from self._delta(text)

    def _own_id(self) -> str:
        """Return 32 digits of the conversation and 16 random digits."""
        return f"{UUID(self._conversation_id).hex}{uuid4().hex[:16]}"

    def _tokens(self) -> dict[str, Any]:
        """Return the conversation's token use, as its agent reported it."""
        use = combined(self._turn.stats())
        return use["accumulated_token_usage"] if use else {}

    @property
    def first(self) -> bytes:
        """Return the frames before all others."""
        return b"".join(self._begin())

    @abstractmethod
    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """Return the response to a call without streaming."""

    @abstractmethod
    def _begin(self) -> Iterator[bytes]: ...

    @abstractmethod
    def _delta(self, text: str) -> Iterator[bytes]: ...

    def _step(self, text: str) -> Iterator[bytes]:  # noqa: ARG002
        yield from ()

    @abstractmethod
    def _end(self) -> Iterator[bytes]: ...

    @abstractmethod
    def _failed(self, error: Refused) -> Iterator[bytes]: ...


def text_of(pieces: Sequence[Piece], *, is_over: bool) -> str:
    """Return the reply to a call without streaming.

    It is the agent's last text. If the agent waits or has sent no text, it is all output.
    """
    said = [piece.text for piece in pieces if piece.kind == "text"]
    if is_over and said:
        return said[-1]
    return "\n\n".join(piece.text for piece in pieces if piece.kind != "step")


def _streamed(telling: Telling) -> Response:
    return streamed(telling, lambda frame: frame, telling.first)


def _frame(data: Any, name: str = "") -> bytes:
    return event_lines(json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode(), name=name)


class ChatTelling(Telling):
    def __init__(self, model: str, turn: MessageTurn, words: Words, *, with_usage: bool) -> None:
        super().__init__(model, turn)
        self.id = f"chatcmpl-{self._own_id()}"
        self._words = words
        self._with_usage = with_usage
        self._remember = partial(current_store.conversations.chats.remember, g.principal.key_id)

    def _note_answer(self, text: str) -> None:
        """Remember the chat with its reply, so that the client's next call without a conversation id continues here."""
        answer = {"role": "assistant", "content": [{"type": "text", "text": text}]}
        with suppress(*UNAVAILABLE, REDIS_FULL, StoreFull):
            self._remember([*self._words.earlier, *self._words.recent, answer], self._conversation_id)

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        is_over = self._turn.is_over
        self._note_answer(text_of(pieces, is_over=is_over))
        message = {"role": "assistant", "content": text_of(pieces, is_over=is_over)}
        return {
            "id": self.id,
            "created": self.created,
            "model": self.model,
            "choices": [{"message": message, "finish_reason": "stop" if is_over else "length"}],
            "usage": usage_of(self._tokens()),
        }

    def _chunk(self, delta: dict[str, Any] | None, **members: Any) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": members.pop("reason", None)}]
        head = {"id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model}
        return _frame({**head, "choices": choices, **members})

    def _begin(self) -> Iterator[bytes]:
        yield self._chunk({"role": "assistant", "content": ""})

    def _delta(self, text: str) -> Iterator[bytes]:
        yield self._chunk({"content": text})

    def _step(self, text: str) -> Iterator[bytes]:
        """Stream an agent's step as reasoning, which chat clients show. Other clients ignore the member."""
        yield self._chunk({"reasoning_content": f"{text}\n"})

    def _end(self) -> Iterator[bytes]:
        self._note_answer(self.said)
        yield self._chunk({}, reason="stop")
        if self._with_usage:
            yield self._chunk(None, usage=usage_of(self._tokens()))
        yield b"data: [DONE]\n\n"

    def _failed(self, error: Refused) -> Iterator[bytes]:
        yield _frame(error_of(str(error), error.kind.status, code_of(error)))


class Responses(Telling):
    """A response of the Responses API."""

    def __init__(self, call: dict[str, Any], turn: MessageTurn) -> None:
        super().__init__(call["model"], turn)
        self._call = call
        self.id = f"{_RESPONSE}{self._own_id()}"
        self._message_id = f"msg_{uuid4().hex}"
        self._number = 0

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        is_over = self._turn.is_over
        return self._response("completed" if is_over else "incomplete", text_of(pieces, is_over=is_over))

    def _response(self, status: str, text: str | None = None, error: dict[str, str] | None = None) -> dict[str, Any]:
        """Return the response object. text: None if it is not known yet."""
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": time.time() if status == "completed" else None,
            "status": status,
            "error": error,
            # Of OpenAI's two reasons, only this one means that the output is incomplete.
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": self._call["instructions"],
            "metadata": self._call["metadata"],
            "model": self.model,
            "output": [] if text is None else [self._message(status, text)],
            "parallel_tool_calls": False,
            "previous_response_id": self._call["previous_response_id"],
            "tool_choice": "none",
            "tools": [],
            "usage": None if text is None else response_usage(self._tokens()),
        }

    def _message(self, status: str, text: str | None) -> dict[str, Any]:
        content = [] if text is None else [_part(text)]
        return {"id": self._message_id, "type": "message", "status": status, "role": "assistant", "content": content}

    def _event(self, kind: str, **members: Any) -> bytes:
        frame = _frame({"type": kind, "sequence_number": self._number, **members}, name=kind)
        self._number += 1
        return frame

    def _of_part(self, kind: str, **members: Any) -> bytes:
        return self._event(kind, item_id=self._message_id, output_index=0, content_index=0, **members)

    def _begin(self) -> Iterator[bytes]:
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._response("in_progress"))
        yield self._event("response.output_item.added", output_index=0, item=self._message("in_progress", None))
        yield self._of_part("response.content_part.added", part=_part(""))

    def _delta(self, text: str) -> Iterator[bytes]:
        yield self._of_part("response.output_text.delta", delta=text, logprobs=[])

    def _end(self) -> Iterator[bytes]:
        yield self._of_part("response.output_text.done", text=self.said, logprobs=[])
        yield self._of_part("response.content_part.done", part=_part(self.said))
        item = self._message("completed", self.said)
        yield self._event("response.output_item.done", output_index=0, item=item)
        yield self._event("response.completed", response=self._response("completed", self.said))

    def _failed(self, error: Refused) -> Iterator[bytes]:
        fault = {"code": code_of(error), "message": str(error)}
        yield self._event("response.failed", response=self._response("failed", error=fault))


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

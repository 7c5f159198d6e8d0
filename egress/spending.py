"""Reads what a model's response says of its usage as it passes, books it, and holds the budgets.

A call is admitted by what was spent so far, and booked before the sandbox has the whole of its response: so calls that
were admitted and are under way are all by which a budget is overshot. The bytes of a response pass as they came.

What is understood: OpenAI's chat completions, responses and embeddings, and Anthropic's messages, as one JSON document
or as server-sent events. What says nothing of its usage, or breaks off before it does, is estimated: BYTES_PER_TOKEN
bytes of a request and of a document are a token, and so is each event of a stream.
"""

import json
import logging
import math
import re
import threading
from collections import deque
from typing import Any

from core.prices import NO_BUDGET, Budgets, ModelBudget, Prices, Used
from egress.services import Headers
from store.errors import UNAVAILABLE, StoreError
from store.spending import Account, ModelSpending, SoFar

log = logging.getLogger("egress")

#: bytes that count as a token where a response says nothing
BYTES_PER_TOKEN = 4

_NOT_BOOKED: tuple[type[Exception], ...] = (StoreError, *UNAVAILABLE)

#: most bytes of a document, and of one event of a stream, that are read whole: of a longer document, as of embeddings,
#: the usage is looked for in its last bytes, and a longer event is left out
MOST_READ, _LAST_BYTES = 4 << 20, 64 << 10

#: calls that could not be booked and are booked later; beyond it the oldest is lost
_MOST_UNBOOKED = 10_000

#: what a model that has no price is called among the labels of /metrics
OTHER = "other"

#: ends of the paths of calls that use no tokens, though they are posted
_FREE = ("/count_tokens", "/input_tokens", "/moderations", "/tokenize")

#: a number of tokens that a provider writes as text
_DECIMAL = re.compile(r"[0-9]{1,13}(?:\.[0-9]{1,6})?")

#: the last event of a stream, by its type
_LAST = ("message_stop", "response.completed", "response.incomplete", "response.failed")


_OF = {
    "MODEL_BUDGET_CONVERSATION": "This conversation has",
    "MODEL_BUDGET_KEY": "The conversations of this key have today (UTC)",
    "MODEL_BUDGET_DAY": "All conversations together have today (UTC)",
}

_THEN = {
    "MODEL_BUDGET_CONVERSATION": "approve more in the inbox, or have an operator of the server raise it",
    **dict.fromkeys(
        ("MODEL_BUDGET_KEY", "MODEL_BUDGET_DAY"),
        "approve more in the inbox, have an operator of the server raise it, or wait until tomorrow",
    ),
}


def used_of(usage: dict[str, Any]) -> Used | None:
    """The tokens of a `usage` as OpenAI or Anthropic shapes it; None: it is neither.

    Source: https://developers.openai.com/api/reference, https://platform.claude.com/docs/en/api/messages; of
    `prompt_cache_hit_tokens` DeepSeek's reference, of `cache_write_tokens` OpenRouter's.
    """
    try:
        return _used_of(usage)
    except _NotANumber:
        return None


class _NotANumber(ValueError):
    """A member of a usage that is there, and of which no number of tokens can be read."""


def _used_of(usage: dict[str, Any]) -> Used | None:
    """Raises _NotANumber."""
    if "prompt_tokens" in usage:
        details = usage.get("prompt_tokens_details")
        cached = _number(details, "cached_tokens") or _number(usage, "prompt_cache_hit_tokens")
        prompt, output = _number(usage, "prompt_tokens"), _number(usage, "completion_tokens")
        return _within(prompt, _with_reasoning(usage, prompt, output), cached, details)
    if "input_tokens_details" in usage:
        details = usage["input_tokens_details"]
        cached = _number(details, "cached_tokens")
        prompt, output = _number(usage, "input_tokens"), _number(usage, "output_tokens")
        return _within(prompt, _with_reasoning(usage, prompt, output), cached, details)
    if "input_tokens" in usage or "output_tokens" in usage:
        of_cache = (_number(usage, "cache_read_input_tokens"), _number(usage, "cache_creation_input_tokens"))
        prompt, output = _number(usage, "input_tokens"), _number(usage, "output_tokens")
        return Used(prompt, _with_reasoning(usage, prompt + sum(of_cache), output), *of_cache)
    return None


def _with_reasoning(usage: dict[str, Any], prompt: int, output: int) -> int:
    """The tokens of the output. Some providers count those of reasoning in the total alone."""
    return max(output, _number(usage, "total_tokens") - prompt)


def _within(prompt: int, output: int, cached: int, details: Any) -> Used:
    """The tokens where those of a cache are among those of the prompt."""
    cached = min(cached, prompt)
    written = min(_number(details, "cache_write_tokens"), prompt - cached)
    return Used(prompt - cached - written, output, cached, written)


def _number(of: Any, name: str) -> int:
    """A number of tokens, also written as a float or as text; 0 where it is absent or null. Raises _NotANumber."""
    number = of.get(name) if isinstance(of, dict) else None
    if number is None:
        return 0
    if isinstance(number, bool) or not isinstance(number, int | float | str):
        raise _NotANumber
    if isinstance(number, str) and not _DECIMAL.fullmatch(number):
        raise _NotANumber
    if not 0 <= (read := float(number)) < 1 << 40:  # false for a NaN too
        raise _NotANumber
    return math.ceil(read)


class UsageReader:
    """What the body of one response says, however it is cut into pieces."""

    def __init__(self) -> None:
        self.model = ""  #: as the response names it
        self.events = 0  #: of a stream
        self.size = 0
        self.is_over = False  #: the last event of a stream, or a whole document, was read
        self._usage: dict[str, Any] = {}
        self._rest = bytearray()
        self._is_stream: bool | None = None
        self._is_too_long = False

    @property
    def used(self) -> Used | None:
        """The tokens that were told so far; None: none were."""
        return used_of(self._usage)

    def read(self, piece: bytes) -> None:
        """Take the next bytes of the body."""
        self.size += len(piece)
        begun = len(self._rest)
        self._rest += piece
        if self._is_stream is None and (begin := self._rest.lstrip(b" \t\r\n\xef\xbb\xbf")[:1]):
            self._is_stream = bytes(begin) not in (b"{", b"[")
        if self._is_stream:
            self._read_lines(begun)
        if len(self._rest) > MOST_READ:
            self._is_too_long = True
            del self._rest[: -_LAST_BYTES if self._is_stream is False else len(self._rest)]

    def _read_lines(self, begun: int) -> None:
        """Take the lines that are whole. begun: bytes in which no end of a line is."""
        # a \r may be the first half of \r\n, whose second half is an empty line then
        end = max(self._rest.rfind(b"\n", begun), self._rest.rfind(b"\r", begun))
        if end < 0:
            return
        lines = bytes(self._rest[: end + 1]).splitlines()
        del self._rest[: end + 1]
        if self._is_too_long:  # the rest of a line whose beginning is gone
            self._is_too_long, lines = False, lines[1:]
        for line in lines:
            if line.startswith(b"data:"):
                self._take_event(line[5:].strip())

    def _take_event(self, data: bytes) -> None:
        self.events += 1
        if data == b"[DONE]":
            self.is_over = True
        elif b'"usage"' in data or not self.model or any(f'"{last}"'.encode() in data for last in _LAST):
            self._take(_document(data))

    def end(self) -> None:
        """The body is whole."""
        if self._is_stream is False and not self.is_over:
            body = bytes(self._rest)
            self._take(_usage_at_end(body) if self._is_too_long else _document(body))
            self.is_over = True
            self._rest.clear()
        elif self._rest:  # a last line that nothing ends
            self.read(b"\n")
            self.size -= 1

    def _take(self, document: Any) -> None:
        if not isinstance(document, dict):
            return
        for each in (document, document.get("response"), document.get("message")):
            if isinstance(each, dict):
                usage, model = each.get("usage"), each.get("model")
                if isinstance(usage, dict):
                    self._usage |= {name: one for name, one in usage.items() if one is not None}
                if isinstance(model, str) and model:
                    self.model = model
        self.is_over = self.is_over or document.get("type") in _LAST


def _document(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _usage_at_end(data: bytes) -> Any:
    """A document with the last `usage` alone, of one whose end is given. Within a text its quotes would be escaped."""
    found = data.rfind(b'"usage"')
    begun = data[found:].partition(b":")[2].lstrip() if found >= 0 else b""
    try:
        return {"usage": json.JSONDecoder().raw_decode(begun.decode(errors="replace"))[0]}
    except (ValueError, RecursionError):
        return None


class OverBudget(Exception):
    """A call that a budget does not admit: a sentence that the sandbox reads. setting: of the budget.

    more: what a person can allow, the same amount once more; bounding nothing: nobody can.
    """

    def __init__(self, setting: str, sentence: str, more: ModelBudget = NO_BUDGET, spent: SoFar | None = None) -> None:
        super().__init__(sentence)
        self.setting, self.more = setting, more
        self.allowed = (spent.allowed_nanos, spent.allowed_tokens) if spent else (0, 0)


def check(budgets: Budgets, account: Account, prices: Prices) -> None:
    """Raises OverBudget where one of the budgets is used up, or cannot be counted."""
    for setting, budget, spent in zip(_OF, budgets, (account.conversation, account.key, account.day), strict=True):
        most = budget.beyond(spent.allowed_nanos, spent.allowed_tokens)
        if why := _used_up(setting, most, spent):
            raise OverBudget(setting, f"{_OF[setting]} {why}", budget, spent)
        if why := _uncounted(setting, budget, spent, prices):
            raise OverBudget(setting, f"{_OF[setting]} {why}")


def _used_up(setting: str, budget: ModelBudget, spent: SoFar) -> str:
    """Why a budget admits no further call, with what was allowed beyond it; empty: it does."""
    if budget.nanos is not None and spent.nanos >= budget.nanos:
        used = f"${spent.nanos / 1e9:.4f} of ${budget.nanos / 1e9:g}"
        return f"used up the budget of models: {used} ({setting}): {_THEN[setting]}"
    if budget.tokens is not None and spent.tokens >= budget.tokens:
        used = f"{spent.tokens} of {budget.tokens} tokens"
        return f"used up the budget of models: {used} ({setting}): {_THEN[setting]}"
    return ""


def _uncounted(setting: str, budget: ModelBudget, spent: SoFar, prices: Prices) -> str:
    """Why a budget admits no call after one that it cannot count; empty: it does."""
    if budget.nanos is not None and budget.tokens is None and spent.unpriced and not prices.known(spent.model):
        form = f"name its price in MODEL_PRICES, or a number of tokens in {setting}"
        return f"used the model {spent.model or 'without a name'}, whose price is not known: {form}"
    return ""


class Accounts:
    """Admits calls of models by the budgets, and books what they used. Any thread may use it."""

    def __init__(self, spending: ModelSpending, budgets: Budgets, prices: Prices) -> None:
        self._spending, self._budgets, self._prices = spending, budgets, prices
        self._lock = threading.Lock()
        self._unbooked: deque[tuple[tuple[Any, ...], dict[str, Any]]] = deque(maxlen=_MOST_UNBOOKED)

    def admit(self, sandbox_id: str, name: str, port: int) -> str:
        """The key of a sandbox that may call the model at a name and port now. Raises OverBudget and UNAVAILABLE."""
        self._book_rest()
        account = self._spending.so_far(sandbox_id)
        if account is None:
            return ""
        try:
            check(self._budgets, account, self._prices)
        except OverBudget as over:
            log.info("sandbox %s: a call of a model is refused: %s", sandbox_id, over)
            words = (sandbox_id, account.owner, over.setting, name, port, str(over))
            told = self._spending.refuse(*words, more=over.more, day=account.today, allowed=over.allowed)
            raise OverBudget(over.setting, f"{over}; {told}" if told else str(over)) from None
        return account.owner

    def book(self, sandbox_id: str, owner: str, model: str, used: Used, *, calls: int, estimated: int) -> None:
        """Count what a call has used; later where the store does not answer now."""
        label, price = self._prices.known(model), self._prices.of(model)
        nanos = None if price is None else price.nanos(used)
        with self._lock:
            told = {"model": model, "calls": calls, "estimated": estimated}
            self._unbooked.append(((sandbox_id, owner, label or OTHER, used, nanos), told))
        try:
            self._book_rest()
        except _NOT_BOOKED as error:
            log.warning("sandbox %s: what a call of a model used is booked later: %s", sandbox_id, error)

    def _book_rest(self) -> None:
        """Raises UNAVAILABLE, and what was not booked is kept."""
        while True:
            with self._lock:
                if not self._unbooked:
                    return
                each = self._unbooked.popleft()
            try:
                self._spending.book(*each[0], **each[1])
            except _NOT_BOOKED:
                with self._lock:
                    self._unbooked.appendleft(each)
                raise


def refused(path: str, headers: Headers, over: OverBudget) -> tuple[int, dict[str, Any]]:
    """The status and the body of a refusal in the shape of the provider that a request is for.

    Neither is one that clients retry: they know both as a quota that is used up. Source: Anthropic's errors (402
    `billing_error`), OpenAI's error codes (429 `insufficient_quota`).
    """
    if path.endswith("/messages") or any(name.lower() == b"anthropic-version" for name, _ in headers):
        return 402, {"type": "error", "error": {"type": "billing_error", "message": str(over)}}
    code = "insufficient_quota"
    return 429, {"error": {"message": str(over), "type": code, "param": None, "code": code}}


class ModelCall:
    """One call of a model that was admitted: read as its response passes, and booked once, before it is whole."""

    def __init__(self, accounts: Accounts, sandbox_id: str, owner: str, path: str, model: str) -> None:
        """path: without the query. model: where the response names none."""
        self._accounts, self._whose, self._model = accounts, (sandbox_id, owner), model
        # What a server decodes or cuts off may be the end of the path.
        self._is_free = path.endswith(_FREE) and "%" not in path and ";" not in path
        self._reader = UsageReader()
        self._left: int | None = None
        self._is_success = False
        self._booked: Used | None = None

    def begin(self, status: int, headers: Headers) -> None:
        """The head of the response has come."""
        self._is_success = 200 <= status < 300
        length = next((value for name, value in headers if name.lower() == b"content-length"), b"")
        self._left = int(length) if length.isdigit() else None

    def read(self, piece: bytes, sent: int) -> None:
        """Take bytes of the body before they are passed on. sent: bytes of the request."""
        self._reader.read(piece)
        if self._left is not None and self._reader.size >= self._left:
            self._reader.end()
        if self._reader.is_over:
            self.book(sent, is_whole=True)

    def book(self, sent: int, *, is_whole: bool) -> None:
        """Count what was used, as far as it is not counted. is_whole: the response has come to its end."""
        if is_whole:
            self._reader.end()
        told, is_estimated = self._reader.used, False
        is_unread = told is None or not told.tokens or not is_whole
        if self._is_success and not self._is_free and self._booked is None and is_unread:
            told, is_estimated = self._estimated(sent, told), True
        if told is None:
            return
        more = told.beyond(self._booked or Used())
        if self._booked is None or more.tokens:
            is_first, self._booked = self._booked is None, told
            model = self._reader.model or self._model
            self._accounts.book(*self._whose, model, more, calls=int(is_first), estimated=int(is_estimated))

    def _estimated(self, sent: int, told: Used | None) -> Used:
        reader = self._reader
        output = reader.events or reader.size // BYTES_PER_TOKEN
        if told is None:
            return Used(sent // BYTES_PER_TOKEN, output)
        return Used(told.input, max(told.output, output), told.cached, told.written)

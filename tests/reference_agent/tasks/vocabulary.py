"""The words in which a task is written: a model that reads what the agent tells it, and decides by that alone.

A model is a generator. It yields a call, gets what it is told next as a `ReadingModel`, and returns its last words:

    def model(told):
        told = yield run("make test")
        told.find("1 failed")
        ...
        return "The test passes."

What it did not expect it says, and the task has failed (`Player.fault`).
"""

import json
import re
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from tests.agents.scripted_model import USAGE, ScriptedReply, calls, edit, finish, refusal, run, text

__all__ = ["End", "Model", "Player", "ReadingModel", "call", "edit", "key", "run", "wait"]

#: a call of a tool: its name and its arguments
Call = tuple[str, dict[str, Any]]

#: characters of a request that the endpoint takes, where a task says no other number
MOST_CHARACTERS = 400_000

#: most characters of a result that a message of a fault repeats
_MOST_READ = 1500


class Unexpected(Exception):
    """The model reads something that it did not expect; the message is a sentence."""


class ReadingModel:
    """What the model is told: the body of a request."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.messages = body["messages"]
        self.tools = [tool["function"]["name"] for tool in body.get("tools", [])]
        self.size = len(json.dumps(body))

    def texts(self, role: str) -> list[str]:
        return [str(message["content"]) for message in self.messages if message["role"] == role]

    @property
    def prompt(self) -> str:
        return "\n".join(self.texts("system"))

    @property
    def text(self) -> str:
        """The last message: mostly the result of the last call."""
        return str(self.messages[-1]["content"])

    @property
    def code(self) -> int:
        """The exit code of the last command; -1: it is still running."""
        found = re.search(r"\(exit code (-?\d+)\)\s*$", self.text)
        return int(found[1]) if found else 0

    def find(self, pattern: str, text: str | None = None) -> re.Match[str]:
        """Find a pattern in the last message, or in a text. Raises Unexpected."""
        text = self.text if text is None else text
        if found := re.search(pattern, text, re.MULTILINE):
            return found
        shown = text if len(text) <= _MOST_READ else f"{text[: _MOST_READ // 2]} … {text[-_MOST_READ // 2 :]}"
        raise Unexpected(f"I expected {pattern!r}, and I read: {shown}")

    def find_all(self, pattern: str) -> list[str]:
        """Find a pattern at least once in the last message. Raises Unexpected."""
        self.find(pattern)
        return re.findall(pattern, self.text, re.MULTILINE)

    def ended(self, code: int = 0) -> "ReadingModel":
        """Expect that the last command has ended with a code. Raises Unexpected."""
        if self.code != code:
            raise Unexpected(f"I expected the exit code {code}, and it is {self.code}: {self.text[-_MOST_READ:]}")
        return self

    def needs(self, *tools: str) -> None:
        """Expect tools. Raises Unexpected."""
        if missing := {*tools} - {*self.tools}:
            raise Unexpected(f"I need {', '.join(sorted(missing))}, and I have {', '.join(self.tools)}")


Model = Callable[[ReadingModel], Generator[Call, ReadingModel, str]]


class End(NamedTuple):
    """How a task has ended."""

    status: str
    detail: str  #: of the error with which it ended; "" if there is none
    words: str  #: the last words of the model
    read: list[ReadingModel]  #: all requests
    events: list[dict[str, Any]]


class Player:
    """The endpoint of a model: it refuses what is too long, and writes a summary when it is asked for one."""

    def __init__(self, models: dict[str, Model], most: int = MOST_CHARACTERS) -> None:
        """models: by the request that their conversation begins with. most: characters of a request."""
        self._models, self._most = models, most
        self._running = dict[str, Generator[Call, ReadingModel, str]]()
        self._ended = set[str]()
        self.read = list[ReadingModel]()
        self.refused = 0
        self.fault = ""

    def __call__(self, body: dict[str, Any]) -> ScriptedReply:
        told = ReadingModel(body)
        if told.size > self._most:
            self.refused += 1
            return refusal(400, f"This model's maximum context length is {self._most} characters: {told.size}")
        usage = {**USAGE, "prompt_tokens": told.size // 4}
        if not told.tools:
            return text(_summary(told.text), usage=usage)
        self.read.append(told)
        try:
            return calls(self._next(told), usage=usage)
        except Exception as error:  # of the endpoint's thread: the agent would only see a connection that ends
            self.fault = self.fault or (str(error) if isinstance(error, Unexpected) else repr(error))
            return calls(finish(f"This is not what I expected. {self.fault}"), usage=usage)

    def _next(self, told: ReadingModel) -> Call:
        begin = next((name for name in self._models if any(name in one for one in told.texts("user"))), None)
        if begin is None:
            raise Unexpected(f"I no longer know my task: {told.texts('user')}")
        if begin in self._ended:
            raise Unexpected(f"I had finished, and I am asked again: {told.text}")
        try:
            if begin in self._running:
                return self._running[begin].send(told)
            self._running[begin] = self._models[begin](told)
            return next(self._running[begin])
        except StopIteration as end:
            self._ended.add(begin)
            return finish(end.value)


def _summary(asked: str) -> str:
    """The numbers that the tasks give, which is what a summary has to keep."""
    found = dict(re.findall(r"[Pp]art (\d+) has the number (\d+)", asked))
    return "FINDINGS: " + " ".join(f"Part {part} has the number {number}." for part, number in found.items())


def call(name: str, /, **arguments: Any) -> Call:
    """A call of any other tool."""
    return name, {**arguments, "security_risk": "LOW", "summary": f"call {name}"}


def wait() -> Call:
    """Wait for more output of the command that is running."""
    return run("")


def key(text: str) -> Call:
    """Type a line, or a key such as C-c, into the program that is running."""
    return run(text, is_input=True)

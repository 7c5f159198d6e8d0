"""The trace that a request belongs to, as far as agents and what is stored have part in it: docs/monitoring.md.

A batch that opens actions leaves its W3C `traceparent` in their records; their decision leaves it in the conversation
for the agent's next batch. Nothing is left where requests are not traced.
"""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Protocol

from wire import ConversationId


class Trace(Protocol):
    """The trace of one request. `tracing.py` has the one of OpenTelemetry."""

    @property
    def traceparent(self) -> str:
        """What carries it on, as W3C has it; empty where the request is not sampled."""

    def call(self, method: str) -> AbstractContextManager[dict[str, str]]:
        """A call of an agent server, with the headers that carry the trace on."""

    def note_decided(self, conversation_id: ConversationId, actions: list[dict[str, Any]]) -> None:
        """Note decided actions. Each: verb, since (UTC text), tool and call (as JSON, "" none), trace (traceparent)."""

    def note_next(self, conversation_id: ConversationId, traceparent: str) -> None:
        """Note that the request brings the first events of the agent after a decision of that trace."""


_present: ContextVar[Trace | None] = ContextVar("trace", default=None)


@contextmanager
def entered(trace: Trace) -> Iterator[None]:
    """Within the block this is the trace of this thread."""
    token = _present.set(trace)
    try:
        yield
    finally:
        _present.reset(token)


def present() -> Trace | None:
    """The trace of this thread; None where the request is not traced."""
    return _present.get()


def kept() -> dict[str, str]:
    """What a record keeps of the present trace: `trace`, a W3C traceparent, or nothing."""
    trace = _present.get()
    return {"trace": trace.traceparent} if trace and trace.traceparent else {}


def call(method: str) -> AbstractContextManager[dict[str, str]]:
    """A call of an agent server within the block, with the headers that carry the present trace on, if there is one."""
    trace = _present.get()
    return trace.call(method) if trace else nullcontext({})


def note_decided(conversation_id: ConversationId, decided: str) -> None:
    """Note the decided actions that have a trace, as `decide_pending.lua` returns them; "" none."""
    if decided and (trace := _present.get()):
        trace.note_decided(conversation_id, json.loads(decided))


def note_next(conversation_id: ConversationId, traceparent: str) -> None:
    """Note what `append_events.lua` returns of a decision before the batch; "" nothing."""
    if traceparent and (trace := _present.get()):
        trace.note_next(conversation_id, traceparent)

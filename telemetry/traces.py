"""The trace that a request belongs to, carried on through agents and through what is stored: docs/monitoring.md.

A batch that opens actions leaves its W3C `traceparent` in their records; their decision leaves it in the conversation
for the agent's next batch, and for a supervisor that delivers it. A start task and a sandbox that starts keep that of
their request. Nothing is left where requests are not traced.
Only the standard library is imported here: the gunicorn master asks whether OpenTelemetry's variables want traces.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TYPE_CHECKING

from core.wire import ConversationId, Micros

if TYPE_CHECKING:
    from telemetry.spans import Spans, SpanTrace

_present: "ContextVar[SpanTrace | None]" = ContextVar("trace", default=None)
_process: "Spans | None" = None


#: OpenTelemetry's variables that name a receiver of traces
_RECEIVERS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

#: the one protocol of the exporter that requirements/otel.txt has
_PROTOCOL = "http/protobuf"

#: what the exporter and the SDK are imported as
_PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def use(process: "Spans | None") -> None:
    """From now on this process continues stored traces with these; None: it continues none."""
    global _process
    _process = process


@contextmanager
def entered(trace: "SpanTrace") -> Iterator[None]:
    """Within the block this is the trace of this thread."""
    token = _present.set(trace)
    try:
        yield
    finally:
        _present.reset(token)


def present() -> "SpanTrace | None":
    """The trace of this thread; None where the request is not traced."""
    return _present.get()


def traceparent() -> str:
    """What carries the present trace on, as W3C has it; empty where there is none, or it is not sampled."""
    trace = _present.get()
    return trace.traceparent if trace else ""


def kept() -> dict[str, str]:
    """What a record keeps of the present trace: `trace`, a W3C traceparent, or nothing."""
    return {"trace": known} if (known := traceparent()) else {}


def call(method: str) -> AbstractContextManager[dict[str, str]]:
    """A call of an agent server within the block, with the headers that carry the present trace on, if there is one."""
    trace = _present.get()
    return trace.call(method) if trace else nullcontext({})


def note_decided(conversation_id: ConversationId, decided: str) -> None:
    """Note the decided actions that have a trace, as `decide_pending.lua` returns them; "" none."""
    if decided and (traced := _present.get() or _process):
        traced.note_decided(conversation_id, json.loads(decided))


def note_next(conversation_id: ConversationId, traceparent: str) -> None:
    """Note what `append_events.lua` returns of a decision before the batch; "" nothing."""
    if traceparent and (trace := _present.get()):
        trace.note_next(conversation_id, traceparent)


@contextmanager
def continued(traceparent: str, name: str, attributes: Mapping[str, str]) -> Iterator[None]:
    """Within the block a span of a trace that the store has kept; nothing where there is none. An error fails it."""
    if not traceparent or _process is None:
        yield
        return
    with _process.continued(traceparent, name, attributes) as trace, entered(trace):
        yield


def fail(error: str) -> None:
    """Note that what the present trace is about has failed. error: a status, or the name of an error."""
    if trace := _present.get():
        trace.fail(error)


def note(traceparent: str, name: str, attributes: Mapping[str, str], since: Micros, error: str = "") -> None:
    """A span of a trace that the store has kept, from a time until now; nothing where there is none."""
    if traceparent and _process is not None:
        _process.note(traceparent, name, attributes, since, error)


def wants_traces(variables: Mapping[str, str]) -> bool:
    """Whether a receiver is named, or the exporter `otlp`, and neither the SDK nor the exporter is switched off."""
    exporter = variables.get("OTEL_TRACES_EXPORTER", "").strip()
    if exporter == "none" or variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    return bool(exporter) or any(variables.get(name, "").strip() for name in _RECEIVERS)


def hindrance(variables: Mapping[str, str]) -> str | None:
    """Why nothing is traced although traces are wanted, as a sentence; None: requests are traced."""
    exporter = variables.get("OTEL_TRACES_EXPORTER", "").strip()
    if exporter not in ("", "otlp"):
        return f"OTEL_TRACES_EXPORTER is {exporter!r}: nothing is traced. Allowed are otlp and none."
    of_all = variables.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip()
    protocol = variables.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "").strip() or of_all
    if protocol not in ("", _PROTOCOL):
        return f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}: nothing is traced. Allowed is {_PROTOCOL}."
    if not all(map(_is_there, _PACKAGES)):
        return (
            "OTEL_… asks for traces, and the packages of OpenTelemetry are not installed: nothing is traced. "
            "pip install -r requirements/otel.txt"
        )
    return None


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ImportError:  # of a package around it
        return False

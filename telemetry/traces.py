"""The trace of a request, propagated through agents and stored records: docs/monitoring.md.

A batch that opens actions stores its W3C `traceparent` in their records. Their decision stores it in the conversation,
for the agent's next batch and for a supervisor that delivers the decision. A start task and a starting sandbox store
that of their request. Without traces nothing is stored.

Standard library only: the gunicorn master checks whether OpenTelemetry's variables enable traces.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TYPE_CHECKING

from core.wire import ConversationId, Micros

if TYPE_CHECKING:
    from telemetry.spans import ProcessSpans, SpanTrace

_present: "ContextVar[SpanTrace | None]" = ContextVar("trace", default=None)
_process: "ProcessSpans | None" = None


#: OpenTelemetry's variables that name a receiver of traces.
_RECEIVERS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

#: The only protocol of the exporter in requirements/otel.txt.
_PROTOCOL = "http/protobuf"

#: Modules of the SDK and the exporter.
_PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def use(process: "ProcessSpans | None") -> None:
    """Continue stored traces of this process with these spans; None: continue none."""
    global _process
    _process = process


@contextmanager
def entered(trace: "SpanTrace") -> Iterator[None]:
    """Make it the trace of this thread during the block."""
    token = _present.set(trace)
    try:
        yield
    finally:
        _present.reset(token)


def present() -> "SpanTrace | None":
    """Return the trace of this thread; None if the request is not traced."""
    return _present.get()


def traceparent() -> str:
    """Return the W3C traceparent of the current trace; empty if there is none, or it is not sampled."""
    trace = _present.get()
    return trace.traceparent if trace else ""


def kept() -> dict[str, str]:
    """Return the fields of a record for the current trace: `trace`, a W3C traceparent, or none."""
    return {"trace": known} if (known := traceparent()) else {}


def call(method: str) -> AbstractContextManager[dict[str, str]]:
    """Open a span for a call of an agent server, and yield the headers that propagate the current trace, if any."""
    trace = _present.get()
    return trace.call(method) if trace else nullcontext({})


def note_decided(conversation_id: ConversationId, decided: str) -> None:
    """Record the decided actions with a trace, from `decide_pending.lua`; "" none."""
    if decided and (traced := _present.get() or _process):
        traced.note_decided(conversation_id, json.loads(decided))


def note_next(conversation_id: ConversationId, traceparent: str) -> None:
    """Record a decision before the batch, from `append_events.lua`; "" none."""
    if traceparent and (trace := _present.get()):
        trace.note_next(conversation_id, traceparent)


@contextmanager
def continued(traceparent: str, name: str, attributes: Mapping[str, str]) -> Iterator[None]:
    """Open a span of a stored trace during the block, if there is one. An error fails it."""
    if not traceparent or _process is None:
        yield
        return
    with _process.continued(traceparent, name, attributes) as trace, entered(trace):
        yield


def fail(error: str) -> None:
    """Mark the current trace as failed. error: a status, or the name of an error."""
    if trace := _present.get():
        trace.fail(error)


def note(traceparent: str, name: str, attributes: Mapping[str, str], since: Micros, error: str = "") -> None:
    """Record a span of a stored trace, from a time until now, if there is one."""
    if traceparent and _process is not None:
        _process.note(traceparent, name, attributes, since, error)


def wants_traces(variables: Mapping[str, str]) -> bool:
    """Return whether a receiver or the exporter `otlp` is configured, and neither SDK nor exporter is disabled."""
    exporter = variables.get("OTEL_TRACES_EXPORTER", "").strip()
    if exporter == "none" or variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    return bool(exporter) or any(variables.get(name, "").strip() for name in _RECEIVERS)


def hindrance(variables: Mapping[str, str]) -> str | None:
    """Return why traces are enabled but impossible, as a sentence; None if they are possible."""
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
    except ImportError:  # of its parent package
        return False

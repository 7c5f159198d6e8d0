"""Spans by OpenTelemetry, of requests and of the supervisors' work for them. Source: docs/monitoring.md.

A process imports this module only if traces are enabled, and a worker after its fork, because each process needs its
own exporter thread and connections. Spans have names, numbers and ids, and nothing of messages, arguments, paths,
queries or headers.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry.context import Context, attach, detach
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from core.wire import API_VERSION, ConversationId, Micros, micros

#: Revision of the semantic conventions for the names of attributes.
SEMANTIC_CONVENTIONS = "https://opentelemetry.io/schemas/1.41.0"

CONVERSATION, TOOL, CALL = "gen_ai.conversation.id", "gen_ai.tool.name", "gen_ai.tool.call.id"
METHOD, ERROR, DECISION = "http.request.method", "error.type", "agent_server.decision"

#: Maximum number of characters of an attribute: a tool's name is text of an agent.
_LONGEST = 256

_W3C = TraceContextTextMapPropagator()


class ProcessSpans:
    """The spans of a process."""

    def __init__(self) -> None:
        """Raises ValueError for a variable that the SDK cannot read."""
        named = Resource({"service.name": "agent-server", "service.version": API_VERSION})
        self._provider = TracerProvider(
            resource=named.merge(OTELResourceDetector().detect()),
            span_limits=SpanLimits(max_span_attribute_length=_LONGEST),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self.tracer = self._provider.get_tracer("agent-server", API_VERSION, schema_url=SEMANTIC_CONVENTIONS)

    def end(self, seconds: float) -> None:
        """Send pending spans, within a timeout in seconds."""
        sending = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        sending.start()
        sending.join(seconds)

    @contextmanager
    def continued(self, traceparent: str, name: str, attributes: Mapping[str, str]) -> Iterator["SpanTrace"]:
        """Open a span of a stored trace. An error fails it."""
        trace = SpanTrace(self.tracer, name, _W3C.extract({"traceparent": traceparent}, Context()))
        trace.span.set_attributes(attributes)
        with trace.current():
            try:
                yield trace
            except Exception as error:
                trace.fail(type(error).__name__)
                raise

    def note(self, traceparent: str, name: str, attributes: Mapping[str, str], since: Micros, error: str) -> None:
        """Record a span of a stored trace, from a time by Redis' clock until now.

        error: its reason; empty for success.
        """
        span = _kept_span(self.tracer, traceparent, name, attributes, since)
        if error:
            fail(span, error)
        span.end()

    def note_decided(self, conversation_id: ConversationId, actions: list[dict[str, Any]]) -> None:
        """Record a span of each decided action, in the trace of its batch."""
        for one in actions:
            _decided_span(self.tracer, conversation_id, one).end()


class SpanTrace:
    """The trace of a thread's work: its own span, with nested spans."""

    def __init__(
        self,
        tracer: Tracer,
        name: str,
        parent: Context,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        self._tracer = tracer
        self._began = time.time_ns()
        self.span = tracer.start_span(name, parent, kind, attributes, start_time=self._began)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Nest the spans and calls of this thread in this span during the block, then end it."""
        token = attach(set_span_in_context(self.span))
        try:
            yield
        finally:
            detach(token)
            self.span.end()

    @property
    def traceparent(self) -> str:
        """Return the W3C traceparent; empty if the request is not sampled."""
        context = get_current_span().get_span_context()
        return _carried().get("traceparent", "") if context.trace_flags.sampled else ""

    @contextmanager
    def call(self, method: str) -> Iterator[dict[str, str]]:
        """Open a span for a call of an agent server, and yield the headers that propagate the trace."""
        name, attributes = f"{method} agent server", {METHOD: method}
        with self._tracer.start_as_current_span(
            name, kind=SpanKind.CLIENT, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield _carried()
            except Exception as error:
                fail(span, str(getattr(error, "status", type(error).__name__)))
                raise

    def note_decided(self, conversation_id: ConversationId, actions: list[dict[str, Any]]) -> None:
        """Record a span of each decided action, in the trace of its batch. Further work belongs to the last span.

        Each action: verb, since (UTC text), tool and call (as JSON, "" none), trace (traceparent).
        """
        for one in actions:
            self._carry_on(_decided_span(self._tracer, conversation_id, one, self.span))

    def note_next(self, conversation_id: ConversationId, traceparent: str) -> None:
        """Record a span of the batch in the decision's trace, unless the agent has propagated that trace itself."""
        if traceparent.split("-")[1:2] != _carried().get("traceparent", "").split("-")[1:2]:
            attributes, since = {CONVERSATION: conversation_id}, Micros(self._began // 1000)
            self._carry_on(_kept_span(self._tracer, traceparent, "agent_continues", attributes, since, self.span))

    def fail(self, error: str) -> None:
        """Mark the trace as failed. error: a status, or the name of an error."""
        fail(self.span, error)

    def _carry_on(self, span: Span) -> None:
        """End a span of another trace, and continue that trace here."""
        span.end()
        attach(set_span_in_context(span))  # `current` detaches it with its own


def _decided_span(
    tracer: Tracer, conversation_id: ConversationId, one: Mapping[str, Any], linked: Span | None = None
) -> Span:
    """Return the span of a decided action, since the start of its wait."""
    tool, call = (str(json.loads(one[name] or '""')) for name in ("tool", "call"))
    attributes = {CONVERSATION: conversation_id, TOOL: tool, CALL: call, DECISION: one["verb"]}
    return _kept_span(tracer, one["trace"], "pending_action", attributes, micros(one["since"]), linked)


def _kept_span(
    tracer: Tracer,
    traceparent: str,
    name: str,
    attributes: Mapping[str, str],
    since: Micros,
    linked: Span | None = None,
) -> Span:
    """Start a span of a stored trace with an earlier start time."""
    links = [Link(linked.get_span_context())] if linked else []
    parent = _W3C.extract({"traceparent": traceparent}, Context())
    began = min(since * 1000, time.time_ns())  # the store's clock may be ahead
    return tracer.start_span(name, parent, attributes=attributes, links=links, start_time=began)


def sent_trace(environ: Mapping[str, Any]) -> Context:
    """Return the trace in a request's headers."""
    if "HTTP_TRACEPARENT" not in environ:
        return Context()
    sent = {"traceparent": environ["HTTP_TRACEPARENT"], "tracestate": environ.get("HTTP_TRACESTATE", "")}
    return _W3C.extract(sent, Context())


def _carried() -> dict[str, str]:
    """Return the headers that propagate the current trace."""
    headers: dict[str, str] = {}
    _W3C.inject(headers)
    return headers


def fail(span: Span, error: str) -> None:
    """Mark a span as failed. error: a status, or the name of an error."""
    span.set_attribute(ERROR, error)
    span.set_status(StatusCode.ERROR)

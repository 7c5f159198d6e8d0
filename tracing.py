"""Traces of requests by OpenTelemetry, which the variables OTEL_… switch on. Source: docs/monitoring.md.

A worker imports this module after its fork, and only where traces are wanted: the exporter's thread and its connections
are the worker's own. Spans have names, numbers and ids; nothing of messages, arguments, paths, queries or headers.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from flask import Flask, Response, request
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

from blueprints.websocket import TakenOver
from boot.routes import template
from meter import Meter
from store import traces
from wire import API_VERSION, ConversationId, micros

#: the revision of the semantic conventions that the names of attributes are taken from
SEMANTIC_CONVENTIONS = "https://opentelemetry.io/schemas/1.41.0"

CONVERSATION, TOOL, CALL = "gen_ai.conversation.id", "gen_ai.tool.name", "gen_ai.tool.call.id"
METHOD, ROUTE, STATUS, ERROR = "http.request.method", "http.route", "http.response.status_code", "error.type"
TRIPS, DECISION = "agent_server.redis.round_trips", "agent_server.decision"

#: most characters of an attribute: a tool's name is an agent's text
_LONGEST = 256

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_W3C = TraceContextTextMapPropagator()

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Tracing:
    """The traces of one process."""

    def __init__(self, app: Flask) -> None:
        """Trace the app's requests from now on. Raises ValueError for a variable that the SDK cannot read."""
        named = Resource({"service.name": "agent-server", "service.version": API_VERSION})
        self._provider = TracerProvider(
            resource=named.merge(OTELResourceDetector().detect()),
            span_limits=SpanLimits(max_span_attribute_length=_LONGEST),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("agent-server", API_VERSION, schema_url=SEMANTIC_CONVENTIONS)
        self._meter: Meter = app.extensions["meter"]
        app.after_request_funcs.setdefault(None, []).insert(0, self._describe)  # the first one is called last
        app.wsgi_app = self._traced(app.wsgi_app)  # type: ignore[assignment]

    def end(self, seconds: float) -> None:
        """Send what has not been sent yet, in so many seconds at most."""
        sending = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        sending.start()
        sending.join(seconds)

    def _traced(self, wsgi_app: Wsgi) -> Wsgi:
        def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            method = environ["REQUEST_METHOD"] if environ["REQUEST_METHOD"] in _METHODS else "_OTHER"
            with _RequestTrace(self._tracer, method, _sent(environ)).present():
                return wsgi_app(environ, start_response)

        return serve

    def _describe(self, response: Response) -> Response:
        trace = traces.present()
        if isinstance(trace, _RequestTrace):
            status = 101 if isinstance(response, TakenOver) else response.status_code
            route = template(request.url_rule.rule) if request.url_rule else None
            conversation_id = (request.view_args or {}).get("conversation_id")
            trace.describe(route, conversation_id, status, self._meter.trips)
        return response


class _RequestTrace:
    """The trace of one request, as `store/traces.py` describes it."""

    def __init__(self, tracer: Tracer, method: str, parent: Context) -> None:
        self._tracer = tracer
        self._method = method
        self._began = time.time_ns()
        name = "HTTP" if method == "_OTHER" else method
        self._span = tracer.start_span(name, parent, SpanKind.SERVER, {METHOD: method}, start_time=self._began)

    @contextmanager
    def present(self) -> Iterator[None]:
        """Within the block it is the trace of this thread; then its span ends."""
        token = attach(set_span_in_context(self._span))
        try:
            with traces.entered(self):
                yield
        finally:
            detach(token)
            self._span.end()

    def describe(self, route: str | None, conversation_id: str | None, status: int, trips: int) -> None:
        """Name the span by its route, and say how the request ended."""
        if not self._span.is_recording():
            return
        if route:
            self._span.update_name(f"{self._method} {route}")
            self._span.set_attribute(ROUTE, route)
        if conversation_id:
            self._span.set_attribute(CONVERSATION, conversation_id)
        self._span.set_attributes({STATUS: status, TRIPS: trips})
        if status >= 500:
            _fail(self._span, str(status))

    @property
    def traceparent(self) -> str:
        context = get_current_span().get_span_context()
        return _carried().get("traceparent", "") if context.trace_flags.sampled else ""

    @contextmanager
    def call(self, method: str) -> Iterator[dict[str, str]]:
        name, attributes = f"{method} agent server", {METHOD: method}
        with self._tracer.start_as_current_span(
            name, kind=SpanKind.CLIENT, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield _carried()
            except Exception as error:
                _fail(span, str(getattr(error, "status", type(error).__name__)))
                raise

    def note_decided(self, conversation_id: ConversationId, actions: list[dict[str, Any]]) -> None:
        """A span of each action that waited, in the trace of its batch. The rest of the request belongs to the last."""
        now = time.time_ns()
        for one in actions:
            tool, call = (str(json.loads(one[name] or '""')) for name in ("tool", "call"))
            attributes = {CONVERSATION: conversation_id, TOOL: tool, CALL: call, DECISION: one["verb"]}
            since = min(micros(one["since"]) * 1000, now)
            self._continue(one["trace"], "pending_action", attributes, since)

    def note_next(self, conversation_id: ConversationId, traceparent: str) -> None:
        """A span of the batch in the decision's trace, unless the agent has carried that on itself."""
        if traceparent.split("-")[1:2] != _carried().get("traceparent", "").split("-")[1:2]:
            self._continue(traceparent, "agent_continues", {CONVERSATION: conversation_id}, self._began)

    def _continue(self, traceparent: str, name: str, attributes: dict[str, str], since: int) -> None:
        """A span of another trace, which ends now and links to the request's; that trace is carried on from here."""
        links = [Link(self._span.get_span_context())]
        parent = _W3C.extract({"traceparent": traceparent}, Context())
        span = self._tracer.start_span(name, parent, attributes=attributes, links=links, start_time=since)
        span.end()
        attach(set_span_in_context(span))  # `present` detaches it with its own


def _sent(environ: dict[str, Any]) -> Context:
    """The trace that a request names."""
    if "HTTP_TRACEPARENT" not in environ:
        return Context()
    sent = {"traceparent": environ["HTTP_TRACEPARENT"], "tracestate": environ.get("HTTP_TRACESTATE", "")}
    return _W3C.extract(sent, Context())


def _carried() -> dict[str, str]:
    """The headers that carry the present trace on."""
    headers: dict[str, str] = {}
    _W3C.inject(headers)
    return headers


def _fail(span: Span, error: str) -> None:
    span.set_attribute(ERROR, error)
    span.set_status(StatusCode.ERROR)

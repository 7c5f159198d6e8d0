"""Traces of requests by OpenTelemetry, which the variables OTEL_… enable. Source: docs/monitoring.md.

A worker imports this module after its fork, and only if traces are enabled.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from flask import Flask, Response, request
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Tracer

from blueprints.websocket import TakenOver
from telemetry import traces
from telemetry.meter import Meter, template
from telemetry.spans import CONVERSATION, METHOD, ProcessSpans, SpanTrace, sent_trace

ROUTE, STATUS, TRIPS = "http.route", "http.response.status_code", "agent_server.redis.round_trips"

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Tracing:
    """The traces of a worker."""

    def __init__(self, app: Flask, meter: Meter) -> None:
        """Trace all further requests of the app. Raises ValueError for a variable that the SDK cannot read."""
        self._spans = ProcessSpans()
        traces.use(self._spans)
        self._meter = meter
        app.after_request_funcs.setdefault(None, []).insert(0, self._describe)  # the first function is called last
        app.wsgi_app = self._traced(app.wsgi_app)  # type: ignore[assignment]

    def end(self, seconds: float) -> None:
        """Send pending traces, within a timeout in seconds."""
        self._spans.end(seconds)

    def _traced(self, wsgi_app: Wsgi) -> Wsgi:
        def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            method = environ["REQUEST_METHOD"] if environ["REQUEST_METHOD"] in _METHODS else "_OTHER"
            with _RequestTrace(self._spans.tracer, method, sent_trace(environ)).present():
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


class _RequestTrace(SpanTrace):
    """The trace of a request."""

    def __init__(self, tracer: Tracer, method: str, parent: Context) -> None:
        self._method = method
        name = "HTTP" if method == "_OTHER" else method
        super().__init__(tracer, name, parent, SpanKind.SERVER, {METHOD: method})

    @contextmanager
    def present(self) -> Iterator[None]:
        """Make it the trace of this thread during the block, then end its span."""
        with self.current(), traces.entered(self):
            yield

    def describe(self, route: str | None, conversation_id: str | None, status: int, trips: int) -> None:
        """Name the span by its route, and record how the request ended."""
        if not self.span.is_recording():
            return
        if route:
            self.span.update_name(f"{self._method} {route}")
            self.span.set_attribute(ROUTE, route)
        if conversation_id:
            self.span.set_attribute(CONVERSATION, conversation_id)
        self.span.set_attributes({STATUS: status, TRIPS: trips})
        if status >= 500:
            self.fail(str(status))

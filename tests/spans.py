"""A receiver of traces as OTLP has them over HTTP: real requests, decoded protobuf."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Sent

from tests.quick import serve
from tests.servers import wait_until

KINDS = {Sent.SPAN_KIND_SERVER: "server", Sent.SPAN_KIND_CLIENT: "client", Sent.SPAN_KIND_INTERNAL: "internal"}


@dataclass
class Span:
    """One span as it was received."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    links: list[tuple[str, str]]  #: (trace, span) each
    attributes: dict[str, Any]
    resource: dict[str, Any]
    schema: str
    failed: bool
    nanoseconds: int


class SpansReceiver(ThreadingHTTPServer):
    """Keeps the spans that it receives; one that `hangs` reads requests and does not respond."""

    daemon_threads = True

    def __init__(self, *, hangs: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), SpansHandler)
        self.hangs = hangs
        self.asked, self.ended = threading.Event(), threading.Event()
        self.bodies: list[bytes] = []
        self.spans: list[Span] = []
        serve(self)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def some(self, number: int = 1, **members: Any) -> list[Span]:
        """Wait for so many spans with these members, and return them in the order in which they came."""
        found: list[Span] = []

        def came() -> bool:
            found[:] = [one for one in list(self.spans) if all(getattr(one, name) == members[name] for name in members)]
            return len(found) >= number

        wait_until(came, f"{number} spans with {members}")
        return found

    def one(self, **members: Any) -> Span:
        """Wait for the one span with these members."""
        [found] = self.some(**members)
        return found


class SpansHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: SpansReceiver

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.set()
        if self.server.hangs:
            self.server.ended.wait()
            self.close_connection = True
            return
        assert self.path == "/v1/traces"
        assert self.headers["Content-Type"] == "application/x-protobuf"
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        self.server.bodies.append(body)
        self.server.spans += received(ExportTraceServiceRequest.FromString(body))
        reply = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *args):
        pass


def received(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for of_resource in request.resource_spans:
        resource = values(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            for one in of_scope.spans:
                yield Span(
                    one.name,
                    KINDS[one.kind],
                    one.trace_id.hex(),
                    one.span_id.hex(),
                    one.parent_span_id.hex(),
                    [(link.trace_id.hex(), link.span_id.hex()) for link in one.links],
                    values(one.attributes),
                    resource,
                    of_scope.schema_url,
                    one.status.code == one.status.STATUS_CODE_ERROR,
                    one.end_time_unix_nano - one.start_time_unix_nano,
                )


def values(attributes) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextmanager
def receiver(*, hangs: bool = False) -> Iterator[SpansReceiver]:
    server = SpansReceiver(hangs=hangs)
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()

"""Metrics for Prometheus: counts of this host's workers and supervisor, and the state of the store.

Each worker responds with the counts of all of them. No label is text that a client chose. Source: docs/monitoring.md.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from flask import Flask, Request, Response, request
from flask.typing import ResponseReturnValue
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from blueprints import current_server, current_store
from blueprints.api import Blueprint, needs
from blueprints.websocket import TakenOver
from core.wire import API_VERSION, Micros
from store.errors import UNAVAILABLE
from store.gauges import StoreGauges
from store.notifications import TargetState
from telemetry.meter import Meter, ProcessCounts, RouteCounts, SecondsHistogram, template

metrics = Blueprint("Metrics", __name__)

#: Metrics that only grow.
_COUNTER = CounterMetricFamily


@metrics.get("/metrics")
@metrics.ignores_query
@needs("read")
@metrics.fails(503)
@metrics.response(200, {"type": "string"}, content_type="text/plain", description="Prometheus' text format 0.0.4")
def show_metrics() -> Response:
    """Show the counts of this host's processes and the state of the store, for Prometheus."""
    registry = CollectorRegistry()
    registry.register(_Scrape())
    return Response(generate_latest(registry), content_type=CONTENT_TYPE_PLAIN_0_0_4)


class MeteredApp(Flask):
    """Counts the requests of the app. Hooks of Flask would take twice the time."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.meter = Meter()

    def count_rules(self) -> None:
        """Count by route. Call it after all routes are added. Raises ValueError for too many."""
        rules = list(self.url_map.iter_rules())
        self.meter.add_routes((template(rule.rule), method) for rule in rules for method in rule.methods or ())

    def preprocess_request(self) -> ResponseReturnValue | None:
        self.meter.begin_request()
        return super().preprocess_request()

    def process_response(self, response: Response) -> Response:
        response = super().process_response(response)
        asked: Request = request._get_current_object()  # type: ignore[attr-defined]  # each use of a proxy costs
        route = template(asked.url_rule.rule) if asked.url_rule else None
        is_socket = isinstance(response, TakenOver)
        self.meter.end_request(route, asked.method, 101 if is_socket else response.status_code, is_timed=not is_socket)
        return response


class _Scrape(Collector):
    """Reads all metrics of one scrape."""

    def collect(self) -> Iterator[Metric]:
        routes, processes = current_server().meter.read()
        releases = API_VERSION, sys.version.partition(" ")[0]
        yield _by("info", "1, with the release of the server", "version python", {releases: 1})
        yield from _requests(routes)
        yield from _processes(*processes)
        yield _gauge("workers_configured", "Configured worker processes", current_server().config.http.workers)
        try:
            reading, targets = current_store.gauges.read(), current_store.notifications.targets.states()
        except UNAVAILABLE:
            yield _gauge("store_up", "Whether Redis answered this scrape", 0)
            return
        yield _gauge("store_up", "Whether Redis answered this scrape", 1)
        yield from _store(reading)
        yield from _notifications(list(targets.values()), reading.at)


def _requests(routes: list[RouteCounts]) -> Iterator[Metric]:
    responses = {
        (one.method, one.route, status_class): number
        for one in routes
        for status_class, number in one.by_class.items()
        if number
    }
    seconds = {(one.method, one.route): one.seconds for one in routes}
    trips = {(one.method, one.route): one.trips for one in routes}
    yield _by("requests", "Responses by route and class of status", "method route status_class", responses, _COUNTER)
    yield _histograms(
        "request_seconds", "Time until the response was ready, or the stream began", "method route", seconds
    )
    told = "Round trips to Redis until the response was ready"
    yield _by("request_redis_round_trips", told, "method route", trips, _COUNTER)


def _processes(*kinds: ProcessCounts) -> Iterator[Metric]:
    seconds = {one.kind: one.trips for one in kinds}
    failed, started = {one.kind: one.failed_trips for one in kinds}, {one.kind: one.started for one in kinds}
    yield _histograms("redis_seconds", "Round trips to Redis, with the wait for a connection", "process", seconds)
    yield _by("redis_failures", "Round trips without an answer from Redis", "process", failed, _COUNTER)
    yield _by("processes_started", "Started processes of this host", "process", started, _COUNTER)
    workers, _ = kinds
    yield _gauge("workers", "Current worker processes of this host", workers.processes)
    yield _gauge(
        "followers", "Current sockets, streams and long polls of this host", sum(one.followers for one in kinds)
    )
    yield _counter("followers_dropped", "Followers that were too slow for the ring", sum(one.dropped for one in kinds))
    ended = {status: sum(one.starts[status] for one in kinds) for status in workers.starts}
    told = "Start tasks that processes of this host completed"
    yield _by("start_tasks_ended", told, "status", ended, _COUNTER)
    calls = {call: sum(one.objects[call] for one in kinds) for call in workers.objects}
    yield _by("cold_calls", "Calls of cold storage by processes of this host", "verb outcome", calls, _COUNTER)


def _store(reading: StoreGauges) -> Iterator[Metric]:
    yield _by("conversations", "Conversations by execution status", "status", reading.conversations)
    yield _gauge("cold_objects", "Objects in cold storage: of cold conversations, and to remove", reading.objects)
    yield _gauge("pending_actions", "Actions that wait for a decision", reading.pending_actions)
    yield _gauge("pending_action_oldest_seconds", "How long the oldest has waited", reading.oldest_pending)
    yield _by("sandboxes", "Sandboxes by status", "status", reading.sandboxes)
    yield _by("start_tasks", "Start tasks of app conversations by state", "state", reading.starts)
    yield _gauge("start_task_overdue_seconds", "For how long no supervisor has claimed one", reading.overdue_start)
    yield _gauge("deliveries", "Decisions that an agent may not have received", reading.deliveries)
    yield _gauge("delivery_overdue_seconds", "For how long the oldest has been due", reading.overdue_delivery)
    yield _by("outbox_entries", "Entries that no supervisor has queued as notifications", "outbox", reading.outboxes)
    yield _by("outbox_dropped", "Entries that a full outbox dropped", "outbox", reading.dropped, _COUNTER)
    tried = dict(reading.destinations)
    yield _gauge("destinations_waiting", "Destinations and budgets that wait for a person's decision", reading.asking)
    yield _counter("destinations_asked", "Destinations that a person was asked about", tried.pop("asked"))
    octets = {name: tried.pop(name) for name in ("sent", "received")}
    yield _by("destination_connections", "Connections that sandboxes tried", "outcome", tried, _COUNTER)
    yield _by("destination_bytes", "Bytes of sandboxes' connections", "direction", octets, _COUNTER)
    yield from _spending(reading)
    yield _by("supervisor_heartbeat_age_seconds", "Age of a supervisor's last heartbeat", "host", reading.hosts)
    yield _gauge("hosts", "Hosts whose supervisor has a heartbeat within HOST_SECONDS", reading.living_hosts)
    if reading.used_memory_bytes is not None:
        yield _gauge("store_used_memory_bytes", "Memory that Redis uses", reading.used_memory_bytes)
        yield _gauge("store_max_memory_bytes", "Memory limit of Redis; 0: none", reading.max_memory_bytes or 0)


def _spending(reading: StoreGauges) -> Iterator[Metric]:
    """Yield the spending by model; models without a price are "other"."""
    models = reading.models
    kinds = ("input", "output", "cached", "written")
    tokens = {(model, kind): getattr(spent, kind) for model, spent in models.items() for kind in kinds}
    calls = {model: spent.calls for model, spent in models.items()}
    estimated = {model: spent.estimated for model, spent in models.items()}
    dollars = {model: spent.nanos / 1e9 for model, spent in models.items()}
    yield _by("model_tokens", "Tokens that sandboxes used, according to responses", "model kind", tokens, _COUNTER)
    yield _by("model_calls", "Calls of models by sandboxes", "model", calls, _COUNTER)
    yield _by("model_calls_estimated", "Calls without a report of their usage", "model", estimated, _COUNTER)
    yield _by("model_dollars", "Cost of the calls by the prices of models", "model", dollars, _COUNTER)
    yield _counter("model_calls_refused", "Calls of models that a budget refused", reading.refused_calls)


def _notifications(targets: list[TargetState], now: Micros) -> Iterator[Metric]:
    """Yield the totals of all targets: only admins may see the names of targets."""
    states = {
        "ok": sum(not one.tries and one.disabled_at is None for one in targets),
        "failing": sum(one.tries > 0 and one.disabled_at is None for one in targets),
        "disabled": sum(one.disabled_at is not None for one in targets),
    }
    oldest = min((one.oldest for one in targets if one.oldest is not None), default=None)
    ends = {name: sum(getattr(one, name) for one in targets) for name in ("sent", "given_up", "dropped")}
    yield _by("notification_targets", "Targets of notifications by state", "state", states)
    yield _gauge("notifications_queued", "Messages that wait for their target", sum(one.queued for one in targets))
    yield _gauge("notification_oldest_seconds", "How long the oldest has waited", _age(oldest, now))
    yield _by("notifications", "Messages that ended, by outcome", "outcome", ends, _COUNTER)


def _age(since: Micros | None, now: Micros) -> float:
    return 0.0 if since is None else max(0.0, (now - since) / 1e6)


def _gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(f"agent_server_{name}", help, value=value)


def _counter(name: str, help: str, value: float) -> Metric:
    return CounterMetricFamily(f"agent_server_{name}", help, value=value)


def _by(
    name: str,
    help: str,
    labels: str,
    values: Mapping[Any, float],
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily] = GaugeMetricFamily,
) -> Metric:
    """Make a family of gauges or counters.

    labels: names, separated by spaces. values: by the label, or by a tuple of labels.
    """
    family = kind(f"agent_server_{name}", help, labels=labels.split())
    for labelled, value in values.items():
        family.add_metric([labelled] if isinstance(labelled, str) else labelled, value)
    return family


def _histograms(name: str, help: str, labels: str, values: Mapping[Any, SecondsHistogram]) -> Metric:
    """Make a family of histograms, with labels as in `_by`. In Prometheus a bucket includes all smaller buckets."""
    family = HistogramMetricFamily(f"agent_server_{name}", help, labels=labels.split())
    for labelled, seconds in values.items():
        bounds: Iterable[str] = [*map(repr, seconds.bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(seconds.counts), strict=True))
        family.add_metric([labelled] if isinstance(labelled, str) else labelled, buckets, seconds.sum)
    return family

"""What `/metrics` shows of one process; `tests/telemetry/test_tallies.py` has what processes show together."""

from uuid import uuid4

from tests.notifications import forget_notifications
from tests.scrapes import Scrape

REQUESTS = "agent_server_requests_total"


def scraped(client) -> Scrape:
    response = client.get("/metrics")
    assert (response.status_code, response.mimetype) == (200, "text/plain")
    return Scrape(response.text)


def test_a_request_counts_by_its_route_its_method_and_its_class_of_status(client):
    route = "/api/conversations/{conversation_id}"
    client.get("/api/conversations/count")  # so that the routes have a sample
    before = scraped(client).series

    for path in (uuid4(), uuid4(), "no-id"):
        client.get(f"/api/conversations/{path}")
    client.delete(f"/api/conversations/{uuid4()}")

    found = scraped(client)
    assert found.value(REQUESTS, route=route, method="GET", status_class="4xx") >= 2
    assert found.value(REQUESTS, route=route, method="DELETE", status_class="4xx") >= 1
    assert found.value("agent_server_request_seconds_count", route=route, method="GET") >= 2
    assert found.value("agent_server_request_redis_round_trips_total", route=route, method="GET") >= 2
    assert {dict(labels).get("route") for _, labels in found.series - before} <= {None, route, "/metrics", "unmatched"}


def test_buckets_grow_with_their_bounds_and_end_with_all(client):
    client.get("/alive")

    found = scraped(client)

    of = {"route": "/alive", "method": "GET"}
    buckets = [one for one in found.samples if one.name == "agent_server_request_seconds_bucket"]
    counts = [one.value for one in buckets if of.items() <= one.labels.items()]
    assert counts == sorted(counts)
    assert counts[-1] == found.value("agent_server_request_seconds_count", **of) >= 1
    assert found.value("agent_server_request_seconds_sum", **of) > 0


def test_targets_of_notifications_are_shown_together_without_their_names(client, store):
    forget_notifications(store)
    store.notifications.targets.open({"0123456789ab": "https://a-name", "ba9876543210": "https://another"}, again=True)
    store.notifications.targets.add(["0123456789ab", "ba9876543210"], [("msg_1", ["body", "body"])])
    claimed = store.notifications.targets.claim("0123456789ab", "token", 60)
    store.notifications.targets.close(claimed, "failed", "a reason", again_in=60)

    text = client.get("/metrics").text

    forget_notifications(store)
    found = Scrape(text)
    assert found.value("agent_server_notification_targets", state="failing") == 1
    assert found.value("agent_server_notification_targets", state="ok") == 1
    assert found.value("agent_server_notifications_queued") == 2
    assert found.value("agent_server_notification_oldest_seconds") >= 0
    assert not any(word in text for word in ("a-name", "another", "0123456789ab", "a reason"))

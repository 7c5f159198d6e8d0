"""What a supervisor does for a request belongs to the trace of that request, as a receiver of OTLP gets it.

Source: docs/monitoring.md.
"""

from contextlib import ExitStack, nullcontext
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest

from core import wire
from store.approvals.audit import SERVER
from store.keys import OUTBOXES, outbox_wanted
from telemetry import traces
from tests.agents import propose, scripted_agent
from tests.conftest import action, limits_of, store_of
from tests.notifications import receiver as webhook
from tests.servers import store_server, supervised_server, wait_until
from tests.spans import receiver

pytestmark = pytest.mark.process("starts a traced server with a supervisor and sandboxes")

LIMITS = limits_of(most=10, pause_idlest=False, host_seconds=3600, start_seconds=60)
START = "POST /api/v1/app-conversations"


class Batch:
    """A trace in which the tests' own process appends."""

    def __init__(self, traceparent: str) -> None:
        self.traceparent = traceparent

    def call(self, _method):
        return nullcontext({})

    def note_next(self, _conversation_id, _traceparent):
        pass


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """A client of a traced server with a supervisor, the receiver of their spans, a webhook, and their store."""
    folder = tmp_path_factory.mktemp("supervisor-tracing")
    with ExitStack() as stack:
        spans, hook = stack.enter_context(receiver()), stack.enter_context(webhook())
        url, _ = stack.enter_context(store_server(folder))
        settings = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": spans.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "NOTIFY_WEBHOOKS": hook.setting,
            "NOTIFY_PRIVATE": "1",
            "NOTIFY_EVENTS": "action.pending",
            "WEB_CONCURRENCY": "1",
        }
        client, _ = stack.enter_context(supervised_server(folder, REDIS_URL=url, **settings))
        store = store_of(url, LIMITS)
        store.sandboxes.require_host()
        yield SimpleNamespace(client=client, spans=spans, store=store, hook=hook)


def elsewhere(store, url):
    """A running sandbox of a host without a supervisor of its own."""
    store.sandboxes.beat("scripted", "supervisor")
    store.events._redis.zadd("{sandboxes}:hosts", {"scripted": wire.now() + 3_600_000_000})  # however slow the machine
    sandbox = store.sandboxes.start("reference-agent", host="scripted")
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "RUNNING", agent_url=url, urls=[], handle={})
    return sandbox


def fresh_trace():
    """A traceparent of a caller, its trace and its span."""
    trace, span = uuid4().hex, uuid4().hex[:16]
    return f"00-{trace}-{span}-01", trace, span


def started(client, caller, body):
    task = client.post("/api/v1/app-conversations", json=body, headers={"traceparent": caller}).json()

    def ended():
        [task_now] = client.get("/api/v1/app-conversations/start-tasks", params={"ids": task["id"]}).json()
        task.update(task_now)
        return task["status"] in ("READY", "ERROR")

    wait_until(ended, "the start task")
    return task


def test_the_start_of_a_conversation_and_of_its_sandbox_belong_to_the_trace_of_their_request(traced):
    caller, trace, _ = fresh_trace()

    task = started(traced.client, caller, {})

    assert task["status"] == "READY", task
    request = traced.spans.one(trace=trace, name=START)
    conversation = traced.spans.one(trace=trace, name="start_conversation")
    sandbox = traced.spans.one(trace=trace, name="start_sandbox")
    call = traced.spans.one(trace=trace, name="POST agent server")
    assert conversation.parent == request.id
    assert conversation.attributes == {"gen_ai.conversation.id": str(UUID(task["app_conversation_id"]))}
    assert (sandbox.parent, call.parent) == (conversation.id, conversation.id)
    assert sandbox.attributes == {"agent_server.sandbox": task["sandbox_id"]}
    assert [conversation.failed, sandbox.failed] == [False, False]
    assert sandbox.nanoseconds > 0
    # A start that has ended leaves no trace for the next one
    assert traced.store.sandboxes.get(task["sandbox_id"]).trace == ""


def test_a_start_that_fails_says_so_in_its_trace(traced):
    caller, trace, _ = fresh_trace()

    task = started(traced.client, caller, {"parent_conversation_id": str(uuid4())})

    assert task["status"] == "ERROR"
    failed = traced.spans.one(trace=trace, name="start_conversation")
    assert (failed.failed, failed.attributes["error.type"]) == (True, "ParentRefused")


def test_a_notification_belongs_to_the_trace_of_the_batch_whose_action_waits(traced):
    caller, trace, _ = fresh_trace()
    created = traced.client.post("/api/conversations", json={"confirmation_policy": {"kind": "AlwaysConfirm"}}).json()
    wanted = outbox_wanted(OUTBOXES["approvals"])
    wait_until(lambda: traced.store.events._redis.exists(wanted), "the word of a supervisor that there are targets")
    path = f"/api/v1/webhooks/events/{created['id']}"

    assert traced.client.post(path, json=[action()], headers={"traceparent": caller}).status_code == 200

    told = traced.spans.one(trace=trace, name="notification")
    append = traced.spans.one(trace=trace, name="POST /api/v1/webhooks/events/{conversation_id}")
    assert (told.parent, told.failed) == (append.id, False)
    assert told.attributes.keys() == {"agent_server.notification.target"}
    assert traced.hook.taken


def test_a_decision_that_a_supervisor_delivers_belongs_to_the_trace_of_its_batch(traced):
    conversation, store = str(uuid4()), traced.store
    caller, trace, span = fresh_trace()
    with scripted_agent() as agent:
        sandbox = elsewhere(store, agent.url)
        # Given an action that was proposed in a traced batch
        with traces.entered(Batch(caller)):
            agent.latest = propose(store, conversation, sandbox.id)["id"]

        # When the process that takes the decision leaves its delivery to a supervisor
        claim = store.approvals.deliveries.open(conversation, sandbox.id, 30)
        won, delivery = store.approvals.deliveries.decide(claim, "reject", actor=SERVER, reason="no")
        store.approvals.deliveries.close(claim, again_in=0)
        delivered = traced.spans.one(trace=trace, name="delivery")
        calls = traced.spans.some(1, trace=trace, kind="client")

    # Then the delivery and its calls of the agent go on in the trace of the batch
    assert won
    assert delivery.trace == caller
    assert (delivered.parent, delivered.failed) == (span, False)
    assert delivered.attributes == {"gen_ai.conversation.id": conversation}
    assert {call.parent for call in calls} == {delivered.id}
    assert set(agent.traceparents) <= {f"00-{trace}-{call.id}-01" for call in calls} | {None}

"""Traces of whole servers, as a receiver of OTLP gets them. Source: docs/monitoring.md.

Two servers with one worker each share a Redis: what one has traced the other one knows from there alone.
"""

import subprocess
import sys
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from uuid import uuid4

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from app import create_app
from blueprints.tracing import Tracing
from settings.config import Config
from telemetry import spans as conventions
from tests.agents import running_sandbox, scripted_agent
from tests.conftest import LIMITS as LIMITED
from tests.conftest import SECRET_KEY, action, event, limits_of, observation, status, store_of
from tests.servers import PROJECT, TIMEOUT, agent_server, store_server
from tests.shared import client_of
from tests.spans import receiver

LIMITS = limits_of(most=10_000, pause_idlest=False, host_seconds=3600, start_seconds=60)
ALWAYS = {"kind": "AlwaysConfirm"}
APPEND = "POST /api/v1/webhooks/events/{conversation_id}"
DECIDE = "POST /api/conversations/{conversation_id}/events/respond_to_confirmation"
SECRET = "do not tell this to anybody"


def traced(url: str, **variables: str) -> dict[str, str]:
    """The environment of a server whose spans a receiver gets soon."""
    soon = {"OTEL_BSP_SCHEDULE_DELAY": "100", "WEB_CONCURRENCY": "1"}
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, **soon, **variables}


@pytest.fixture(
    scope="module", params=["here", pytest.param("servers", marks=pytest.mark.process("starts two traced servers"))]
)
def two(request, redis_url, tmp_path_factory):
    """A client for each of two traced servers, the receiver of their spans, and the URL of their Redis.

    The servers are processes of their own, or apps in this one.
    """
    with ExitStack() as stack:
        spans = stack.enter_context(receiver())
        clients = []
        for name in ("first", "second"):
            variables = traced(spans.url, OTEL_SERVICE_NAME=name)
            if request.param == "here":
                clients.append(stack.enter_context(traced_app(redis_url, variables)))
            else:
                log = tmp_path_factory.mktemp("tracing") / "log"
                settings = {**variables, "REDIS_URL": redis_url, "AUTH": "open"}  # other tests keep keys in this store
                clients.append(stack.enter_context(agent_server(log, **settings))[0])
        yield SimpleNamespace(first=clients[0], second=clients[1], spans=spans, redis=redis_url)


@contextmanager
def traced_app(url: str, variables: dict[str, str]):
    """A client of an app that is traced as a worker traces it."""
    app = create_app(Config.of(redis_url=url, redis_timeout=10, secret_key=SECRET_KEY, **LIMITED))
    with pytest.MonkeyPatch.context() as patched:
        for name, value in variables.items():
            patched.setenv(name, value)
        tracing = Tracing(app, app.extensions["server"].meter)
    with client_of(app) as client:
        yield client
    tracing.end(5)
    app.extensions["server"].commands._client.close()


@pytest.fixture
def held(two):
    """A detached conversation whose policy holds every action."""
    created = two.first.post("/api/conversations", json={"confirmation_policy": ALWAYS})
    assert created.status_code < 300
    return created.json()["id"]


def append(client, conversation, *events, **headers):
    response = client.post(f"/api/v1/webhooks/events/{conversation}", json=list(events), headers=headers)
    assert response.status_code == 200, response.text


def decide(client, conversation, accept=True, **headers):
    body = {"accept": accept, "reason": SECRET}
    path = f"/api/conversations/{conversation}/events/respond_to_confirmation"
    response = client.post(path, json=body, headers=headers)
    assert response.json() == {"success": True}


def fresh_trace(flags="01"):
    """A traceparent of a caller, and its trace."""
    trace = uuid4().hex
    return f"00-{trace}-{uuid4().hex[:16]}-{flags}", trace


@pytest.mark.process("waits for what threads do")
def test_one_trace_leads_from_the_batch_through_the_decision_to_the_agents_next_batch(two, held):
    # Given an agent whose batch on one server opens an action
    caller, trace = fresh_trace()
    proposed = action(SECRET)
    append(two.first, held, proposed, traceparent=caller)

    # When a person decides on the other server, in a trace of another client, and the agent goes on
    decider, other = fresh_trace()
    decide(two.second, held, traceparent=decider)
    append(two.first, held, observation(proposed))

    # Then the trace of the batch has the wait for the decision, as the other server knows it
    opened = two.spans.one(trace=trace, name=APPEND)
    waited = two.spans.one(trace=trace, name="pending_action")
    decided = two.spans.one(trace=other, name=DECIDE)
    assert (opened.kind, opened.parent) == ("server", caller.split("-")[2])
    assert (waited.parent, waited.links) == (opened.id, [(other, decided.id)])
    assert waited.attributes == {
        "gen_ai.conversation.id": held,
        "gen_ai.tool.name": "terminal",
        "gen_ai.tool.call.id": proposed["tool_call_id"],
        "agent_server.decision": "approve",
    }
    assert (opened.resource["service.name"], waited.resource["service.name"]) == ("first", "second")

    # And the agent's next batch, which named no trace
    continued = two.spans.one(trace=trace, name="agent_continues")
    [(_, next_batch)] = continued.links
    assert (two.spans.one(id=next_batch).name, continued.parent) == (APPEND, opened.id)
    assert continued.attributes == {"gen_ai.conversation.id": held}


@pytest.mark.process("waits for what threads do")
def test_the_agent_of_a_sandbox_gets_the_trace_with_the_decision_and_goes_on_in_it(two):
    conversation, store = str(uuid4()), store_of(two.redis, LIMITS)
    with scripted_agent() as agent:
        # Given an agent in a sandbox that waits for a decision
        store.sandboxes.beat("scripted", "supervisor")
        sandbox = store.sandboxes.start("reference-agent")
        while store.sandboxes.get(sandbox.id).host != "scripted":
            assert store.sandboxes.claim("scripted")
        key = {"Authorization": f"Bearer {store.sandboxes.begin(sandbox.id, 'scripted', 'supervisor', 'process')}"}
        store.sandboxes.report(sandbox.id, "scripted", "supervisor", "RUNNING", agent_url=agent.url, urls=[], handle={})
        store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
        caller, trace = fresh_trace()
        proposed = action()
        batch = [status("running"), proposed, status("waiting_for_confirmation")]
        append(two.first, conversation, *batch, traceparent=caller, **key)

        # When a person decides on the other server, and the agent carries on the trace that it receives
        decide(two.second, conversation)
        carried = agent.traceparents[-1]
        append(two.first, conversation, status("running"), observation(proposed), traceparent=carried, **key)

    # Then the call of the agent and its next batch belong to the trace of its first batch
    waited = two.spans.one(trace=trace, name="pending_action")
    call = two.spans.one(trace=trace, kind="client")
    assert (call.name, call.parent) == ("POST agent server", waited.id)
    assert carried == f"00-{trace}-{call.id}-01"
    first, then = two.spans.some(2, trace=trace, name=APPEND)
    assert {first.parent, then.parent} == {caller.split("-")[2], call.id}
    assert not [one for one in two.spans.spans if one.trace == trace and one.name == "agent_continues"]


@pytest.mark.process("waits for what threads do")
def test_a_call_that_an_agent_refuses_has_the_status_as_its_error(two):
    conversation, store = str(uuid4()), store_of(two.redis, LIMITS)
    caller, trace = fresh_trace()
    with scripted_agent() as agent, running_sandbox(store, agent.url) as sandbox:
        store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
        agent.statuses = [409]
        refused = two.first.post(f"/api/conversations/{conversation}/pause", headers={"traceparent": caller})

    call = two.spans.one(trace=trace, kind="client")
    assert refused.status_code == 409
    assert (call.failed, call.attributes["error.type"]) == (True, "409")


@pytest.mark.process("waits for what threads do")
def test_a_request_is_named_by_its_route_and_has_its_status_and_its_round_trips(two, held):
    caller, trace = fresh_trace()
    for path in (f"/api/conversations/{held}", f"/api/conversations/{uuid4()}", f"/nowhere/{SECRET}?{SECRET}"):
        two.second.get(path, headers={"traceparent": caller})

    found, unknown, unmatched = sorted(two.spans.some(3, trace=trace), key=lambda one: (one.name, "x"), reverse=True)

    name = "GET /api/conversations/{conversation_id}"
    assert [one.name for one in (found, unknown, unmatched)] == [name, name, "GET"]
    by_status = {one.attributes["http.response.status_code"]: one for one in (found, unknown)}
    assert by_status.keys() == {200, 404}
    assert by_status[200].attributes == {
        "http.request.method": "GET",
        "http.route": "/api/conversations/{conversation_id}",
        "gen_ai.conversation.id": held,
        "http.response.status_code": 200,
        "agent_server.redis.round_trips": 1,
    }
    assert unmatched.attributes == {
        "http.request.method": "GET",
        "http.response.status_code": 404,
        "agent_server.redis.round_trips": 0,
    }
    assert found.schema == conventions.SEMANTIC_CONVENTIONS
    assert not any(one.failed for one in (found, unknown, unmatched))


@pytest.mark.process("waits for what threads do")
def test_a_trace_that_its_caller_does_not_sample_is_neither_sent_nor_kept(two, held):
    unsampled, trace = fresh_trace("00")
    append(two.first, held, action(), traceparent=unsampled)
    sampled, then = fresh_trace()
    decide(two.first, held, traceparent=sampled)
    append(two.first, held, event(), traceparent=sampled)

    two.spans.some(2, trace=then)
    assert not [one for one in two.spans.spans if one.trace == trace]
    assert len([one for one in two.spans.spans if one.trace == then]) == 2


@pytest.mark.process("waits for what threads do")
def test_nothing_that_people_and_agents_write_is_sent(two, held):
    caller, trace = fresh_trace()
    proposed = action(SECRET, summary=SECRET, thought=[{"type": "text", "text": SECRET}])
    append(two.first, held, proposed, traceparent=caller, Cookie=SECRET)
    wrong = {"Authorization": f"Bearer {SECRET}"}
    refused = two.first.post(f"/api/v1/webhooks/events/{held}", json=[proposed], headers=wrong)
    assert refused.status_code == 401
    decide(two.first, held, accept=False, traceparent=caller)
    two.first.get(f"/api/conversations/{held}/events/count?body={SECRET}", headers={"traceparent": caller})

    two.spans.one(trace=trace, name="GET /api/conversations/{conversation_id}/events/count")

    assert two.spans.bodies
    assert not [body for body in two.spans.bodies if SECRET.encode() in body]


def test_the_names_of_attributes_are_those_of_the_conventions():
    assert conventions.CONVERSATION == gen_ai_attributes.GEN_AI_CONVERSATION_ID
    assert conventions.TOOL == gen_ai_attributes.GEN_AI_TOOL_NAME
    assert conventions.CALL == gen_ai_attributes.GEN_AI_TOOL_CALL_ID


@pytest.mark.process("starts a server")
def test_a_server_that_ends_sends_its_last_spans(tmp_path):
    caller, trace = fresh_trace()
    with receiver() as spans:
        later = traced(spans.url, OTEL_BSP_SCHEDULE_DELAY="86400000")
        with store_server(tmp_path) as (url, _), agent_server(tmp_path / "log", REDIS_URL=url, **later) as (client, _):
            client.get("/api/conversations/count", headers={"traceparent": caller})

        assert spans.one(trace=trace).name == "GET /api/conversations/count"


@pytest.mark.process("starts a server and waits for its end")
def test_a_receiver_that_does_not_respond_keeps_no_server_from_ending(tmp_path):
    with receiver(hangs=True) as spans, store_server(tmp_path) as (url, _):
        slow = traced(spans.url, OTEL_EXPORTER_OTLP_TIMEOUT="86400", GRACEFUL_TIMEOUT="60", REDIS_URL=url)
        with agent_server(tmp_path / "log", **slow) as (client, process):
            client.get("/api/conversations/count")
            assert spans.asked.wait(TIMEOUT)
            client.close()  # a connection that is kept alive keeps its worker
            process.terminate()
            assert process.wait(TIMEOUT) == 0

    assert "SIGKILL" not in (tmp_path / "log").read_text()


@pytest.mark.process("starts a server")
def test_without_the_packages_a_line_says_what_to_install_and_the_server_serves(tmp_path):
    (tmp_path / "opentelemetry").mkdir()
    (tmp_path / "opentelemetry" / "__init__.py").touch()  # without an SDK
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "PYTHONPATH": str(tmp_path)}
    with store_server(tmp_path) as (url, _), agent_server(tmp_path / "log", REDIS_URL=url, **variables) as (client, _):
        assert client.get("/api/conversations/count").status_code == 200

    assert (tmp_path / "log").read_text().count("pip install -r requirements/otel.txt") == 1


@pytest.mark.process("starts a server")
def test_a_variable_that_cannot_be_read_is_named_in_a_line_and_the_server_serves(tmp_path):
    variables = traced("http://127.0.0.1:9", OTEL_BSP_MAX_QUEUE_SIZE="0")
    with store_server(tmp_path) as (url, _), agent_server(tmp_path / "log", REDIS_URL=url, **variables) as (client, _):
        assert client.get("/api/conversations/count").status_code == 200

    assert "none are recorded: max_queue_size must be" in (tmp_path / "log").read_text()


@pytest.mark.process("imports the whole app again")
def test_a_server_that_is_not_traced_imports_nothing_for_it():
    # redis-py imports what it finds of OpenTelemetry for metrics of its own
    ours = ("tracing", "spans", "opentelemetry.sdk.trace", "opentelemetry.exporter", "opentelemetry.proto")
    program = f"import sys, app; print([name for name in sys.modules if name.startswith({ours})])"
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"

"""Budgets as sandboxes meet them: many agents at once against a model that streams, which counts for itself."""

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from core.prices import Budgets, ModelBudget, Prices, read_prices
from egress.gate import Gate
from egress.proxy import Proxy
from settings.specs import Specs
from store import Store
from store.approvals.audit import DecisionActor
from tests.egress.conftest import EgressSandbox
from tests.store.conftest import fresh_sandboxes

pytestmark = pytest.mark.process("runs the proxy, a model and fifty agents on threads")

AGENTS = 50

#: tokens of a call, of which the model says 30 were read from a cache
PROMPT, COMPLETION = 100, 20
CALL = PROMPT + COMPLETION

SPEC = """\
[[spec]]
id = "spec"
command = ["run"]
created_at = 2026-11-26T00:00:00Z
egress = "named"
presets = []

[[spec.service]]
name = "model"
base_url = "http://127.0.0.1:{port}/v1"

[[spec.service]]
name = "tracker"
base_url = "http://127.0.0.1:{port}/v1"
"""


class _BudgetModel(BaseHTTPRequestHandler):
    """Streams a completion as OpenAI or Anthropic does, and counts its tokens by who asked."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    counted: Counter[str]
    lock: threading.Lock
    encodings: set[str | None]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.lock:
            self.counted[body["user"]] += CALL
            self.encodings.add(self.headers["Accept-Encoding"])
        usage = {
            "prompt_tokens": PROMPT,
            "completion_tokens": COMPLETION,
            "prompt_tokens_details": {"cached_tokens": 30},
        }
        words = [{"model": "scripted", "choices": [{"delta": {"content": str(n)}}]} for n in range(COMPLETION)]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in [*map(json.dumps, [*words, {"choices": [], "usage": usage}]), "[DONE]"]:
            piece = f"data: {event}\n\n".encode()
            for half in (piece[: len(piece) // 2], piece[len(piece) // 2 :]):
                self.wfile.write(f"{len(half):x}\r\n".encode() + half + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        pass


@dataclass
class Town:
    """A proxy with budgets, its sandboxes, and what the model counted."""

    store: Store
    sandboxes: dict[str, EgressSandbox]
    counted: Counter[str] = field(default_factory=Counter)
    encodings: set[str | None] = field(default_factory=set)


def post(sandbox: EgressSandbox, who: str, target: str = "/model/chat/completions", *headers: str) -> tuple[int, str]:
    """The status and the body of a call."""
    body = json.dumps({"user": who, "stream": True, "messages": []})
    lines = [f"POST {target} HTTP/1.1", "Host: x", "Accept-Encoding: gzip", *headers, f"Content-Length: {len(body)}"]
    response = sandbox.said("\r\n".join([*lines, "Connection: close"]) + f"\r\n\r\n{body}")
    return int(response.split(" ", 2)[1]), response.partition("\r\n\r\n")[2]


@pytest.fixture
def town(store, redis_url, tmp_path, request) -> Iterator[Town]:
    """Budgets are the test's parameter."""
    sandboxes = fresh_sandboxes(redis_url, most=AGENTS)
    kind = type("Model", (_BudgetModel,), {"counted": Counter(), "lock": threading.Lock(), "encodings": set()})
    model = type("Model", (ThreadingHTTPServer,), {"request_queue_size": AGENTS})(("127.0.0.1", 0), kind)
    model.daemon_threads = True
    threading.Thread(target=model.serve_forever, args=(0.02,), daemon=True).start()
    (tmp_path / "specs.toml").write_text(SPEC.format(port=model.server_port))
    specs, prices = Specs.load(str(tmp_path / "specs.toml")), Prices(read_prices("scripted=1/2/0.5"))
    proxy = Proxy(Gate(store, specs, request.param, prices))
    with socket.create_server(("127.0.0.1", 0), backlog=AGENTS) as listener:
        threading.Thread(target=proxy.serve, args=(listener,), daemon=True).start()
        made = {}
        for number in range(AGENTS):
            started = sandboxes.start("spec", host="h", owner=f"key-{number % 2}")
            key = sandboxes.begin(started.id, "h", "supervisor", "process")
            made[started.id] = EgressSandbox(listener.getsockname(), key, proxy, started.id)
        yield Town(store, made, kind.counted, kind.encodings)
        listener.shutdown(socket.SHUT_RDWR)
    proxy.by_name.close()
    proxy.to_services.close()
    model.shutdown()
    model.server_close()


def until_refused(town: Town, who: str) -> str:
    """Call until a budget refuses; the refusal."""
    while True:
        status, body = post(town.sandboxes[who], who)
        if status != 200:
            assert status == 429
            return json.loads(body)["error"]["message"]


@pytest.mark.parametrize("town", [Budgets(day=ModelBudget(tokens=200 * CALL))], indirect=True)
def test_fifty_agents_at_once_overshoot_a_budget_by_no_more_than_was_under_way(town):
    with ThreadPoolExecutor(AGENTS) as agents:
        refusals = list(agents.map(lambda who: until_refused(town, who), town.sandboxes))

    assert all("MODEL_BUDGET_DAY" in refusal for refusal in refusals)
    calls = town.counted.total() // CALL
    assert 200 <= calls < 200 + AGENTS
    day = town.store.spending.of_day()
    assert (day.all.calls, day.all.tokens, day.all.estimated) == (calls, town.counted.total(), 0)
    assert (day.all.cached, day.all.output) == (calls * 30, calls * COMPLETION)
    assert day.all.nanos == calls * (70 * 1000 + 30 * 500 + COMPLETION * 2000)
    assert day.all.refused == AGENTS
    found = {who: town.store.spending.of_sandbox(who).tokens for who in town.sandboxes}
    assert found == {who: town.counted[who] for who in town.sandboxes}
    assert sum(one.tokens for _, one in day.keys) == day.all.tokens
    assert {owner for owner, _ in day.keys} == {"key-0", "key-1"}
    assert town.encodings == {"identity"}


@pytest.mark.parametrize("town", [Budgets(day=ModelBudget(tokens=100 * CALL))], indirect=True)
def test_fifty_agents_ask_once_for_more_and_overshoot_what_was_allowed_by_no_more_than_was_under_way(town):
    for times in (1, 2):
        with ThreadPoolExecutor(AGENTS) as agents:
            refusals = list(agents.map(lambda who: until_refused(town, who), town.sandboxes))
        assert all("a person was asked to allow as much once more" in refusal for refusal in refusals)
        assert times * 100 <= town.counted.total() // CALL < times * 100 + AGENTS
        [asked] = town.store.destinations.waiting()
        assert (asked.tries, asked.budget.setting) == (AGENTS, "MODEL_BUDGET_DAY")
        town.store.destinations.decide(asked, "approve", "once", DecisionActor("key", "a person"))
    assert post(town.sandboxes[asked.sandbox_id], asked.sandbox_id)[0] == 200


@pytest.mark.parametrize("town", [Budgets(ModelBudget(nanos=300_000), ModelBudget(tokens=5 * CALL))], indirect=True)
def test_a_budget_of_a_conversation_and_one_of_a_key_end_what_they_bound_alone(town):
    first, other, third, *_ = town.sandboxes  # the first and the third are of one key
    assert "This conversation" in until_refused(town, first)
    assert (
        town.counted[first] == 3 * CALL
    )  # of 125,000 billionths each: two are within the budget, and the third begins in it
    assert "of this key" in until_refused(town, third)
    assert town.counted[third] == 2 * CALL
    assert post(town.sandboxes[other], other)[0] == 200


@pytest.mark.parametrize("town", [Budgets(day=ModelBudget(tokens=1))], indirect=True)
def test_a_refusal_reads_as_its_provider_and_other_services_go_on(town):
    who = next(iter(town.sandboxes))
    until_refused(town, who)
    status, body = post(town.sandboxes[who], who, "/model/messages", "anthropic-version: 2023-06-01")
    assert (status, json.loads(body)["error"]["type"]) == (402, "billing_error")
    assert post(town.sandboxes[who], who, "/tracker/issues")[0] == 200
    assert town.store.spending.of_sandbox(who).calls == 1

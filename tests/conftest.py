"""Every test that touches Redis runs on fakeredis, a real server and a real cluster; tests/store also on Valkey.

A test that a backend cannot pass names the reason: fakeredis knows no slots and no durability.
Each test gets a fresh conversation, so nothing is ever flushed.
"""

import json
from pathlib import Path
from uuid import uuid4

import pytest

from app import create_app
from config import Config
from store import Bounds, Limits, Store, open_store
from tests.backends import BACKENDS, MOST_BACKENDS
from wire import Event, bare_kind, micros

SECRET_KEY = "a key for tests only"

#: the defaults of the settings
BOUNDS = Bounds(pending_actions=256, event_kinds=256, reason_bytes=2048)

RECORDED = Path(__file__).parent / "recorded"


#: what runs first: it waits for whole servers and containers, and at the end of a parallel run it would run alone
LONGEST = ("v1/test_state_machine.py", "v1/test_kept_work.py", "image", "v1", "boot", "runtimes", "agents", "examples")


def pytest_collection_modifyitems(items):
    def rank(item) -> int:
        path = item.path.relative_to(Path(__file__).parent).as_posix()
        return next((rank for rank, start in enumerate(LONGEST) if path.startswith(start)), len(LONGEST))

    items.sort(key=rank)


def pytest_generate_tests(metafunc):
    if "redis_url" in metafunc.fixturenames:
        names = BACKENDS if Path(__file__).parent / "store" in metafunc.definition.path.parents else MOST_BACKENDS
        metafunc.parametrize("redis_url", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def redis_url(request, tmp_path_factory):
    """The URL of a Redis, one backend after the other."""
    with BACKENDS[request.param](tmp_path_factory.mktemp(request.param)) as (url, _):
        yield url


#: of the app that the tests share: each test is a client of its own
LIMITS = {"rate_limit_starts": "none", "max_conversations_per_sandbox": 100_000}


@pytest.fixture(scope="session")
def app(redis_url):
    return create_app(Config(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, **LIMITS))


@pytest.fixture
def client(app):
    return app.test_client()


@pytest.fixture(scope="session")
def store(app) -> Store:
    return app.extensions["store"]


def store_of(url: str, limits: Limits, secret_key: str = SECRET_KEY, bounds: Bounds = BOUNDS) -> Store:
    """A store with the given limits, which follows no conversation."""
    return open_store(
        url,
        timeout=10,
        max_connections=16,
        text_cache_bytes=0,
        ring_bytes=1,
        most_followers=1,
        secret_keys=tuple(key.strip() for key in secret_key.split(",")) if secret_key else (),
        limits=limits,
        bounds=bounds,
    )


@pytest.fixture
def conversation():
    """A fresh id; the conversation does not exist yet."""
    return str(uuid4())


def recorded(name: str) -> list[dict]:
    """The events of a recorded conversation, in log order."""
    return [json.loads(line) for line in (RECORDED / f"{name}.events.jsonl").read_text().splitlines()]


def oracle(name: str) -> list[dict]:
    """The responses of a real agent server about a recorded conversation."""
    return json.loads((RECORDED / f"{name}.oracle.json").read_text())


def event(kind: str = "PauseEvent", source: str = "user", **members) -> dict:
    """An event with a fresh id."""
    return {"id": str(uuid4()), "timestamp": "2026-11-20T20:37:22.528416", "source": source, "kind": kind, **members}


def message(text: str, source: str = "user", **members) -> dict:
    content = [{"type": "text", "text": text}]
    return event("MessageEvent", source, llm_message={"role": source, "content": content}, **members)


def action(command: str = "ls", **members) -> dict:
    """An executable action of the agent."""
    details = {
        "action": {"command": command, "kind": "TerminalAction"},
        "tool_name": "terminal",
        "tool_call_id": f"call_{uuid4().hex[:8]}",
        "llm_response_id": str(uuid4()),
    }
    return event("ActionEvent", "agent", **{**details, **members})


def observation(of: dict, **members) -> dict:
    """The observation of an action."""
    return event("ObservationEvent", "environment", action_id=of["id"], tool_name="terminal", **members)


def status(value: str) -> dict:
    return event("ConversationStateUpdateEvent", "environment", key="execution_status", value=value)


def as_events(fields: list[dict]) -> list[Event]:
    """Events as the store takes them."""
    return [
        Event(e["id"], bare_kind(e["kind"]), e["source"], micros(e["timestamp"]), e, json.dumps(e).encode())
        for e in fields
    ]

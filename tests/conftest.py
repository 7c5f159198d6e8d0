"""A store and an app that all tests of a process share; and events as agents write them.

Each test gets a fresh conversation, and each file an empty store. tests/backends.py says which run on which store.
"""

import contextlib
import functools
import gc
import importlib
import json
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from httpcore import SyncBackend
from hypothesis import settings
from redis import Redis
from redis.connection import Connection, UnixDomainSocketConnection

import settings.host as settings_of_host
from app import create_app
from boot.rehearsing import Runners
from core.wire import ReceivedEvent, bare_kind, micros
from settings.config import Config
from settings.limits import ConversationLimits, SandboxLimits
from settings.redis import RedisSettings
from store import Store, open_store
from tests.backends import BACKENDS, DEFAULT, EVERY_BACKEND, runs_on_all
from tests.data_model import leaked
from tests.report import GROUPS
from tests.shared import stop_shared_servers

SECRET_KEY = "a key for tests only"

#: the defaults of the settings
BOUNDS = ConversationLimits()

RECORDED = Path(__file__).parent / "recorded"


#: no test's program is at a terminal, and most tests read what people read there
os.environ.setdefault("LOG_FORMAT", "text")

#: agents that a developer has installed are no part of a test, but of those in tests/interop
NO_AGENTS = f"{tempfile.gettempdir()}/no-agents"
settings_of_host.AGENTS = Path(os.environ.setdefault("AGENTS_DIR", NO_AGENTS))

pytest_plugins = ["tests.report", "tests.quick"]

# A deadline would be a timed assertion.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")


#: what runs first, the longest files before others: at the end of a parallel run each would run alone
LONGEST = (
    "test_contract.py",
    "image",
    "test_live.py",
    "test_whole_wire.py",
    "v1/test_state_machine.py",
    "v1/test_kept_work.py",
    "v1",
    "boot",
    "console",
    "test_",
    "runtimes",
    "reference_agent",
    "docs",
)


def pytest_sessionstart(session):
    """Let all workers but the first import the test files from the last one on, if the whole suite runs.

    Each worker imports every file, and pytest rewrites the assertions of a file that has no bytecode: 25 s of CPU for
    all of them. Two workers in step would both do it. From opposite ends, each finds the bytecode of the other.
    """
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0" or session.config.args != ["tests"]:
        return
    here = Path(__file__).parent
    for path in sorted(here.rglob("test_*.py"), reverse=True):
        name = ".".join(path.relative_to(here.parent).with_suffix("").parts)
        if not name.startswith("tests.interop."):
            with contextlib.suppress(Exception, pytest.skip.Exception):  # the collection reports it
                importlib.import_module(name)


def pytest_collection_modifyitems(items):
    def rank(item) -> int:
        path = item.path.relative_to(Path(__file__).parent).as_posix()
        return next((rank for rank, start in enumerate(LONGEST) if path.startswith(start)), len(LONGEST))

    items.sort(key=rank)


def pytest_collection_finish():
    gc.freeze()  # the collection after each file looks at what its tests made, and not at every module once more


def pytest_generate_tests(metafunc):
    if "redis_url" in metafunc.fixturenames and runs_on_all(metafunc.definition.path):
        metafunc.parametrize("redis_url", EVERY_BACKEND, indirect=True, scope="session")


@contextlib.contextmanager
def no_threads() -> Iterator[None]:
    """The system gives this thread no further one within the block."""
    start, mine = threading.Thread.start, threading.get_ident()

    def refuse(thread: threading.Thread) -> None:
        if threading.get_ident() == mine:
            raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield


@pytest.fixture(scope="session")
def backend_urls() -> dict[str, str]:
    """The URLs of the backends that this process of tests has started, by name."""
    return {}


@pytest.fixture(scope="session")
def backend_url(tmp_path_factory, backend_urls):
    """The URL of a backend by its name; each is started once in a process of tests."""
    with contextlib.ExitStack() as running:

        def start(name: str) -> str:
            if name not in backend_urls:
                backend_urls[name], _ = running.enter_context(BACKENDS[name](tmp_path_factory.mktemp(name)))
            return backend_urls[name]

        yield start


@pytest.fixture(autouse=True, scope="module")
def each_file_finds_an_empty_store(backend_urls):
    """What a file leaves in the shared store meets no other file; and it is what the data model knows."""
    yield
    gc.collect()  # what a file leaves unclosed warns in this file, and not wherever the collector comes along
    gc.freeze()  # what is left lasts: the next file's collection need not look through it once more
    if DEFAULT in backend_urls:
        with Redis.from_url(backend_urls[DEFAULT]) as redis:
            leaks = leaked(redis)
            redis.flushall()
        assert not leaks, f"keys without an expiry that the data model (store/keys.toml) does not name: {leaks}"
        app_of(backend_urls[DEFAULT]).extensions["server"].store.data_version.ensure()


@pytest.fixture(scope="session")
def redis_url(request, backend_url):
    """The URL of the store of a test."""
    return backend_url(getattr(request, "param", DEFAULT))


#: of the app that the tests share: each test is a client of its own
LIMITS = {"rate_limit_starts": "none", "max_conversations_per_sandbox": 100_000, "max_sandboxes": 10_000}


@functools.cache
def app_of(url: str):
    """The app that the tests of a process share on one store, whose data have the present version from the start."""
    app = create_app(Config.of(redis_url=url, redis_timeout=10, secret_key=SECRET_KEY, **LIMITS))
    app.extensions["server"].store.data_version.ensure()
    return app


@pytest.fixture(scope="session")
def app(redis_url):
    return app_of(redis_url)


@pytest.fixture(autouse=True)
def no_runner_of_a_rehearsal(request, monkeypatch):
    """A quick test starts no process for a rehearsal in the background: it is left as it began."""
    if not any(mark.name in GROUPS for mark in request.node.iter_markers()):
        monkeypatch.setattr(Runners, "start", lambda *_: None)


@pytest.fixture(autouse=True, scope="session")
def shared_servers_end():
    """With the last test: a process of tests that ends later is killed, and would leave them."""
    yield
    stop_shared_servers()


@pytest.fixture(autouse=True, scope="session")
def connections_close_their_sockets():
    """Of an app that a test drops, the collector of garbage may meet a socket before its connection, and warn."""

    def closing(connect):
        def connected(one):
            opened = connect(one)
            weakref.finalize(one, opened.close)
            return opened

        return connected

    def connected_to_agent(*args, _connect=SyncBackend.connect_tcp, **options):
        stream = _connect(*args, **options)
        weakref.finalize(stream, stream.get_extra_info("socket").close)
        return stream

    with pytest.MonkeyPatch.context() as patched:
        for kind in (Connection, UnixDomainSocketConnection):
            patched.setattr(kind, "_connect", closing(kind._connect))
        patched.setattr(SyncBackend, "connect_tcp", connected_to_agent)
        yield


@pytest.fixture
def client(app):
    return app.test_client()


@pytest.fixture(scope="session")
def store(app) -> Store:
    return app.extensions["server"].store


def unchecked(limits, **values):
    """The limits with other values, also such as no setting may have."""
    changed = copy(limits)
    for name, value in values.items():
        assert hasattr(changed, name)
        object.__setattr__(changed, name, value)
    return changed


def limits_of(
    most: int, pause_idlest: bool = False, host_seconds: float = 60, start_seconds: float = 120, **more: Any
) -> SandboxLimits:
    """Limits of sandboxes, of which a test reaches those alone that it names."""
    wide: dict[str, Any] = {"max_stopped": 1_000_000, "keep_failed_days": 0, "start_task_days": 36_500}
    wide |= {"max_conversations_per_sandbox": 1_000_000, "max_starts": 1_000_000}
    wide |= {"max_sandbox_bytes": 1 << 50, "rate_limit_hook_bytes": "none"}
    wide |= {"max_sandboxes": most, "sandbox_overflow": "pause" if pause_idlest else "refuse"}
    wide |= {"host_seconds": host_seconds, "sandbox_start_seconds": start_seconds}
    return unchecked(SandboxLimits(), **(wide | more))


def store_of(
    url: str, limits: SandboxLimits, secret_key: str = SECRET_KEY, bounds: ConversationLimits = BOUNDS
) -> Store:
    """A store with the given limits, which follows no conversation."""
    redis = RedisSettings(
        redis_url=url, redis_timeout=10, redis_connections=16, text_cache_bytes=0, secret_key=secret_key
    )
    return open_store(redis, bounds, limits)


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


def as_events(fields: list[dict]) -> list[ReceivedEvent]:
    """Events as the store takes them."""
    return [
        ReceivedEvent(e["id"], bare_kind(e["kind"]), e["source"], micros(e["timestamp"]), e, json.dumps(e).encode())
        for e in fields
    ]

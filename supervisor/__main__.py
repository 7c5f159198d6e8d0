"""Run this host's supervisor until SIGTERM or SIGINT:  python -m supervisor [--stand-by] [--tallies DESCRIPTOR]

Exit status 2: a setting is wrong. 3: another supervisor runs on this host. A message on standard error has the reason.
With --stand-by it waits while another supervisor runs, and takes over when that supervisor ends. With --tallies it
counts in the shared memory of the server that started it, whose /metrics shows the counts.
"""

import gc

if __name__ == "__main__":
    gc.disable()  # loaded modules are never collected

import argparse
import importlib
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from agents.client import http_client
from agents.commands import Commands
from agents.expiry import ExpiryDriver
from boot.keeper import keep_running, parent_is_there
from core.access import SettingsKeys
from core.approvals import ApprovalLinks
from core.pauses import Backoff
from core.program import keep_private
from notifications.devices import DeviceStanding, open_rings
from notifications.messages import QuietRules
from notifications.sending import open_sender, targets_of
from runtimes import Runtime
from runtimes.docker import DockerRuntime
from runtimes.kubernetes import KubernetesRuntime
from runtimes.process import ProcessRuntime
from runtimes.starts import EGRESS_SOCKET
from settings import ConfigError
from settings.config import Config
from settings.data_dir import make_private, make_secret_key
from settings.egress import NAMED
from settings.specs import Specs
from store import Store
from store.errors import UNAVAILABLE, NewerData
from store.link.health import DataVersion
from supervisor.archives import HostArchives, HostFiles
from supervisor.checks import Checker
from supervisor.deliveries import DeliveryDriver
from supervisor.endings import Endings, Recovery, SandboxHost
from supervisor.go_aheads import GoAheadDriver
from supervisor.keeping import ColdSweep, Retention
from supervisor.launches import announce
from supervisor.loop import Loop, Tasks
from supervisor.notifications import Notifier, OutboxMover
from supervisor.presence import HostLease, HostTaken
from supervisor.queued_messages import MessageDriver
from supervisor.sandboxes import Reconciler
from supervisor.start_tasks import StartDriver
from supervisor.upkeep import Strays, Upkeep, WarmPools
from telemetry import traces
from telemetry.logs import log_to_stderr, say
from telemetry.meter import SUPERVISOR, Meter, Tallies
from telemetry.traces import hindrance, wants_traces
from wiring import open_store_of

log = logging.getLogger("supervisor")

_WRONG, _TAKEN = 2, 3

#: Timeout in seconds for sending the last spans.
_LAST_SPANS_SECONDS = 5.0

#: Intervals in seconds between two polls: of the host's lease while another supervisor holds it, and of the parent's
#: pipe.
_LEASE_POLL, _PARENT_POLL = 0.5, 0.5

#: Lifetime in seconds after which a restart of the egress proxy has the shortest delay, and grace period of its stop.
_STEADY, _GRACE = 3.0, 2.0

#: Shortest and longest delay of a retry while Redis is unavailable, in seconds.
_SHORTEST_DELAY, _LONGEST_DELAY = 0.5, 5.0


def main() -> int:
    """Run the supervisor. Return the exit status."""
    gc.freeze()
    gc.enable()
    parser = argparse.ArgumentParser(description="Run this host's supervisor.")
    parser.add_argument("--stand-by", action="store_true", help="wait while another supervisor runs on this host")
    parser.add_argument("--tallies", type=int, help="descriptor of the memory that it counts in")
    options = parser.parse_args()
    keep_private()  # also for the files that sandboxes write
    stop = _stop_event()
    try:
        config = _config()
        specs = Specs.of(config.host)
        if not config.redis.redis_url:
            raise ConfigError("REDIS_URL is not set: a supervisor beside a server needs the server's Redis")
        folder = _folder(config)
        store = open_store_of(config, meter := Meter())
    except ConfigError as error:
        say(str(error), "supervisor")
        return _WRONG
    log_to_stderr("supervisor", config.host.log_level.upper())
    logging.getLogger("httpx").setLevel(logging.WARNING)
    if options.tallies is not None:
        meter.share(Tallies(options.tallies), SUPERVISOR)
        os.close(options.tallies)  # no sandbox inherits the descriptor
    spans, lease = _spans(), HostLease(store.sandboxes, folder.name, folder)
    cold = ColdSweep(store, config.keeping)
    expiry = ExpiryDriver(store, Commands(store, http_client(config.sandboxes.agent_seconds), specs))
    threading.Thread(target=expiry.run, args=(stop,), name="expiry", daemon=True).start()
    try:
        while _wait_for(store.data_version, lease, stop, stands_by=options.stand_by):
            _supervise(config, specs, store, cold, lease, folder, stop)
            if stop.is_set():
                break
    except HostTaken:
        say(f"another supervisor runs on the host {lease.host}; HOST_ID gives this one a name", "supervisor")
        return _TAKEN
    except NewerData as error:
        say(str(error), "supervisor")
        return _WRONG
    finally:
        if spans:
            spans.end(_LAST_SPANS_SECONDS)
    return 0


def _spans() -> Any:
    """Return the spans of this process if OTEL_… enables traces; None otherwise."""
    if not wants_traces(os.environ):
        return None
    try:
        if not (reason := hindrance(os.environ)):
            spans = importlib.import_module("telemetry.spans").Spans()
            traces.use(spans)
            return spans
    except (ImportError, ValueError) as error:  # a broken package, or a variable that the SDK cannot read
        reason = f"OTEL_… requests traces, but none are recorded: {error}"
    log.warning(reason)
    return None


def _config() -> Config:
    """Return the settings, after creating a sealing key in DATA_DIR if there is none. Raises ConfigError."""
    config = Config.from_env()
    if config.redis.secret_key:
        return config
    try:
        make_secret_key(config.redis.data_dir)
    except RuntimeError as error:
        raise ConfigError(str(error)) from None
    return Config.from_env()


def _stop_event() -> threading.Event:
    """Return an event that SIGTERM, SIGINT and, if standard input is a pipe, its end set."""
    stop = threading.Event()

    def watch_parent() -> None:
        while parent_is_there(_PARENT_POLL):
            pass
        stop.set()

    # The lock of an Event is not reentrant: a handler that sets it directly could interrupt this thread inside `wait`.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=stop.set).start())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # the keeper blocked it during the start
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        threading.Thread(target=watch_parent, daemon=True).start()
    return stop


def _folder(config: Config) -> Path:
    """Return the folder of the host's sandboxes, named after the host. Raises ConfigError."""
    folder = config.sandbox_folder / config.host.name
    try:
        if not config.host.sandbox_dir:
            make_private(Path(config.redis.data_dir))
        make_private(folder)
    except OSError as error:
        raise ConfigError(f"The folder {folder} cannot be used for sandboxes: {error.strerror}") from None
    return folder


def _runtimes(config: Config, specs: Specs, host: str, folder: Path) -> dict[str, Runtime]:
    """Return the runtimes by the name that a spec uses."""
    is_near = config.host.sandbox_url_host in ("127.0.0.1", "localhost")
    uses_cluster = any(spec.runtime == "kubernetes" for spec in specs.all)
    process = ProcessRuntime(
        folder,
        ports=config.host.port_range,
        orphan_seconds=config.host.orphan_seconds,
        address="127.0.0.1" if is_near else "0.0.0.0",
        private=_private(config),
        users=config.host.user_range,
    )
    return {
        "process": process,
        "docker": DockerRuntime(host, folder, config.host.port_range),
        "kubernetes": KubernetesRuntime(
            host,
            folder,
            in_use=uses_cluster,
            sandboxes=config.host.kubernetes_sandboxes,
            egress_image=config.host.kubernetes_egress_image,
        ),
    }


def _host(config: Config, lease: HostLease) -> SandboxHost:
    return SandboxHost(
        lease.host,
        lease.identity,
        config.host.sandbox_url_host,
        config.http.webhook_base,
        config.sandboxes.sandbox_start_seconds,
        config.http.allowed_origins,
        lease.folder,
    )


def _private(config: Config) -> tuple[Path, ...]:
    """Return the folders that no process sandbox may read."""
    place = config.keeping.cold_place
    cold = place.path if place and not place.bucket else ""
    return tuple(Path(path) for path in (config.redis.data_dir, config.host.sandbox_specs, cold) if path)


def _wait_for(data_version: DataVersion, lease: HostLease, stop: threading.Event, *, stands_by: bool) -> bool:
    """Return whether the lease was taken before `stop` was set. Raises NewerData, and HostTaken unless it stands by.

    It tries at least once, because a supervisor that is stopped at its start must still end its predecessor's
    sandboxes.
    """
    backoff, said = Backoff(_SHORTEST_DELAY, _LONGEST_DELAY), False
    while True:
        try:
            data_version.ensure()
            if lease.take():
                return True
        except UNAVAILABLE as error:
            log.warning("the store does not answer: %s", error)
            delay = backoff.delay()
        else:
            backoff.reset()
            if not stands_by:
                raise HostTaken
            if not said:
                log.info("another supervisor runs on the host %s: standing by", lease.host)
                said = True
            delay = _LEASE_POLL
        if stop.wait(delay):
            return False


@contextmanager
def _way_out(specs: Specs, folder: Path) -> Iterator[None]:
    """Run the egress proxy during the block, if a spec has named egress. Pods use a proxy in their cluster."""
    if not any(spec.egress == NAMED and spec.runtime != "kubernetes" for spec in specs.all):
        yield
        return
    # Its standard input is a pipe that closes when this process ends, so that the proxy ends too.
    command = [sys.executable, "-m", "egress", str(folder.absolute() / EGRESS_SOCKET)]
    start = partial(subprocess.Popen, command, stdin=subprocess.PIPE, start_new_session=True)
    stop, first = threading.Event(), None
    with suppress(OSError):  # for instance no free process: the keeper retries
        first = start()
    keep = partial(keep_running, name="the way out", steady=_STEADY, grace=_GRACE, goes_on=lambda s: not stop.wait(s))
    keeper = threading.Thread(target=keep, args=(first, start), name="egress")
    keeper.start()
    try:
        yield
    finally:
        stop.set()
        keeper.join()


def _notifier(config: Config, store: Store) -> Notifier:
    targets = targets_of(config.notify)
    clock = store.link.health.clock
    url, seconds = config.http.public_url, config.notify.link_seconds
    links = ApprovalLinks(config.redis.secret_keys, public_url=url, seconds=seconds, clock=clock)
    private = bool(config.notify.notify_private)
    standing = DeviceStanding(store, SettingsKeys(config.access.api_keys), partial(_is_open, config, store))
    ringer = open_rings(store, config.notify, url)
    mover = OutboxMover(store, targets, QuietRules.of(config.notify), links, standing, public_url=url)
    return Notifier(store, targets, mover, open_sender(private=private), standing, ringer)


def _is_open(config: Config, store: Store) -> bool:
    """Return whether no key is needed, by the rule of the workers."""
    return config.access.auth == "open" or (config.is_open and not store.access.keys.all())


def _supervise(
    config: Config, specs: Specs, store: Store, cold: ColdSweep, lease: HostLease, folder: Path, stop: threading.Event
) -> None:
    """Supervise until `stop` is set, or until another supervisor has the lease."""
    client = http_client(config.sandboxes.agent_seconds)
    commands = Commands(store, client, specs)
    announcing = (store, lease.host, config.host.user_range, specs)
    threading.Thread(target=announce, args=announcing, daemon=True).start()
    runtimes, host = _runtimes(config, specs, lease.host, folder), _host(config, lease)
    recovery = Recovery(store)
    endings = Endings(store, runtimes, host, recovery)
    archives = HostArchives(store, specs, runtimes, host.id, most_bytes=config.http.max_archive_bytes)
    shared = config.sandboxes.sandbox_sharing == "shared"
    tasks = Tasks(
        sandboxes=Reconciler(store, specs, runtimes, host, client, recovery, endings, archives),
        upkeep=Upkeep(store, runtimes, host.id, folder=host.folder),
        archives=archives,
        files=HostFiles(store, specs, runtimes, host.id),
        starts=StartDriver(store, commands, specs, shared=shared, start_seconds=config.sandboxes.sandbox_start_seconds),
        deliveries=DeliveryDriver(store, commands),
        messages=MessageDriver(store, commands),
        go_aheads=GoAheadDriver(store, specs),
        checks=Checker(store, client, runtimes, host.id),
        strays=Strays(store, client, host),
        pools=WarmPools(store, specs),
        retention=Retention(store, commands, config.keeping),
        cold=cold,
    )
    loop = Loop(store, tasks, lease, stop=stop, most_starts=config.host.sandbox_starts)
    log.info("supervising the sandboxes of host %s under %s", lease.host, folder)
    try:
        if fault := store.link.seal_check.fault():
            log.warning(fault)
        if config.host.resume_sandboxes and not stop.is_set():
            tasks.upkeep.resume_all()
        tasks.checks.adopt()
        with _way_out(specs, folder), _notifier(config, store).running():
            loop.run()
        if config.host.stop_sandboxes:
            endings.end_all()
        lease.release()
    except HostTaken:
        log.warning("another supervisor has taken the host %s", lease.host)
    except UNAVAILABLE as error:
        log.warning("the store does not answer: %s", error)


if __name__ == "__main__":
    status = main()
    logging.shutdown()
    # A thread may drive a start task for minutes. After its lease expires, another supervisor repeats the steps.
    os._exit(status)

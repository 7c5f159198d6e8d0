"""Run this host's supervisor until SIGTERM or SIGINT:  python -m supervisor [--stand-by]

Exit status 2: a setting is wrong, and 3: another supervisor runs on this host; either is said in a sentence.
With --stand-by it waits until the other one has ended.
"""

import argparse
import fcntl
import logging
import os
import signal
import socket
import stat
import sys
import threading
import time
from pathlib import Path

from agents.commands import Commands
from agents.link import http_client
from boot.lifeline import parent_is_there
from config import Config, ConfigError
from runtimes import Runtime
from runtimes.docker import DockerRuntime
from runtimes.process import ProcessRuntime
from specs import Specs
from supervisor.log_lines import LogLines
from supervisor.loop import HostTaken, Loop
from supervisor.sandboxes import Host, Reconciler
from supervisor.start_tasks import StartDriver
from wiring import open_store_of

log = logging.getLogger("supervisor")

_WRONG, _TAKEN = 2, 3

#: seconds between two tries to be the host's supervisor
_PATIENCE = 0.5


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description="Run this host's supervisor.")
    parser.add_argument("--stand-by", action="store_true", help="wait while another one runs on this host")
    stands_by = parser.parse_args().stand_by
    try:
        config = Config.from_env()
        specs = Specs.load(config.sandbox_specs)
        if not config.redis_url:
            raise ConfigError("REDIS_URL is not set: a supervisor beside a server needs the server's Redis")
    except ConfigError as error:
        print(f"supervisor: {error}", file=sys.stderr)
        return _WRONG
    handler = logging.StreamHandler()
    handler.setFormatter(LogLines("[%(process)d] [supervisor] %(message)s"))
    logging.basicConfig(level=config.log_level.upper(), handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)
    host = config.host_id or socket.gethostname()
    folder = Path(config.sandbox_dir or f"{config.data_dir}/sandboxes") / host
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    told = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _run(config, specs, host, folder)
            return 0
        except (BlockingIOError, HostTaken):
            if not stands_by:
                print(
                    f"supervisor: another supervisor runs on the host {host}; HOST_ID gives this one a name",
                    file=sys.stderr,
                )
                return _TAKEN
            if not told:
                log.info("another supervisor runs on the host %s: standing by", host)
                told = True
            if _parent_is_gone(_PATIENCE):
                return 0


def _run(config: Config, specs: Specs, host: str, folder: Path) -> None:
    """Supervise until a signal says to stop. Raises HostTaken."""
    store = open_store_of(config)
    client = http_client(config.agent_seconds)
    commands = Commands(store, client)
    process = ProcessRuntime(folder, ports=config.sandbox_port_range, orphan_seconds=config.orphan_seconds)
    runtimes: dict[str, Runtime] = {"process": process, "docker": DockerRuntime(host)}
    reconciler = Reconciler(
        store,
        specs,
        runtimes,
        Host(host, config.sandbox_url_host, config.webhook_base, config.sandbox_start_seconds),
        client,
    )
    shared = config.sandbox_sharing == "shared"
    loop = Loop(
        store,
        commands,
        reconciler,
        StartDriver(store, commands, specs, shared=shared, start_seconds=config.sandbox_start_seconds),
        host=host,
        identity=f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {folder.resolve()}",
        most_starts=config.sandbox_starts,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: loop.stop())
    _end_with_parent(loop)
    log.info("supervising the sandboxes of host %s under %s", host, folder)
    loop.run()
    if config.stop_sandboxes:
        reconciler.end_all()


def _end_with_parent(loop: Loop) -> None:
    """Where standard input is a pipe, its end is that of whoever started this: stop then."""

    def watch() -> None:
        while not _parent_is_gone(_PATIENCE):
            pass
        loop.stop()

    threading.Thread(target=watch, daemon=True).start()


def _parent_is_gone(seconds: float) -> bool:
    """Wait so long; whether standard input is a pipe that has ended."""
    if not stat.S_ISFIFO(os.fstat(0).st_mode):
        time.sleep(seconds)
        return False
    return not parent_is_there(seconds)


if __name__ == "__main__":
    sys.exit(main())

"""Run the egress proxy until SIGTERM, or until the pipe on standard input closes:  python -m egress SOCKET

SOCKET is the path of the Unix socket that this host's launchers connect to. In a cluster it is `ADDRESS:PORT`, and a
NetworkPolicy admits only pods of sandboxes. REDIS_URL and SANDBOX_SPECS are the supervisor's. The process has no state
of its own and may be killed at any time: Redis and the specs say what it may pass on.

A child serves. The parent, which has loaded the modules, forks another child when the first is killed. Loading them
takes more than a second of CPU, which on a busy machine meant 14 s without a proxy.
"""

import gc

gc.disable()  # all that is loaded here stays alive

from gevent import monkey  # type: ignore[import-untyped]

from core.program import keep_private, plugins_looked_up_once

with plugins_looked_up_once():
    monkey.patch_all()

import argparse
import logging
import os
import re
import signal
import socket
import stat
import sys
import threading
import time
from pathlib import Path

from gevent import get_hub
from gevent.os import fork_gevent  # type: ignore[import-untyped]

from boot.keeper import parent_is_there
from core.prices import Prices, read_prices
from egress.gate import Gate
from egress.proxy import Proxy
from egress.resolver import MOST_LOOKUPS_IN_ALL
from settings import ConfigError
from settings.config import Config
from settings.specs import Specs
from telemetry.logs import log_to_stderr, say
from wiring import open_store_of

#: Seconds between two checks that the parent is alive.
_LOOK = 1.0

_WRONG = 2

#: Resolver threads that are reserved for this process, because the store may have a name too.
_SPARE_THREADS = 8

#: Minimum lifetime of a child, in seconds. If a child ends earlier, this process ends too, and its parent backs off.
_STEADY = 3.0


def listening(place: str) -> socket.socket:
    """Listen at `ADDRESS:PORT` or at a path, and replace an earlier socket there. Raises OSError."""
    if match := re.fullmatch(r"([^/]+):([0-9]{1,5})", place):
        return socket.create_server((match[1], int(match[2])), backlog=1024)
    path = Path(place)
    before = Path.cwd()
    os.chdir(path.parent)  # the path may be longer than the address of a Unix socket
    made = f"{path.name}.{os.getpid()}"
    Path(made).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(made)
    listener.listen(1024)
    Path(made).rename(path.name)
    os.chdir(before)
    return listener


def main() -> int:
    """Run the proxy's processes. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m egress", description="Run the way out of sandboxes.")
    parser.add_argument("socket", help="path of the Unix socket to listen on, or ADDRESS:PORT")
    options = parser.parse_args()
    keep_private()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    gc.freeze()  # keep the loaded modules shared with each child
    gc.enable()
    while True:
        parent, began = os.getpid(), time.monotonic()
        if (child := fork_gevent()) == 0:
            return serve(options.socket, parent)
        _, status = monkey.get_original("os", "waitpid")(child, 0)
        if not os.WIFSIGNALED(status) or time.monotonic() - began < _STEADY:
            return abs(os.waitstatus_to_exitcode(status))
        say(f"the proxy was ended by signal {os.WTERMSIG(status)}: the next one begins", "egress")


def serve(place: str, parent: int) -> int:
    """Serve until SIGTERM, or until the parent or the pipe ends. Return the exit status."""
    try:
        config = Config.from_env()
        specs, store = Specs.of(config.host), open_store_of(config)
        listener = listening(place)
    except (ConfigError, OSError) as error:
        say(str(error), "egress")
        return _WRONG
    log_to_stderr("egress", config.host.log_level.upper())
    logging.getLogger("httpcore").setLevel(logging.WARNING)
    is_piped = stat.S_ISFIFO(os.fstat(0).st_mode)  # otherwise no supervisor started it

    def end_with_parent() -> None:
        while os.getppid() == parent:
            if not is_piped:
                time.sleep(_LOOK)
            elif not parent_is_there(_LOOK):
                break
        os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
    get_hub().threadpool.maxsize = MOST_LOOKUPS_IN_ALL + _SPARE_THREADS
    logging.getLogger("egress").info("the way out listens at %s", place)
    Proxy(Gate(store, specs, config.models.budgets, Prices(read_prices(config.models.model_prices)))).serve(listener)
    return 0


if __name__ == "__main__":
    sys.exit(main())

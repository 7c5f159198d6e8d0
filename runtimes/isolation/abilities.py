"""A probe of the host's support for isolation:  python -m runtimes.isolation.abilities

Prints the abilities as JSON. Only a real sandbox proves that it works, because a kernel, a container, an AppArmor
profile or a setting may forbid each step.
"""

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from functools import cache
from pathlib import Path

import psutil

from runtimes import PROJECT, RuntimeCallFailed
from runtimes.isolation import BUBBLEWRAP, Abilities, kernel, view
from runtimes.isolation.entrance import Confinement, entrance
from runtimes.isolation.users import USERS, held_user
from runtimes.isolation.view import readable

#: Timeout of a probe, in seconds.
_TIMEOUT = 20.0

_NOT_TRIED = "it was not tried"

#: The probe has no thread. A new interpreter would take most of a try's time.
_FORK = multiprocessing.get_context("fork")


@cache
def abilities() -> Abilities:
    """Return the abilities of this user on this host. Probed once per process, in a child process. Thread-safe."""
    environment = {"PATH": os.environ.get("PATH", os.defpath)}
    command = [sys.executable, "-m", "runtimes.isolation.abilities"]
    try:
        printed = subprocess.run(
            command, cwd=PROJECT, env=environment, capture_output=True, timeout=4 * _TIMEOUT, check=True
        ).stdout
        return Abilities(**json.loads(printed))
    except (OSError, ValueError, TypeError, subprocess.SubprocessError) as error:
        return Abilities(f"its probe fails: {error}", _NOT_TRIED, kernel.landlock_version(), kernel.HAS_SECCOMP, False)


def _probed() -> Abilities:
    if shutil.which("bwrap") is None:
        wrapped, joined = "the program bwrap (of bubblewrap) is not installed", _NOT_TRIED
    elif wrapped := _failure("none"):
        joined = _NOT_TRIED
    else:
        joined = _failure("internet")
    return Abilities(wrapped, joined, kernel.landlock_version(), kernel.HAS_SECCOMP, _can_have_users())


def _can_have_users() -> bool:
    """Return whether a process can get its own view of folders and another user. Tried in a child process."""
    if os.geteuid() != 0:
        return False
    child = os.fork()
    if not child:
        try:
            view.show([], ["/tmp"])
            kernel.become(USERS.start)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def _failure(network: str) -> str:
    """Return why a sandbox with this network does not run; "" if it does. Tried in a child process."""
    with tempfile.TemporaryFile() as output:
        child = _FORK.Process(target=_try, args=(network, output.fileno()))
        child.start()
        child.join(_TIMEOUT)
        if child.exitcode is None:
            child.kill()
            child.join()
            return f"it did not end within {_TIMEOUT:g} s"
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().splitlines()
    return "" if child.exitcode == 0 else _explained(lines[-1] if lines else f"exit status {child.exitcode}")


def _explained(reason: str) -> str:
    """Return a failure's reason, with the files that root's sandboxes cannot read for their user, if there are any."""
    shut = view.closed(readable([], [])) if os.geteuid() == 0 else ""
    return f"{reason}; {shut}" if shut else reason


def _try(network: str, output: int) -> None:
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.exit(_run(network))


def _run(network: str) -> int:
    """Run a program that does nothing in a real sandbox. Return its exit status."""
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    with tempfile.TemporaryDirectory(prefix="agent-server-") as name:
        folder = Path(name)
        user = None
        if os.geteuid() == 0:
            user, hold = held_user(folder)
            work = folder / "work"
            work.mkdir()
            os.chown(work, user, user)
        else:
            work, hold = folder, None
        try:
            confinement = Confinement(
                BUBBLEWRAP, network, readable([], []), str(work), user=user, webhooks="http://127.0.0.1:1/"
            )
            into = entrance(confinement, [sys.executable, "-c", ""], {"PATH": os.defpath}, str(work))
            process = subprocess.Popen(
                into.command, env=into.env, cwd=into.folder, pass_fds=into.files, preexec_fn=into.enter
            )
            return process.wait()
        except (OSError, RuntimeCallFailed, subprocess.SubprocessError) as error:
            print(getattr(error, "strerror", None) or error)
            return 1
        finally:
            for left in psutil.Process().children():  # pasta
                left.kill()
            if hold is not None:
                hold.close()


if __name__ == "__main__":
    print(json.dumps(asdict(_probed())))

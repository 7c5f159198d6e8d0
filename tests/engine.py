"""A real Docker engine, and the server's image on it.

As root in CI the tests start a private engine, one per machine, which all test processes share: the last one to leave
stops it. Elsewhere they use the engine that responds. Without an engine they are skipped at home and fail in CI.

CI pulls from no registry: debootstrap makes the base image, which stays in the private engine's folder for the next
run on that machine, as do the layers of the builds.
"""

import ast
import contextlib
import fcntl
import gc
import os
import re
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import docker
import psutil
import pytest
from docker.models.containers import Container

from runtimes import Handle
from tests.servers import PROJECT, program, wait_until

#: the folder that the private engine keeps between runs, and its socket
CACHE = Path("/var/cache/agent-server-ci")
SOCKET = Path("/run/agent-server-ci.sock")

#: the image that the private engine builds on instead of the Dockerfile's default; its tag is the hash of what it has
BASE = "agent-server-ci/base"

#: how pip reaches the index. Its other settings may name files of this machine, which the image has not
_INDEX = ("index-url", "extra-index-url", "trusted-host", "cert", "proxy", "timeout", "default-timeout")

#: the engine, where this process has started it: it outlives the process, and no warning of that is wanted
_started: list[subprocess.Popen[bytes]] = []

_PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


@dataclass
class FakeEngine:
    url: str
    build_args: list[str] = field(default_factory=list)  #: options of every `docker build`

    def __post_init__(self) -> None:
        self.env = {**os.environ, "DOCKER_HOST": self.url}
        self.client = docker.DockerClient(base_url=self.url, timeout=120)

    def run(self, *command: str, **options) -> str:
        """The output of a command that uses this engine; a command that fails fails the test with its output."""
        ran = subprocess.run(
            command, env={**self.env, **options.pop("env", {})}, text=True, capture_output=True, cwd=PROJECT, **options
        )
        if ran.returncode:
            pytest.fail(f"{' '.join(command)}: status {ran.returncode}\n{ran.stdout[-4000:]}\n{ran.stderr[-4000:]}")
        return ran.stdout.strip()

    def build(self, tag: str, dockerfile: str | None = None, *, extra: str = "") -> str:
        """The id of the image that the project's Dockerfile, or this text, makes. extra: its build argument EXTRA."""
        source = ["."] if dockerfile is None else ["-"]
        args = [*self.build_args, f"--build-arg=EXTRA={extra}"] if extra else self.build_args
        self.run("docker", "build", "--network=host", *args, "--tag", tag, *source, input=dockerfile)
        return str(self.client.images.get(tag).id)

    def container_of(self, handle: Handle) -> Container:
        return self.client.containers.get(handle["container"])

    def holders(self, sandbox_id: str) -> list[str]:
        """The names of all containers that have a sandbox's volume."""
        volume = {"volume": f"agent-server-{sandbox_id}"}
        return [str(container.name) for container in self.client.containers.list(all=True, filters=volume)]


def ran(container: Container, text: str) -> str:
    """The output of a shell command in a container. A command that fails fails the test with its output."""
    result = container.exec_run(["sh", "-c", text])
    assert result.exit_code == 0, result.output.decode()
    return result.output.decode(errors="backslashreplace")  # surrogates cannot leave a test process


@pytest.fixture(scope="session")
def engine() -> Iterator[FakeEngine]:
    """The engine that all tests of this machine share: each test removes the containers that it starts."""
    program("docker")
    if os.environ.get("CI") and os.geteuid() == 0:
        with _private_engine() as private:
            yield private
        return
    if not _default_responds():
        reason = "no Docker engine answers, and only root in CI starts one"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    yield FakeEngine(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))


@pytest.fixture(scope="session")
def image(engine) -> str:
    """The id of the server's image, built from this checkout. It serves as a sandbox's image too."""
    with alone("build"):
        return engine.build("agent-server-ci/server")


@contextlib.contextmanager
def alone(name: str) -> Iterator[None]:
    """One block of that name at a time on this machine."""
    with Path(tempfile.gettempdir(), f"agent-server-ci-{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _private_engine() -> Iterator[FakeEngine]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "users").open("a") as users:
        with alone("engine"):
            fcntl.flock(users, fcntl.LOCK_SH)  # held by every process that uses the engine
            if not SOCKET.exists() or not _responds():
                _start()
            engine = FakeEngine(f"unix://{SOCKET}")
            settings = _settings(engine)
            base = f"{BASE}:{sha256(repr([_PACKAGES, settings]).encode()).hexdigest()[:16]}"
            engine.build_args = _build_args(base)
            if not engine.client.images.list(name=base):
                _make_base(engine, base, settings)
        yield engine
        with alone("engine"), contextlib.suppress(BlockingIOError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused while another process uses the engine
            _stop(engine)


def _default_responds() -> bool:
    """Whether the engine that the environment names answers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the package leaves a socket open where nobody listens
        try:
            with contextlib.closing(docker.from_env()) as client:
                return bool(client.ping())
        except docker.errors.DockerException:
            return False
        finally:
            gc.collect()


def _responds() -> bool:
    """Whether the private engine serves: asked without its package, which leaves a socket open where nobody listens."""
    with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
        client.connect(str(SOCKET))
        client.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
        return b" 200 " in client.recv(64)
    return False


def _start() -> None:
    command = [program("dockerd"), "--data-root", f"{CACHE}/engine", "--exec-root", SOCKET.with_suffix(".exec")]
    command += ["--pidfile", SOCKET.with_suffix(".pid"), "--host", f"unix://{SOCKET}"]
    with (CACHE / "engine.log").open("wb") as log:
        _started.append(
            subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        )
    wait_until(_responds, f"the private Docker engine (see {CACHE}/engine.log)")


def _stop(engine: FakeEngine) -> None:
    """End the engine with all that tests left on it but recent images."""
    for container in engine.client.containers.list(all=True):
        container.remove(force=True, v=True)
    for volume in engine.client.volumes.list():
        volume.remove(force=True)
    engine.client.networks.prune()
    engine.client.images.prune({"until": "24h"})
    dockerd = psutil.Process(int(SOCKET.with_suffix(".pid").read_text()))
    dockerd.terminate()
    wait_until(lambda: _has_ended(dockerd), "the end of the private Docker engine")
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        if line.split()[1].startswith((f"{CACHE}/engine", f"{SOCKET.with_suffix('.exec')}")):
            subprocess.run(["umount", line.split()[1]], check=True)


def _has_ended(process: psutil.Process) -> bool:
    """Whether a process is gone or a zombie: its parent may be another test process."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def _settings(engine: FakeEngine) -> dict[str, str]:
    """This machine's certificates and package sources, as files of an image."""
    acquired = [line for line in engine.run("apt-config", "dump").splitlines() if line.startswith("Acquire::")]
    return {
        _CERTIFICATES: Path(_CERTIFICATES).read_text(),
        "/etc/apt/apt.conf.d/99machine": "\n".join(acquired),
        "/etc/pip.conf": _pip_settings(engine.run(sys.executable, "-m", "pip", "config", "list")),
    }


def _make_base(engine: FakeEngine, tag: str, settings: dict[str, str]) -> None:
    """An image of Debian with Python, and with these files."""
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        root = Path(folder, "root")
        include = f"--include={_PACKAGES}"
        engine.run(program("debootstrap"), "--variant=minbase", include, "trixie", str(root), _mirror())
        for path, text in settings.items():
            (root / path.lstrip("/")).write_text(text + "\n")
        archive = Path(folder, "root.tar")
        engine.run("tar", "--directory", str(root), "--create", "--file", str(archive), ".")
        engine.run("docker", "import", str(archive), tag)


def _pip_settings(listing: str) -> str:
    """A pip.conf by which an image reaches the index as this machine does. listing: of `pip config list`."""
    found = re.findall(r"^(?:global|:env:)\.([\w-]+)=(.*)$", listing, re.M)
    settings = {name: " ".join(ast.literal_eval(value).split()) for name, value in reversed(found) if name in _INDEX}
    return "\n".join(["[global]", *(f"{name} = {value}" for name, value in settings.items())])


def _mirror() -> str:
    """The URL from which this machine downloads Debian's packages."""
    for path in ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"):
        if Path(path).exists() and (found := re.search(r"^(?:URIs:|deb)\s+(http\S+)", Path(path).read_text(), re.M)):
            return found[1]
    pytest.fail("neither debian.sources nor sources.list names a mirror of Debian")


def _build_args(base: str) -> list[str]:
    proxies = [name for name in os.environ if name.lower() in ("http_proxy", "https_proxy", "no_proxy")]
    return [f"--build-arg={name}" for name in proxies] + [f"--build-arg=PYTHON_IMAGE={base}"]

"""The Docker engine of this machine, its errors as sentences, and the settings of a sandbox's container."""

import base64
import contextlib
import json
import posixpath
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from runtimes import Launch, RuntimeCallFailed, filled
from runtimes.containers import CPUS, HOST, MEMORY_BYTES, SANDBOX, START, WORK
from runtimes.isolation import NAMED
from runtimes.isolation.network import EGRESS_PORT, HOOK_PORT

try:
    import docker
except ModuleNotFoundError:  # the only optional dependency
    docker = None  # type: ignore[assignment]


__all__ = ["Engine", "docker"]

#: Timeout of the engine, in seconds.
_TIMEOUT = 30


#: The network of all sandboxes, and the name of its bridge on the host: at most 15 characters.
NETWORK = "agent-server"

#: Link-local addresses of metadata services: most clouds; containers of Amazon's ECS and EKS; Google's GKE.
METADATA = ("169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.169.252")

#: Default maximum number of processes.
_PROCESSES = 512

#: The isolation of a container, in the form of `isolation/`.
ISOLATION = {
    "kind": "container",
    "network": "internet",
    "reaches": [
        "It reaches the internet, other machines of the host's networks, and the host's ports that are open to them."
    ],
    "lacks": [],
}

#: Networks of a launch that are only a loopback, with connections carried from outside.
CARRIED = (NAMED, "none")

#: URL of the egress proxy in a container with such a network.
EGRESS_URL = f"http://127.0.0.1:{EGRESS_PORT}"

#: Network option: whether its containers reach each other.
_JOINS = "com.docker.network.bridge.enable_icc"

#: Size of each of the two files of a container's output, in bytes.
_LOG_BYTES = 1 << 20


class Engine:
    """The engine that the docker program finds. Thread-safe."""

    def __init__(self) -> None:
        self._own = threading.local()  # a client's connections are not thread-safe

    @contextlib.contextmanager
    def client(self, what: str) -> Iterator["docker.DockerClient"]:
        """Yield this thread's client. The engine's errors become a RuntimeCallFailed that starts with `what`."""
        if docker is None:
            raise RuntimeCallFailed(f"{what}: its spec needs docker: pip install -r requirements/docker.txt")
        try:
            if not hasattr(self._own, "client"):
                self._own.client = docker.from_env(timeout=_TIMEOUT)
            yield self._own.client
        except docker.errors.APIError as error:
            raise RuntimeCallFailed(f"{what}: {error.explanation or error}") from error
        except (docker.errors.DockerException, OSError) as error:
            raise RuntimeCallFailed(f"{what}: no engine responds: {error}") from error


def name_of(sandbox_id: str) -> str:
    return f"agent-server-{sandbox_id}"


def volume(sandbox_id: str, host: str, folder: str, *, copies: bool) -> "docker.types.Mount":
    """Return a mount of the sandbox's volume at a folder. The engine creates the volume on first use.

    copies: an empty volume takes the content, the owner and the mode of the folder in the image.
    """
    labels = {SANDBOX: sandbox_id, HOST: host}
    return docker.types.Mount(folder, name_of(sandbox_id), type="volume", labels=labels, no_copy=not copies)


def work_folder(engine: "docker.DockerClient", launch: Launch) -> str:
    """Return the absolute path of the container's persistent folder, never /. Raises the engine's errors."""
    folder = launch.working_dir
    if not folder.startswith("/"):
        folder = engine.images.get(launch.image or "").attrs["Config"].get("WorkingDir") or "/"
    folder = "/" + posixpath.normpath(folder).strip("/")
    return WORK if folder == "/" else folder


def real_folder(engine: "docker.DockerClient", container_id: str, folder: str) -> str:
    """Return a container's folder as a process there sees it, because an image may have a symlink in the way.

    Cost: one request per name of the path. Return the given path if the engine cannot tell. Raises the engine's errors.
    """
    path, url = "/", f"{engine.api.base_url}/v{engine.api.api_version}/containers/{container_id}/archive"
    for name in folder.strip("/").split("/"):
        path = posixpath.join(path, name)
        response = engine.api.head(url, params={"path": path}, timeout=engine.api.timeout)
        stat = response.headers.get("X-Docker-Container-Path-Stat")
        if stat is None:
            return folder
        path = json.loads(base64.b64decode(stat)).get("linkTarget") or path  # the engine resolves it fully
    return path


def arguments(engine: "docker.DockerClient", launch: Launch, host: str) -> dict[str, Any]:
    """Return the arguments that create the container of a launch. Raises RuntimeCallFailed and the engine's errors."""
    memory, work = launch.memory_bytes or MEMORY_BYTES, work_folder(engine, launch)
    values = {**launch.ports, "WORK": work, "WEBHOOKS": launch.webhooks}
    if launch.network in CARRIED:
        hooks = f"http://127.0.0.1:{HOOK_PORT}{urlsplit(launch.webhooks).path}"
        values |= {"WEBHOOKS": hooks if launch.webhooks else "", "EGRESS": EGRESS_URL}
    return {
        "image": launch.image,
        "command": [filled(word, values) for word in launch.command],
        "name": name_of(launch.sandbox_id),
        "labels": {SANDBOX: launch.sandbox_id, HOST: host, START: str(launch.start)},
        "environment": {key: filled(text, values) for key, text in launch.env.items()},
        "working_dir": work,
        "mounts": [volume(launch.sandbox_id, host, work, copies=True)],
        "init": True,
        "mem_limit": memory,
        "memswap_limit": memory,
        "nano_cpus": round((launch.cpus or CPUS) * 1e9),
        "pids_limit": launch.processes or _PROCESSES,
        "cap_drop": ["ALL"],
        "cap_add": list(launch.capabilities),
        "security_opt": [] if launch.new_privileges else ["no-new-privileges"],
        "log_config": {"Type": "json-file", "Config": {"max-size": str(_LOG_BYTES), "max-file": "2"}},
        **_network(engine, launch),
        **(_read_only(work, memory) if launch.read_only else {}),
    }


def _read_only(work: str, memory: int) -> dict[str, Any]:
    """Return a read-only root, and the writable memory folders besides the working folder."""
    folders = {"/tmp": f"rw,exec,nosuid,nodev,size={memory // 2}", "/run": "rw,nosuid,nodev,noexec,size=16m"}
    folders.pop(work, None)
    return {"read_only": True, "tmpfs": folders}


def _network(engine: "docker.DockerClient", launch: Launch) -> dict[str, Any]:
    """Return the launch's network, by default the runtime's own, and its published ports."""
    if launch.network in CARRIED:
        return {"network_mode": "none"}
    published = {
        "ports": {f"{port}/tcp": ("127.0.0.1", None) for port in launch.ports.values()},
        "extra_hosts": {"host.docker.internal": "host-gateway"},
    }
    if launch.network:
        return {"network": launch.network, **published}
    try:
        network = engine.networks.get(NETWORK)
    except docker.errors.NotFound:
        options = {_JOINS: "false", "com.docker.network.bridge.name": NETWORK}
        try:
            network = engine.networks.create(NETWORK, driver="bridge", options=options)
        except docker.errors.APIError:  # the bridge exists: another start was faster
            network = engine.networks.get(NETWORK)
    if network.attrs.get("Options", {}).get(_JOINS) != "false":
        raise RuntimeCallFailed(f"the engine's network {NETWORK} lets containers reach each other. Remove it")
    endpoint = engine.api.create_endpoint_config(link_local_ips=list(METADATA))
    return {"network": NETWORK, "networking_config": {NETWORK: endpoint}, **published}

"""The Docker engine of this machine, its errors as sentences, and the settings of the container of a sandbox."""

import base64
import contextlib
import json
import posixpath
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from runtimes import Launch, RuntimeFailure, filled
from runtimes.containers import CPUS, HOST, MEMORY_BYTES, SANDBOX, START, WORK
from runtimes.isolation import NAMED
from runtimes.isolation.network import EGRESS_PORT, HOOK_PORT

try:
    import docker
except ModuleNotFoundError:  # the one dependency that is optional
    docker = None  # type: ignore[assignment]


__all__ = ["Engine", "docker"]

#: seconds that the engine may take to respond
_TIMEOUT = 30


#: the network of all sandboxes, and the name of its bridge on the host: at most 15 characters
NETWORK = "agent-server"

#: link-local addresses of metadata services: of most clouds; of containers of Amazon's ECS and EKS; of Google's GKE
METADATA = ("169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.169.252")

#: processes of a sandbox without that limit in its spec
_PROCESSES = 512

#: what a container is kept away from, as `isolation/` has it for processes
ISOLATION = {
    "kind": "container",
    "network": "internet",
    "reaches": [
        "It reaches the internet, other machines of the host's networks, and the host's ports that are open to them."
    ],
    "lacks": [],
}

#: the networks of a launch that are a loopback and nothing else, whose connections are carried from outside
CARRIED = (NAMED, "none")

#: where a container with such a network finds the way out
EGRESS_URL = f"http://127.0.0.1:{EGRESS_PORT}"

#: option of a network: whether its containers reach each other
_JOINS = "com.docker.network.bridge.enable_icc"

#: bytes of each of the two files in which the engine keeps a container's output
_LOG_BYTES = 1 << 20


class Engine:
    """The engine that the docker program finds. Any number of threads may use it."""

    def __init__(self) -> None:
        self._own = threading.local()  # a client's connections are for one thread at a time

    @contextlib.contextmanager
    def client(self, what: str) -> Iterator["docker.DockerClient"]:
        """The client of this thread; the engine's errors become a RuntimeFailure that begins with `what`."""
        if docker is None:
            raise RuntimeFailure(f"{what}: its spec wants docker; pip install -r requirements/docker.txt")
        try:
            if not hasattr(self._own, "client"):
                self._own.client = docker.from_env(timeout=_TIMEOUT)
            yield self._own.client
        except docker.errors.APIError as error:
            raise RuntimeFailure(f"{what}: {error.explanation or error}") from error
        except (docker.errors.DockerException, OSError) as error:
            raise RuntimeFailure(f"{what}: no engine answers: {error}") from error


def name_of(sandbox_id: str) -> str:
    """The name of a sandbox's container, and of its volume."""
    return f"agent-server-{sandbox_id}"


def volume(sandbox_id: str, host: str, folder: str, *, copies: bool) -> "docker.types.Mount":
    """The sandbox's volume, which the engine makes at its first use, mounted at a folder of a container.

    copies: an empty volume takes the content, the owner and the mode that the folder has in the image.
    """
    labels = {SANDBOX: sandbox_id, HOST: host}
    return docker.types.Mount(folder, name_of(sandbox_id), type="volume", labels=labels, no_copy=not copies)


def work_folder(engine: "docker.DockerClient", launch: Launch) -> str:
    """The folder of the container that is kept, an absolute path but /. Raises the engine's errors."""
    folder = launch.working_dir
    if not folder.startswith("/"):
        folder = engine.images.get(launch.image or "").attrs["Config"].get("WorkingDir") or "/"
    folder = "/" + posixpath.normpath(folder).strip("/")
    return WORK if folder == "/" else folder


def real_folder(engine: "docker.DockerClient", container_id: str, folder: str) -> str:
    """A folder of a container as a process there sees it that works in it: an image may have a symlink in the way.

    One request for each name of the path. An engine that cannot tell has none. Raises the engine's errors.
    """
    path, url = "/", f"{engine.api.base_url}/v{engine.api.api_version}/containers/{container_id}/archive"
    for name in folder.strip("/").split("/"):
        path = posixpath.join(path, name)
        response = engine.api.head(url, params={"path": path}, timeout=engine.api.timeout)
        stat = response.headers.get("X-Docker-Container-Path-Stat")
        if stat is None:
            return folder
        path = json.loads(base64.b64decode(stat)).get("linkTarget") or path  # the engine follows it to its end
    return path


def arguments(engine: "docker.DockerClient", launch: Launch, host: str) -> dict[str, Any]:
    """The arguments that create the container of a launch. Raises RuntimeFailure and the engine's errors."""
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
    """A read-only root, and the folders of memory that are writable beside the working folder."""
    folders = {"/tmp": f"rw,exec,nosuid,nodev,size={memory // 2}", "/run": "rw,nosuid,nodev,noexec,size=16m"}
    folders.pop(work, None)
    return {"read_only": True, "tmpfs": folders}


def _network(engine: "docker.DockerClient", launch: Launch) -> dict[str, Any]:
    """The network that the launch names, or else the runtime's own, and the ports that are published there."""
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
        except docker.errors.APIError:  # the bridge of that name is there: another start was faster
            network = engine.networks.get(NETWORK)
    if network.attrs.get("Options", {}).get(_JOINS) != "false":
        raise RuntimeFailure(f"the engine's network {NETWORK} lets containers reach each other: remove it")
    endpoint = engine.api.create_endpoint_config(link_local_ips=list(METADATA))
    return {"network": NETWORK, "networking_config": {NETWORK: endpoint}, **published}

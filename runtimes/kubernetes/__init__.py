"""Sandboxes as pods of a Kubernetes cluster, found as kubectl finds it (KUBECONFIG, …).

Needs the packages of requirements/kubernetes.txt. The cluster keeps all state: a sandbox is a pod, a service, a secret
with its environment and a volume claim. All four have the same name; labels and annotations identify sandbox and host.
The pod's label START is the number of the start, so that each start happens once. If the cluster has agent-sandbox, a
Sandbox object of that name creates the pod; see manifests.py.

Persistent: the working folder, in the volume. It is empty at first: an image's content of that folder is hidden. A
pause ends the pod, because a cluster cannot freeze one. The sandbox is PAUSED on disk, and a resume starts another pod.
The service's address stays the same. Everybody who reaches the cluster's services reaches the sandbox.

`tar` in a pod with the volume reads and fills it: the sandbox's own pod if it runs, otherwise a carrier, which is a pod
of the same image that only waits. The next supervisor deletes the carriers of a killed one, and the cluster ends them
in any case. A volume has the label FILLING until it is filled, so a half-filled volume is recognised, filled again and
never started in. Memory is bounded for files and archives of any size. Links are kept as links. An archive is unpacked
inside the carrier, so that its links lead nowhere else. A volume is filled atomically.

Guarantees, unless the launch says otherwise:
- no capabilities, no program in the pod gets privileges that its caller lacks, seccomp's default profile
- a read-only root. Writable: /tmp and /run (memory) and the working folder
- a user other than root: the image names its user by number, otherwise the cluster refuses to run it
- no token of the cluster is mounted, and no variable names the cluster's services
- limits of memory and cpus, which the cluster also reserves
- the NetworkPolicy of manifests.POLICY is in the namespace, otherwise no pod starts. The operator decides what it
  allows. With `egress` in the spec HELD_POLICY applies instead, the pod asks no resolver, and a sidecar container
  carries connections by name to the cluster's egress proxy, with the sandbox's hook key

Limitations:
- in a cluster whose network plugin enforces no policies a sandbox reaches everything
- only the kubelet's podPidsLimit limits processes, and only the storage provider limits a volume's size
- an image without `pwd` whose working folder is behind a symlink is known only by the path in its spec
- an archive of a running sandbox may be truncated, because a file grew during the read. A carrier takes as long as a
  pod to start. The usage of a volume is not measured: its size is its limit
- archives, copies and single files need `tar` and `sleep` in the image, and Kubernetes 1.30
- a lost node holds its pods: a stop fails and is retried until the node is back, or the pod is deleted by force
"""

import contextlib
import posixpath
import socket
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from core.cuts import last_lines_of_more
from runtimes import Handle, Launch, Observation, ProcessState, ResourceUsage, RuntimeCallFailed, folders_of, reading
from runtimes.containers import CARRIER, HOST, LAST_LINES, START, Volumes, packed, readable, unrooted
from runtimes.isolation import NAMED
from runtimes.kubernetes.cluster import POLL, Cluster, Object, ObjectKind, Snapshot, naming, output_of
from runtimes.kubernetes.manifests import (
    EGRESS_SERVICE,
    EGRESS_URL,
    FILLING,
    GRACE,
    HELD,
    HELD_POLICY,
    HOST_ID,
    ISOLATION,
    NO_GRACE,
    POLICY,
    SANDBOX_ID,
    AgentSandboxes,
    PodWayOut,
    carrier,
    claim,
    label,
    managed,
    name_of,
    observation,
    pod,
    secret,
    service,
    work_folder,
)
from runtimes.mirror import Mirror
from runtimes.shadow import Shadow, beside

#: Timeout of a carrier's start, in seconds.
_CARRIER_TIMEOUT = 120.0


#: Lifetimes of the cached state and of the cached memory usage of all pods, in seconds. One call returns all pods.
_SEEN, _MEASURED = 1.0, 5.0

#: Maximum length of a path that a pod prints, in bytes, as in the kernel. The image's program prints it.
_LONGEST_PATH = 4096

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


class KubernetesRuntime(Volumes):
    """`runtimes.Runtime` for the pods and volumes of one host. Thread-safe."""

    freezes = False

    def __init__(
        self,
        host: str,
        folder: Path = Path(),
        *,
        in_use: bool = True,
        sandboxes: str = "auto",
        egress_image: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """host: labels its objects. folder: of the host's sandboxes, for their records.

        in_use: if False, `known` asks no cluster. sandboxes, egress_image: the settings KUBERNETES_SANDBOXES and
        KUBERNETES_EGRESS_IMAGE. clock: seconds.
        """
        super().__init__(host, folder)
        self._cluster = Cluster()
        self._sandboxes = AgentSandboxes(self._cluster, sandboxes, clock)
        self._in_use = in_use
        self._egress_image = egress_image
        self._mine = f"{HOST}={label(host)}"
        self._pods = Snapshot(self._listed_pods, _SEEN, clock)
        self._memory = Snapshot(lambda: self._cluster.memory(self._mine), _MEASURED, clock)

    def shadow(self, launch: Launch, folder: str) -> Shadow:
        """Return the shadow repository of a copy of the volume; each record copies it."""
        work, name = work_folder(launch), name_of(launch.sandbox_id)
        return Mirror(
            beside(self._folder / launch.sandbox_id),
            reading.below(work, work, folder),
            lambda: self._cluster.find(ObjectKind.CLAIM, name) is not None,
            partial(self._packed, launch),
        )

    def start(self, launch: Launch) -> Handle:
        """Start a pod, once per sandbox and start number. End the pod of an earlier start first."""
        with naming(f"sandbox {launch.sandbox_id} cannot be started"):
            held = self._held(launch) if launch.network else None
            self._require_policy(POLICY if held is None else HELD_POLICY)
            started = self._started(launch) or self._create(launch, held)
            reached = self._cluster.find(ObjectKind.SERVICE, name_of(launch.sandbox_id))
            if reached is None:
                raise RuntimeCallFailed("its service was deleted meanwhile")
            handle = _handle(launch.sandbox_id, started, launch.ports)
            address = reached["spec"]["clusterIP"]
            host = f"[{address}]" if ":" in address else address
            if held is not None:
                handle["isolation"] = {**ISOLATION, "network": launch.network}
            if launch.network == NAMED:
                handle["egress_url"] = EGRESS_URL
            return Handle({**handle, "host": host, "working_dir": work_folder(launch)})

    def folders(self, handle: Handle) -> dict[str, str]:
        """Return the agent's folder as its pod sees it, and the path in its spec if that has a symlink."""
        known, real = folders_of(handle), ""
        with contextlib.suppress(RuntimeCallFailed, UnicodeDecodeError):
            pieces = output_of(self._cluster.connection(), name_of(handle["sandbox_id"]), ("pwd", "-P"))
            with contextlib.closing(pieces):
                real = b"".join(_first(pieces, _LONGEST_PATH)).decode().removesuffix("\n")
        if real == posixpath.normpath(real) != known["working_dir"] and real.startswith("/") and "\0" not in real:
            return {"working_dir": real, "linked_dir": known["working_dir"]}
        return known

    def known(self) -> list[Handle]:
        """Return the pods and volumes of this host, running or not; empty if no cluster responds.

        A volume without a pod still has a handle: it is GONE and may be stopped. Pods left by an earlier supervisor's
        archives and copies are deleted first.
        """
        handles = {}
        if self._in_use:
            with contextlib.suppress(RuntimeCallFailed):
                claims, pods = (self._cluster.listed(kind, self._mine) for kind in (ObjectKind.CLAIM, ObjectKind.POD))
                self.discard_leftovers(pods)
                for one, found in [*((claim, None) for claim in claims), *((pod, pod) for pod in pods)]:
                    names = one["metadata"].get("annotations") or {}
                    if names.get(HOST_ID) == self._host and (identity := names.get(SANDBOX_ID)):
                        handles[identity] = _handle(identity, found)
        return list(handles.values())

    def observe(self, handle: Handle) -> Observation:
        """Return the pod's state, up to a second old. RUNNING with a detail: it waits for a node or its image.

        Raises RuntimeCallFailed.
        """
        name = name_of(handle["sandbox_id"])
        with naming("the cluster cannot be asked"):
            pod = self._pods.value().get(name)
            if pod is None or handle["pod"] != pod["metadata"]["uid"]:  # it is newer
                pod = self._cluster.find(ObjectKind.POD, name)
        if pod is None or handle["pod"] not in (None, pod["metadata"]["uid"]):
            return Observation(ProcessState.GONE, "its pod was deleted")
        return observation(pod)

    def pause(self, handle: Handle) -> None:
        """End the pod, because a cluster cannot freeze it."""
        self.stop(handle)

    def resume(self, handle: Handle) -> None:
        """Do nothing: no pod is frozen, and a paused sandbox is started."""

    def stop(self, handle: Handle) -> None:
        """End the sandbox's pod gracefully. The volume and the service stay."""
        with naming(f"sandbox {handle['sandbox_id']} cannot be stopped"):
            self._end(name_of(handle["sandbox_id"]), GRACE)

    def remove(self, sandbox_id: str) -> None:
        """Delete the pod, then the service and the volume."""
        with naming(f"sandbox {sandbox_id} cannot be removed"):
            name = name_of(sandbox_id)
            self._end(name, NO_GRACE)
            self._sandboxes.remove(name)
            self._cluster.delete(ObjectKind.SERVICE, name)
            self._cluster.delete(ObjectKind.CLAIM, name)
            if not self._cluster.ended(ObjectKind.CLAIM, name):
                raise RuntimeCallFailed("its volume still exists, because a pod may use it")
        self._forget(sandbox_id)

    def usage(self, sandbox_id: str) -> ResourceUsage:
        """Return the memory usage from the cluster's metrics server; None without a server."""
        with contextlib.suppress(RuntimeCallFailed, KeyError, ValueError):
            quantity = self._memory.value()[name_of(sandbox_id)]
            number = quantity.rstrip("kKMGi")
            return ResourceUsage(int(number) * _UNITS[quantity[len(number) :]], None)
        return ResourceUsage(None, None)

    def logs(self, handle: Handle, tail: int) -> str:
        """Return the last lines of the pod's output, as far as its node keeps them."""
        if tail <= 0:
            return ""
        with contextlib.suppress(RuntimeCallFailed):
            text = self._cluster.log(name_of(handle["sandbox_id"]), tail + 1)
            return last_lines_of_more(text.decode(errors="replace"), tail)
        return ""

    def unpack(self, launch: Launch, chunks: Iterable[bytes]) -> None:
        """Fill the volume of a new sandbox. A filled volume is unchanged.

        Raises RuntimeCallFailed and the errors of tar_stream.py for a refused stream. Then there is no volume.
        """
        name = name_of(launch.sandbox_id)
        with naming(f"the files of sandbox {launch.sandbox_id} cannot be written"):
            found = self._cluster.find(ObjectKind.CLAIM, name)
            if found is not None and FILLING not in found["metadata"]["labels"]:
                return
            if found is not None:
                self._remove_claim(name)
            body = claim(launch, self._host)
            body["metadata"]["labels"][FILLING] = "true"
            if self._cluster.create(ObjectKind.CLAIM, body) is None:
                raise RuntimeCallFailed("another supervisor fills them")
            try:
                with self._carrier(launch) as pod:
                    command = ("tar", "-x", "-p", "-f", "-", "-C", work_folder(launch))
                    for _ in output_of(self._cluster.connection(), pod, command, unrooted(readable(chunks))):
                        pass
                self._cluster.unlabel(ObjectKind.CLAIM, name, FILLING)
            except BaseException:
                self._cluster.delete(ObjectKind.CLAIM, name)
                raise

    def disk_bytes(self, sandbox_id: str, most: int | None = None) -> int | None:
        """Return None: the API does not report it."""

    def discard_leftovers(self, pods: Iterable[Object]) -> None:
        """Delete another supervisor's carriers among these pods."""
        for one in pods:
            if one["metadata"]["labels"].get(CARRIER, self._identity) != self._identity:
                self._cluster.delete(ObjectKind.POD, one["metadata"]["name"], grace_seconds=NO_GRACE)

    def _work_of(self, launch: Launch) -> str:
        return work_folder(launch)

    def _remove_claim(self, name: str) -> None:
        self._cluster.delete(ObjectKind.CLAIM, name)
        if not self._cluster.ended(ObjectKind.CLAIM, name):
            raise RuntimeCallFailed("a half-filled volume of an earlier supervisor is still in use")

    def _packed(self, launch: Launch) -> Generator[bytes]:
        with naming(f"the files of sandbox {launch.sandbox_id} cannot be read"), self._reader(launch) as pod:
            command = ("tar", "-c", "-f", "-", "-C", work_folder(launch), ".")
            with contextlib.closing(output_of(self._cluster.connection(), pod, command)) as chunks:
                yield from packed(chunks, launch.disk_bytes)

    @contextlib.contextmanager
    def _reader(self, launch: Launch) -> Iterator[str]:
        """Yield the name of a pod with the sandbox's volume."""
        name = name_of(launch.sandbox_id)
        own = self._cluster.find(ObjectKind.POD, name)
        if own is not None and _runs(own):
            yield name
        elif self._cluster.find(ObjectKind.CLAIM, name) is None:
            raise RuntimeCallFailed("it has no volume")
        else:
            with self._carrier(launch) as pod:
                yield pod

    @contextlib.contextmanager
    def _carrier(self, launch: Launch) -> Iterator[str]:
        body = carrier(launch, self._host, self._identity)
        name = body["metadata"]["name"]
        self._cluster.create(ObjectKind.POD, body)
        try:
            self._wait_for(name)
            yield name
        finally:
            self._cluster.delete(ObjectKind.POD, name, grace_seconds=NO_GRACE)

    def _wait_for(self, name: str) -> None:
        """Wait until a carrier runs. Raises RuntimeCallFailed with the reason if it does not."""
        deadline = time.monotonic() + _CARRIER_TIMEOUT
        while (pod := self._cluster.find(ObjectKind.POD, name)) is None or not _runs(pod):
            if pod is None:
                raise RuntimeCallFailed("the pod that was to read its volume was deleted meanwhile")
            seen = observation(pod)
            if seen.state is ProcessState.GONE or time.monotonic() > deadline:
                raise RuntimeCallFailed(
                    f"no pod can read its volume: {seen.detail or f'{_CARRIER_TIMEOUT:g} s are over'}"
                )
            time.sleep(POLL)

    def _listed_pods(self) -> dict[str, Object]:
        return {one["metadata"]["name"]: one for one in self._cluster.listed(ObjectKind.POD, self._mine)}

    def _held(self, launch: Launch) -> PodWayOut:
        """Return the settings of a pod without a resolver: the addresses of the webhooks' host and of the proxy."""
        host = urlsplit(launch.webhooks).hostname or ""
        names = [host] if host and not host.replace(".", "").isdigit() and ":" not in host else []
        if launch.network == NAMED:
            names.append(EGRESS_SERVICE)
            if not self._egress_image:
                raise RuntimeCallFailed(
                    'its spec says egress = "named": set KUBERNETES_EGRESS_IMAGE to the server\'s image'
                )
        open_to_all = self._cluster.find(ObjectKind.POLICY, POLICY)
        if open_to_all is not None and not _leaves_out_held(open_to_all):
            raise RuntimeCallFailed(
                f"the NetworkPolicy {POLICY} holds for sandboxes whose spec says egress too, and opens the internet: "
                "kubectl apply -k deploy/kubernetes"
            )
        return PodWayOut({name: self._address(name) for name in names}, self._egress_image)

    def _address(self, name: str) -> str:
        """Return the address of a Service of the namespace, or of another host. Raises RuntimeCallFailed."""
        service = self._cluster.find(ObjectKind.SERVICE, name) if "." not in name and ":" not in name else None
        if service is not None and service["spec"].get("clusterIP") not in (None, "None"):
            return str(service["spec"]["clusterIP"])
        if name == EGRESS_SERVICE:
            raise RuntimeCallFailed(f"the namespace has no Service {name}: kubectl apply -k deploy/kubernetes")
        try:
            return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
        except OSError:
            raise RuntimeCallFailed(f"{name} of its webhooks has no address here: set WEBHOOK_BASE_URL") from None

    def _require_policy(self, name: str) -> None:
        if self._cluster.find(ObjectKind.POLICY, name) is None:
            namespace = self._cluster.connection().namespace
            raise RuntimeCallFailed(
                f"the namespace {namespace} has no NetworkPolicy {name}, without which a sandbox reaches the whole "
                "cluster: kubectl apply -k deploy/kubernetes"
            )

    def _started(self, launch: Launch) -> Object | None:
        """Return the pod of this start, if any. End an earlier start's pod; refuse a later start."""
        name = name_of(launch.sandbox_id)
        found = self._cluster.find(ObjectKind.POD, name)
        if found is None:
            return None
        start = int(found["metadata"]["labels"].get(START, 0))
        if start > launch.start:
            raise RuntimeCallFailed(f"it was started again meanwhile: start {start}")
        if start < launch.start:
            self._end(name, GRACE)
            return None
        seen = observation(found)
        if seen.state is ProcessState.GONE:
            text = self.logs(_handle(launch.sandbox_id), LAST_LINES)
            self._end(name, NO_GRACE)
            raise RuntimeCallFailed(f"{seen.detail}\n{text}".strip())
        return found

    def _create(self, launch: Launch, held: PodWayOut | None) -> Object:
        """Create the missing objects of a sandbox, and its pod or the Sandbox whose controller creates it."""
        name, what = name_of(launch.sandbox_id), pod(launch, self._host, held)
        self._cluster.create(ObjectKind.CLAIM, claim(launch, self._host))
        self._cluster.create(ObjectKind.SERVICE, service(launch, self._host))
        self._cluster.put(ObjectKind.SECRET, secret(launch, self._host))
        if self._sandboxes.in_use():
            made: Object | None = self._sandboxes.start(what)
        else:
            made = self._cluster.create(ObjectKind.POD, what) or self._started(launch)  # another start was faster
        if made is None:
            raise RuntimeCallFailed(f"another pod had the name {name} at that moment")
        volume = self._cluster.find(ObjectKind.CLAIM, name)
        if volume is None or "deletionTimestamp" in volume["metadata"] or FILLING in volume["metadata"]["labels"]:
            self._end(name, NO_GRACE)
            raise RuntimeCallFailed("its volume is being removed, or was only half filled by a supervisor that ended")
        return made

    def _end(self, name: str, grace_seconds: int) -> None:
        """End a pod, delete its secret, and return when the pod is gone. A Sandbox's pod has its own grace period."""
        self._sandboxes.suspend(name)
        found = self._cluster.find(ObjectKind.POD, name)
        left = f"its pod has not ended. If its node is lost: kubectl delete pod {name} --force"
        if found is not None and managed(found):
            left += ". Otherwise check that agent-sandbox's controller runs, which ends it"
        else:
            self._cluster.delete(ObjectKind.POD, name, grace_seconds=grace_seconds)
        self._cluster.delete(ObjectKind.SECRET, name)
        if not self._cluster.ended(ObjectKind.POD, name):
            raise RuntimeCallFailed(left)


def _runs(pod: Object) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _leaves_out_held(policy: Object) -> bool:
    """Return whether a NetworkPolicy selects no pod with the label HELD."""
    chosen = policy["spec"]["podSelector"].get("matchExpressions") or []
    return any((one["key"], one["operator"]) == (HELD, "DoesNotExist") for one in chosen)


def _first(pieces: Iterable[bytes], most: int) -> Iterator[bytes]:
    """Yield pieces of at most `most` bytes in all. Raises RuntimeCallFailed if there are more."""
    for piece in pieces:
        most -= len(piece)
        if most < 0:
            raise RuntimeCallFailed("it prints too much")
        yield piece


def _handle(sandbox_id: str, pod: Object | None = None, ports: Mapping[str, int] | None = None) -> Handle:
    """pod: None for a volume without a pod."""
    uid = pod["metadata"]["uid"] if pod else None
    words = {"runtime": "kubernetes", "sandbox_id": sandbox_id, "pod": uid, "ports": dict(ports or {})}
    return Handle({**words, "isolation": ISOLATION})

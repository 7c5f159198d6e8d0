"""Sandboxes as pods of a Kubernetes cluster, found as kubectl finds it (KUBECONFIG, …).

Needs the packages of requirements/kubernetes.txt. The cluster keeps all state: a sandbox is a pod, a service, a secret
with its environment and a claim of a volume. All four have one name; labels and annotations say whose they are. The
pod's label START has the number of the start, so that each start happens once. Where the cluster has agent-sandbox, the
pod is made by a Sandbox object of that name; see manifests.py.

What is kept: the working folder, in the volume, which is empty at first: an image's content of that folder is hidden.
A pause ends the pod, for a cluster cannot freeze one: the sandbox is PAUSED on disk, and a resume starts another pod.
The service's address is the same for all of them; the sandbox is reached by those who reach the cluster's services.

The volume is read and filled by `tar` in a pod that has it. That is the sandbox's own while it runs, else a carrier: a
pod of the same image that only waits. A supervisor that is killed leaves its carrier, which the next one removes, and
the cluster ends it in any case. A volume bears the label FILLING until it is filled: so one that is half filled is
recognised, filled again, and never started in. Memory is bounded, whatever a file's or an archive's size. Links are
kept as links. An archive is unpacked inside the carrier, so that a link in it leads nowhere else. A volume is filled as
a whole or not at all.

Guarantees, unless the launch says otherwise:
- no capabilities, no program in the pod gets privileges that its caller lacks, seccomp's default profile
- a read-only root. Writable are /tmp and /run (memory) and the working folder
- a user other than root: the image names one by its number, else the cluster refuses to run it
- no token of the cluster is mounted, and no variable names the cluster's services
- limits of memory and cpus, which the cluster also reserves
- the NetworkPolicy of manifests.POLICY is in the namespace, else no pod starts. What it allows is the operator's. With
  `egress` in the spec HELD_POLICY holds instead, the pod asks no resolver, and a container beside the sandbox's carries
  what goes out by name to the proxy of the cluster, with the sandbox's hook key

Limitations:
- a cluster whose network plugin enforces no policies lets a sandbox reach everything
- processes are limited by the kubelet's podPidsLimit alone, and a volume's size by what provides the volumes
- an image without `pwd` whose working folder is behind a symlink is known by the path of its spec alone
- an archive of a sandbox that runs may break off, because a file grew while it was read. A carrier takes the time that
  a pod takes to start. The use of a volume is not measured: its size is its limit
- archives, copies and single files need `tar` and `sleep` in the image, and Kubernetes 1.30
- a node that is lost holds its pods: a stop fails and is retried until the node is back, or the pod is deleted by force
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
from runtimes import Handle, Launch, Observation, RuntimeFailure, State, Usage, folders_of, reading
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
    Held,
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

#: seconds in which a carrier must run
_CARRIER_TIMEOUT = 120.0


#: seconds for which the state of all pods, and their use of memory, is not asked for again: one call tells all of them
_SEEN, _MEASURED = 1.0, 5.0

#: bytes of a path that a pod prints; the kernel has no longer one. The program that prints it is the image's
_LONGEST_PATH = 4096

#: the number of bytes of each unit of a quantity
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


class KubernetesRuntime(Volumes):
    """`runtimes.Runtime` for the pods and volumes of one host. Any number of threads may use it."""

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
        """host: the name under which its objects are known. folder: of the host's sandboxes, for records of theirs.

        in_use: else `known` asks no cluster.

        sandboxes, egress_image: the settings KUBERNETES_SANDBOXES, KUBERNETES_EGRESS_IMAGE. clock: seconds.
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
        """That of a copy of the volume, which each record makes."""
        work, name = work_folder(launch), name_of(launch.sandbox_id)
        return Mirror(
            beside(self._folder / launch.sandbox_id),
            reading.below(work, work, folder),
            lambda: self._cluster.find(ObjectKind.CLAIM, name) is not None,
            partial(self._packed, launch),
        )

    def start(self, launch: Launch) -> Handle:
        """Start a pod, once per sandbox and number of its start. The pod of an earlier start is ended first."""
        with naming(f"sandbox {launch.sandbox_id} cannot be started"):
            held = self._held(launch) if launch.network else None
            self._require_policy(POLICY if held is None else HELD_POLICY)
            started = self._started(launch) or self._create(launch, held)
            reached = self._cluster.find(ObjectKind.SERVICE, name_of(launch.sandbox_id))
            if reached is None:
                raise RuntimeFailure("its service was removed meanwhile")
            handle = _handle(launch.sandbox_id, started, launch.ports)
            address = reached["spec"]["clusterIP"]
            host = f"[{address}]" if ":" in address else address
            if held is not None:
                handle["isolation"] = {**ISOLATION, "network": launch.network}
            if launch.network == NAMED:
                handle["egress_url"] = EGRESS_URL
            return Handle({**handle, "host": host, "working_dir": work_folder(launch)})

    def folders(self, handle: Handle) -> dict[str, str]:
        """The agent's folder as a process of its pod sees it, and by the path of its spec where that has a symlink."""
        known, real = folders_of(handle), ""
        with contextlib.suppress(RuntimeFailure, UnicodeDecodeError):
            pieces = output_of(self._cluster.connection(), name_of(handle["sandbox_id"]), ("pwd", "-P"))
            with contextlib.closing(pieces):
                real = b"".join(_first(pieces, _LONGEST_PATH)).decode().removesuffix("\n")
        if real == posixpath.normpath(real) != known["working_dir"] and real.startswith("/") and "\0" not in real:
            return {"working_dir": real, "linked_dir": known["working_dir"]}
        return known

    def known(self) -> list[Handle]:
        """Pods and volumes of this host, running or not; none where no cluster answers.

        A volume without a pod still has a handle: it is GONE and may be stopped. Pods that an earlier supervisor
        left of archives and copies are removed first.
        """
        handles = {}
        if self._in_use:
            with contextlib.suppress(RuntimeFailure):
                claims, pods = (self._cluster.listed(kind, self._mine) for kind in (ObjectKind.CLAIM, ObjectKind.POD))
                self.discard_leftovers(pods)
                for one, found in [*((claim, None) for claim in claims), *((pod, pod) for pod in pods)]:
                    names = one["metadata"].get("annotations") or {}
                    if names.get(HOST_ID) == self._host and (identity := names.get(SANDBOX_ID)):
                        handles[identity] = _handle(identity, found)
        return list(handles.values())

    def observe(self, handle: Handle) -> Observation:
        """The pod's state, as of a second ago. One that waits for a node or its image is RUNNING; the detail says so.

        Raises RuntimeFailure.
        """
        name = name_of(handle["sandbox_id"])
        with naming("the cluster cannot be asked"):
            found = self._pods.value().get(name)
            if found is None or handle["pod"] != found["metadata"]["uid"]:  # it is younger
                found = self._cluster.find(ObjectKind.POD, name)
        if found is None or handle["pod"] not in (None, found["metadata"]["uid"]):
            return Observation(State.GONE, "its pod was removed")
        return observation(found)

    def pause(self, handle: Handle) -> None:
        """End the pod: a cluster freezes none."""
        self.stop(handle)

    def resume(self, handle: Handle) -> None:
        """Nothing: no pod is frozen, and what was paused is started."""

    def stop(self, handle: Handle) -> None:
        """End the sandbox's pod, gracefully. The volume and the service stay."""
        with naming(f"sandbox {handle['sandbox_id']} cannot be stopped"):
            self._end(name_of(handle["sandbox_id"]), GRACE)

    def remove(self, sandbox_id: str) -> None:
        """Remove the pod, then the service and the volume."""
        with naming(f"sandbox {sandbox_id} cannot be removed"):
            name = name_of(sandbox_id)
            self._end(name, NO_GRACE)
            self._sandboxes.remove(name)
            self._cluster.delete(ObjectKind.SERVICE, name)
            self._cluster.delete(ObjectKind.CLAIM, name)
            if not self._cluster.ended(ObjectKind.CLAIM, name):
                raise RuntimeFailure("its volume is still there: a pod may use it")
        self._forget(sandbox_id)

    def usage(self, sandbox_id: str) -> Usage:
        """The memory that the cluster's metrics server has measured; None without such a server."""
        with contextlib.suppress(RuntimeFailure, KeyError, ValueError):
            quantity = self._memory.value()[name_of(sandbox_id)]
            number = quantity.rstrip("kKMGi")
            return Usage(int(number) * _UNITS[quantity[len(number) :]], None)
        return Usage(None, None)

    def logs(self, handle: Handle, tail: int) -> str:
        """The last lines that the pod printed, as far as its node keeps them."""
        if tail <= 0:
            return ""
        with contextlib.suppress(RuntimeFailure):
            text = self._cluster.log(name_of(handle["sandbox_id"]), tail + 1)
            return last_lines_of_more(text.decode(errors="replace"), tail)
        return ""

    def unpack(self, launch: Launch, chunks: Iterable[bytes]) -> None:
        """Fill the volume of a new sandbox; one that is filled stays.

        Raises RuntimeFailure, and what tar_stream.py defines for a stream that is refused. Then there is no volume.
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
                raise RuntimeFailure("another supervisor fills them")
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
        """Not known: no part of the API tells it."""

    def discard_leftovers(self, pods: Iterable[Object]) -> None:
        """Remove the carriers among these pods that another supervisor left."""
        for one in pods:
            if one["metadata"]["labels"].get(CARRIER, self._identity) != self._identity:
                self._cluster.delete(ObjectKind.POD, one["metadata"]["name"], grace_seconds=NO_GRACE)

    def _work_of(self, launch: Launch) -> str:
        return work_folder(launch)

    def _remove_claim(self, name: str) -> None:
        self._cluster.delete(ObjectKind.CLAIM, name)
        if not self._cluster.ended(ObjectKind.CLAIM, name):
            raise RuntimeFailure("a half-filled volume of an earlier supervisor is still in use")

    def _packed(self, launch: Launch) -> Generator[bytes]:
        with naming(f"the files of sandbox {launch.sandbox_id} cannot be read"), self._reader(launch) as pod:
            command = ("tar", "-c", "-f", "-", "-C", work_folder(launch), ".")
            with contextlib.closing(output_of(self._cluster.connection(), pod, command)) as chunks:
                yield from packed(chunks, launch.disk_bytes)

    @contextlib.contextmanager
    def _reader(self, launch: Launch) -> Iterator[str]:
        """The name of a pod that has the sandbox's volume."""
        name = name_of(launch.sandbox_id)
        own = self._cluster.find(ObjectKind.POD, name)
        if own is not None and _runs(own):
            yield name
        elif self._cluster.find(ObjectKind.CLAIM, name) is None:
            raise RuntimeFailure("it has no volume")
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
        """Wait until a carrier runs. Raises RuntimeFailure with the reason if it does not."""
        deadline = time.monotonic() + _CARRIER_TIMEOUT
        while (pod := self._cluster.find(ObjectKind.POD, name)) is None or not _runs(pod):
            if pod is None:
                raise RuntimeFailure("the pod that was to read its volume was deleted meanwhile")
            seen = observation(pod)
            if seen.state is State.GONE or time.monotonic() > deadline:
                raise RuntimeFailure(f"no pod can read its volume: {seen.detail or f'{_CARRIER_TIMEOUT:g} s are over'}")
            time.sleep(POLL)

    def _listed_pods(self) -> dict[str, Object]:
        return {one["metadata"]["name"]: one for one in self._cluster.listed(ObjectKind.POD, self._mine)}

    def _held(self, launch: Launch) -> Held:
        """What a pod that asks no resolver is given: the addresses of the webhooks' host and of the proxy."""
        host = urlsplit(launch.webhooks).hostname or ""
        names = [host] if host and not host.replace(".", "").isdigit() and ":" not in host else []
        if launch.network == NAMED:
            names.append(EGRESS_SERVICE)
            if not self._egress_image:
                raise RuntimeFailure(
                    'its spec says egress = "named": set KUBERNETES_EGRESS_IMAGE to the server\'s image'
                )
        open_to_all = self._cluster.find(ObjectKind.POLICY, POLICY)
        if open_to_all is not None and not _leaves_out_held(open_to_all):
            raise RuntimeFailure(
                f"the NetworkPolicy {POLICY} holds for sandboxes whose spec says egress too, and opens the internet: "
                "kubectl apply -k deploy/kubernetes"
            )
        return Held({name: self._address(name) for name in names}, self._egress_image)

    def _address(self, name: str) -> str:
        """The address of a Service of the namespace, or of another host. Raises RuntimeFailure."""
        found = self._cluster.find(ObjectKind.SERVICE, name) if "." not in name and ":" not in name else None
        if found is not None and found["spec"].get("clusterIP") not in (None, "None"):
            return str(found["spec"]["clusterIP"])
        if name == EGRESS_SERVICE:
            raise RuntimeFailure(f"the namespace has no Service {name}: kubectl apply -k deploy/kubernetes")
        try:
            return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
        except OSError:
            raise RuntimeFailure(f"{name} of its webhooks has no address here: set WEBHOOK_BASE_URL") from None

    def _require_policy(self, name: str) -> None:
        if self._cluster.find(ObjectKind.POLICY, name) is None:
            namespace = self._cluster.connection().namespace
            raise RuntimeFailure(
                f"the namespace {namespace} has no NetworkPolicy {name}, without which a sandbox reaches the whole "
                "cluster: kubectl apply -k deploy/kubernetes"
            )

    def _started(self, launch: Launch) -> Object | None:
        """The pod of this start, if there is one. That of an earlier start is ended; a later one is refused."""
        name = name_of(launch.sandbox_id)
        found = self._cluster.find(ObjectKind.POD, name)
        if found is None:
            return None
        start = int(found["metadata"]["labels"].get(START, 0))
        if start > launch.start:
            raise RuntimeFailure(f"it was started again meanwhile: start {start}")
        if start < launch.start:
            self._end(name, GRACE)
            return None
        seen = observation(found)
        if seen.state is State.GONE:
            text = self.logs(_handle(launch.sandbox_id), LAST_LINES)
            self._end(name, NO_GRACE)
            raise RuntimeFailure(f"{seen.detail}\n{text}".strip())
        return found

    def _create(self, launch: Launch, held: Held | None) -> Object:
        """Make the objects of a sandbox that are not there, and its pod, or the Sandbox whose controller makes it."""
        name, what = name_of(launch.sandbox_id), pod(launch, self._host, held)
        self._cluster.create(ObjectKind.CLAIM, claim(launch, self._host))
        self._cluster.create(ObjectKind.SERVICE, service(launch, self._host))
        self._cluster.put(ObjectKind.SECRET, secret(launch, self._host))
        if self._sandboxes.in_use():
            made: Object | None = self._sandboxes.start(what)
        else:
            made = self._cluster.create(ObjectKind.POD, what) or self._started(launch)  # another start was faster
        if made is None:
            raise RuntimeFailure(f"another pod had the name {name} at that moment")
        volume = self._cluster.find(ObjectKind.CLAIM, name)
        if volume is None or "deletionTimestamp" in volume["metadata"] or FILLING in volume["metadata"]["labels"]:
            self._end(name, NO_GRACE)
            raise RuntimeFailure("its volume is being removed, or was only half filled by a supervisor that ended")
        return made

    def _end(self, name: str, grace_seconds: int) -> None:
        """End a pod and remove its secret; returns when the pod is gone. One of a Sandbox has its own grace."""
        self._sandboxes.suspend(name)
        found = self._cluster.find(ObjectKind.POD, name)
        left = f"its pod has not ended; if its node is lost: kubectl delete pod {name} --force"
        if found is not None and managed(found):
            left += "; else see whether agent-sandbox's controller runs, which ends it"
        else:
            self._cluster.delete(ObjectKind.POD, name, grace_seconds=grace_seconds)
        self._cluster.delete(ObjectKind.SECRET, name)
        if not self._cluster.ended(ObjectKind.POD, name):
            raise RuntimeFailure(left)


def _runs(pod: Object) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _leaves_out_held(policy: Object) -> bool:
    """Whether a NetworkPolicy selects no pod that has the label HELD."""
    chosen = policy["spec"]["podSelector"].get("matchExpressions") or []
    return any((one["key"], one["operator"]) == (HELD, "DoesNotExist") for one in chosen)


def _first(pieces: Iterable[bytes], most: int) -> Iterator[bytes]:
    """Pieces until there are `most` bytes. Raises RuntimeFailure where there are more."""
    for piece in pieces:
        most -= len(piece)
        if most < 0:
            raise RuntimeFailure("it prints too much")
        yield piece


def _handle(sandbox_id: str, found: Object | None = None, ports: Mapping[str, int] | None = None) -> Handle:
    """found: its pod; None for a volume without one."""
    uid = found["metadata"]["uid"] if found else None
    words = {"runtime": "kubernetes", "sandbox_id": sandbox_id, "pod": uid, "ports": dict(ports or {})}
    return Handle({**words, "isolation": ISOLATION})

"""One node: it runs each pod as a real process of this machine, and lends each service an address that reaches them.

A pod has an address of its own in 127.0.0.0/8, and a folder for each claim. It shares the machine's files and network:
so a path of its volumes and the address 0.0.0.0, in its arguments and its environment, are replaced by its own.
"""

import base64
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

from tests.kubernetes_api.objects import ApiError, KubernetesObjects, Object, quantity

#: what a pod may use of the node, all together
_CAPACITY = {"cpu": 64.0, "memory": float(64 << 30)}


class Addresses:
    """Addresses of this machine that no other test process uses, as likely as not."""

    def __init__(self) -> None:
        self._next = random.randrange(1 << 16) << 6

    def __call__(self) -> str:
        self._next += 1
        return f"127.{64 + (self._next >> 16) % 64}.{(self._next >> 8) % 256}.{self._next % 254 + 1}"


class KubernetesNode:
    """The scheduler, the kubelet and the proxy of a cluster of one node."""

    def __init__(self, folder: Path, objects: KubernetesObjects, addresses: Addresses) -> None:
        self.images: dict[str, list[str]] = {}  #: those that can be pulled, with their entry points
        self.root_images: set[str] = set()  #: those whose user is root
        self.capacity = dict(_CAPACITY)
        self.reachable = True  #: False: the node is lost, and reports nothing
        self._folder = folder
        self._objects = objects
        self._addresses = addresses
        self._ended = False
        self._processes: dict[str, subprocess.Popen[bytes]] = {}  # by the pod's uid
        self._proxies: dict[str, list[socket.socket]] = {}  # by the service's uid
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self._objects.changed:
            self._ended = True
            self._objects.changed.notify_all()
        self._thread.join()
        for process in self._processes.values():
            _signal(process, signal.SIGKILL)
            process.wait()
        for listeners in self._proxies.values():
            _close(listeners)

    def claim_folder(self, name: str) -> Path:
        return self._folder / "volumes" / name

    def log_of(self, uid: str) -> bytes:
        path = self._folder / "logs" / uid
        return path.read_bytes() if path.exists() else b""

    def process_of(self, pod: Object) -> subprocess.Popen[bytes] | None:
        """The process of a pod that was started."""
        return self._processes.get(pod["metadata"]["uid"])

    def translated(self, pod: Object, text: str) -> str:
        """A word of a pod with its own paths and address."""
        [container] = pod["spec"]["containers"]
        claims = {one["name"]: one["persistentVolumeClaim"] for one in pod["spec"]["volumes"] if "emptyDir" not in one}
        for mount in container.get("volumeMounts", []):
            if claim := claims.get(mount["name"]):
                text = text.replace(mount["mountPath"], str(self.claim_folder(claim["claimName"])))
        return text.replace("0.0.0.0", pod["status"].get("podIP", "0.0.0.0"))

    def environment(self, pod: Object) -> dict[str, str]:
        """Raises ApiError where a secret is missing."""
        [container] = pod["spec"]["containers"]
        found = {"PATH": os.environ["PATH"], "HOSTNAME": pod["metadata"]["name"], "HOME": "/"}
        for source in container.get("envFrom", []):
            secret = self._objects.get("secrets", source["secretRef"]["name"])
            found |= {name: base64.b64decode(text).decode() for name, text in secret["data"].items()}
        return {name: self.translated(pod, text) for name, text in found.items()}

    def _run(self) -> None:
        """A round after every change, and at the latest after a moment, for ends of processes make no change."""
        while True:
            with self._objects.changed:
                if self._ended:
                    return
                if self.reachable:
                    self._round()
                self._objects.changed.wait(0.05)

    def _round(self) -> None:
        for pod in self._objects.all("pods"):
            self._care_for(pod)
        used = {
            volume["persistentVolumeClaim"]["claimName"]
            for pod in self._objects.all("pods")
            for volume in pod["spec"].get("volumes", [])
            if "persistentVolumeClaim" in volume
        }
        for claim in self._objects.all("persistentvolumeclaims"):
            name = claim["metadata"]["name"]
            if "deletionTimestamp" in claim["metadata"] and name not in used:
                shutil.rmtree(self.claim_folder(name), ignore_errors=True)
                self._objects.forget("persistentvolumeclaims", name, claim["metadata"]["uid"])
        services = {one["metadata"]["uid"]: one for one in self._objects.all("services")}
        for uid in self._proxies.keys() - services.keys():
            _close(self._proxies.pop(uid))
        for uid in services.keys() - self._proxies.keys():
            self._proxies[uid] = [self._listener(services[uid], port) for port in services[uid]["spec"]["ports"]]

    def _care_for(self, pod: Object) -> None:
        metadata, status = pod["metadata"], pod["status"]
        process = self._processes.get(metadata["uid"])
        if "deletionTimestamp" in metadata:
            self._end(pod, process)
        elif process is not None:
            if status["phase"] == "Running" and process.poll() is not None:
                self._report_end(pod, process.returncode)
        elif status["phase"] == "Pending":
            self._start(pod)

    def _end(self, pod: Object, process: subprocess.Popen[bytes] | None) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        grace = pod["metadata"]["deletionGracePeriodSeconds"]
        if process is not None:
            _signal(process, signal.SIGTERM if grace else signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace)
            _signal(process, signal.SIGKILL)
            process.wait()
            del self._processes[uid]
        self._objects.forget("pods", name, uid)

    def _start(self, pod: Object) -> None:
        [container] = pod["spec"]["containers"]
        if fault := self._does_not_fit(pod):
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": fault}
            if pod["status"]["conditions"] != [condition]:
                self._update(pod, conditions=[condition])
            return
        entry = self.images.get(container["image"])
        if entry is None:
            last = pod["status"].get("containerStatuses")
            reason = "ImagePullBackOff" if last else "ErrImagePull"
            self._wait(pod, reason, f'failed to pull image "{container["image"]}": not found')
            return
        try:
            environment = self.environment(pod)
        except ApiError as error:
            self._wait(pod, "CreateContainerConfigError", str(error))
            return
        if container["securityContext"].get("runAsNonRoot") and container["image"] in self.root_images:
            self._wait(pod, "CreateContainerConfigError", "container has runAsNonRoot and image will run as root")
            return
        self._run_process(pod, entry, environment)

    def _run_process(self, pod: Object, entry: list[str], environment: dict[str, str]) -> None:
        [container] = pod["spec"]["containers"]
        pod["status"]["podIP"] = self._addresses()
        environment = {name: self.translated(pod, text) for name, text in environment.items()}
        log = self._folder / "logs" / pod["metadata"]["uid"]
        log.parent.mkdir(exist_ok=True)
        for volume in pod["spec"]["volumes"]:
            if "persistentVolumeClaim" in volume:
                self.claim_folder(volume["persistentVolumeClaim"]["claimName"]).mkdir(parents=True, exist_ok=True)
        words = [*container.get("command", entry), *map(_expanded, container.get("args", []))]
        with log.open("wb") as output:
            try:
                process = subprocess.Popen(
                    [self.translated(pod, word) for word in words],
                    cwd=self.translated(pod, container.get("workingDir", "/")),
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            except OSError as error:
                self._finish(pod, {"exitCode": 128, "reason": "StartError", "message": str(error)})
                return
        self._processes[pod["metadata"]["uid"]] = process
        states = [{"name": container["name"], "ready": True, "state": {"running": {}}}]
        self._update(pod, phase="Running", podIP=pod["status"]["podIP"], conditions=[], containerStatuses=states)

    def _report_end(self, pod: Object, code: int) -> None:
        self._finish(
            pod, {"exitCode": code if code >= 0 else 128 - code, "reason": "Completed" if not code else "Error"}
        )

    def _finish(self, pod: Object, ended: Object) -> None:
        states = [{"name": "sandbox", "ready": False, "state": {"terminated": ended}}]
        self._update(pod, phase="Failed" if ended["exitCode"] else "Succeeded", containerStatuses=states)

    def _wait(self, pod: Object, reason: str, message: str) -> None:
        states = [{"name": "sandbox", "ready": False, "state": {"waiting": {"reason": reason, "message": message}}}]
        if pod["status"].get("containerStatuses") != states:
            self._update(pod, containerStatuses=states)

    def _update(self, pod: Object, **status: Any) -> None:
        self._objects.update_status(pod["metadata"]["name"], pod["metadata"]["uid"], **status)

    def _does_not_fit(self, pod: Object) -> str:
        """Why the scheduler has no node for a pod; empty if it has one."""
        others = [one for one in self._objects.all("pods") if one["metadata"]["uid"] in self._processes]
        for name, capacity in self.capacity.items():
            if sum(_requested(one, name) for one in [*others, pod]) > capacity:
                return f"0/1 nodes are available: 1 Insufficient {name}."
        return ""

    def _listener(self, service: Object, port: Object) -> socket.socket:
        listener = socket.create_server((service["spec"]["clusterIP"], port["port"]))
        selector = service["spec"]["selector"]
        threading.Thread(target=self._accept, args=(listener, selector, port["targetPort"]), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket, selector: dict[str, str], port: int) -> None:
        with contextlib.suppress(OSError):  # the service was removed
            while True:
                near, _ = listener.accept()
                running = [one for one in self._objects.all("pods", selector) if one["status"]["phase"] == "Running"]
                far = socket.socket()
                try:
                    far.connect((running[0]["status"]["podIP"], port))
                except (IndexError, OSError):
                    near.close()
                    far.close()
                    continue
                threading.Thread(target=_join, args=(near, far), daemon=True).start()


def _join(near: socket.socket, far: socket.socket) -> None:
    with near, far:
        back = threading.Thread(target=_carry, args=(far, near), daemon=True)
        back.start()
        _carry(near, far)
        back.join()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _close(listeners: list[socket.socket]) -> None:
    for listener in listeners:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # ends an accept that waits
        listener.close()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _expanded(word: str) -> str:
    """An argument as a kubelet expands it: a reference to a variable that is not set stays, `$$` is one `$`."""
    return word.replace("$$", "$")


def _requested(pod: Object, name: str) -> float:
    return sum(quantity(one["resources"]["requests"][name]) for one in pod["spec"]["containers"] if "resources" in one)

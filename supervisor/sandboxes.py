"""From what is wanted of a host's sandboxes to what is: one look at each, again and again."""

import logging
import re
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx

import wire
from agents.link import AgentRefused, AgentServer, AgentUnreachable
from runtimes import Handle, Launch, Runtime, RuntimeFailure, State, filled
from specs import Spec, Specs, unsupported
from store import Store
from store.sandboxes import Sandbox, SandboxId

log = logging.getLogger("supervisor")

#: lines of the log that a failure tells, and that are kept of a sandbox that failed
_TOLD_LINES, _KEPT_LINES = 20, 1000

_PROJECT = Path(__file__).parent.parent

#: a host in a URL that means another machine to a container
_LOOPBACK = re.compile(r"//(127\.0\.0\.1|localhost|\[::1\])(?=[:/])")


@dataclass(frozen=True)
class Host:
    """What a host gives its sandboxes. Times are in seconds."""

    id: str
    url_host: str
    webhook_base_url: str
    start_seconds: float


class Reconciler:
    """Looks at one sandbox at a time. Any number of threads may use it, each for another sandbox."""

    def __init__(
        self,
        store: Store,
        specs: Specs,
        runtimes: Mapping[str, Runtime],
        host: Host,
        client: httpx.Client,
    ) -> None:
        """runtimes: by their names in specs. client: for the agent servers."""
        self._store = store
        self._specs = specs
        self._runtimes = runtimes
        self._host = host
        self._client = client

    def look_at(self, sandbox: Sandbox) -> None:
        """Do what is wanted, and report what is."""
        try:
            self._look_at(sandbox)
        except RuntimeFailure as failure:
            log.warning("sandbox %s: %s", sandbox.id, failure)
            if sandbox.status == "STARTING" and sandbox.wanted != "deleted" and sandbox.handle is None:
                self._report(sandbox, "ERROR", detail=str(failure))

    def _look_at(self, sandbox: Sandbox) -> None:
        if sandbox.wanted == "deleted":
            self._end(sandbox)
            return
        if sandbox.status == "ERROR":
            return
        spec = self._specs.find(sandbox.spec_id)
        if spec is None:
            self._fail(sandbox, f"There is no spec {sandbox.spec_id} on host {self._host.id}")
            return
        if reason := unsupported(spec.runtime):
            self._fail(sandbox, reason)
            return
        runtime = self._runtimes[spec.runtime]
        if sandbox.handle is None:
            sandbox = self._start(sandbox, spec, runtime)
        handle = _handle(sandbox)
        seen = runtime.observe(handle)
        if seen.state is State.GONE:
            self._fail(sandbox, f"The sandbox ended: {seen.detail or 'nobody knows how'}")
        elif sandbox.wanted == "paused":
            if seen.state is not State.PAUSED:
                runtime.pause(handle)
            if sandbox.status != "PAUSED":
                self._report(sandbox, "PAUSED", detail="")
        else:
            if seen.state is State.PAUSED:
                runtime.resume(handle)
            self._care_for(sandbox, spec)

    def _care_for(self, sandbox: Sandbox, spec: Spec) -> None:
        """Of one that should run: whether its agent answers, and whether its time is up."""
        now = wire.now()
        if sandbox.status in ("STARTING", "MISSING"):
            if self._agent(sandbox).is_alive():
                self._report(sandbox, "RUNNING", detail="")
            elif now - sandbox.starting_at > self._host.start_seconds * 1e6:
                self._fail(sandbox, f"Its agent server did not answer within {self._host.start_seconds:g} s")
        elif spec.max_seconds and now - sandbox.created_at > spec.max_seconds * 1e6:
            self._fail(sandbox, f"Its {spec.max_seconds:g} s are over")
        elif spec.idle_pause_seconds and now - sandbox.active_at > spec.idle_pause_seconds * 1e6:
            self._pause_if_idle(sandbox, spec)

    def _pause_if_idle(self, sandbox: Sandbox, spec: Spec) -> None:
        """Pause it unless an agent is at work in it, or has been used by others than us."""
        try:
            idle = self._agent(sandbox).idle_seconds()
        except (AgentUnreachable, AgentRefused):
            idle = None
        if self._store.app_conversations.runs_in(sandbox.id) or (idle is not None and idle < spec.idle_pause_seconds):
            self._report(sandbox, "", active_at=str(wire.now() - round((idle or 0) * 1e6)))
        else:
            self._store.sandboxes.ask(sandbox.id, "pause")

    def _agent(self, sandbox: Sandbox) -> AgentServer:
        return AgentServer(self._client, sandbox.agent_url, sandbox.session_api_key)

    def _start(self, sandbox: Sandbox, spec: Spec, runtime: Runtime) -> Sandbox:
        handle = runtime.start(launch(sandbox, spec, self._host.webhook_base_url))
        urls = [
            {"name": name, "url": f"http://{self._host.url_host}:{port}", "port": port}
            for name, port in handle["ports"].items()
        ]
        [agent_url] = [url["url"] for url in urls if url["name"] == "AGENT_SERVER"]
        self._report(sandbox, "", handle=handle, urls=urls, agent_url=agent_url)
        return sandbox._replace(handle=handle, urls=urls, agent_url=agent_url)

    def _fail(self, sandbox: Sandbox, reason: str) -> None:
        """Keep its last lines, end what is left of it, and say why."""
        text = ""
        if sandbox.handle is not None:
            runtime, handle = self._runtime_of(sandbox), _handle(sandbox)
            text = runtime.logs(handle, _KEPT_LINES)
            runtime.stop(handle)
        last = "\n".join(text.splitlines()[-_TOLD_LINES:])
        self._report(sandbox, "ERROR", detail=f"{reason}\n{last}".strip(), log=text)
        log.warning("sandbox %s: %s", sandbox.id, reason)

    def _end(self, sandbox: Sandbox) -> None:
        if sandbox.handle is not None:
            self._runtime_of(sandbox).stop(_handle(sandbox))
        else:  # perhaps it was started, and who started it did not live to say so
            self.end_unknown(sandbox.id)
        self._report(sandbox, "GONE")

    def end_unknown(self, sandbox_id: str | None = None) -> None:
        """End what runs here and is no sandbox of this host, or has that id."""
        for runtime in self._runtimes.values():
            for handle in runtime.known():
                identity = SandboxId(handle["sandbox_id"])
                [sandbox] = self._store.sandboxes.get_many([identity])
                if identity == sandbox_id or sandbox is None or sandbox.host != self._host.id:
                    log.warning("sandbox %s is not known: it is ended", identity)
                    runtime.stop(handle)

    def end_all(self) -> None:
        """End every sandbox of this host, all at once; they are MISSING afterwards."""
        living = [one for one in self._store.sandboxes.of_host(self._host.id) if one.handle and one.status != "ERROR"]
        with ThreadPoolExecutor(max(1, len(living))) as pool:
            list(pool.map(self._end_with_supervisor, living))

    def _end_with_supervisor(self, sandbox: Sandbox) -> None:
        try:
            self._runtime_of(sandbox).stop(_handle(sandbox))
        except RuntimeFailure as failure:
            log.warning("sandbox %s: %s", sandbox.id, failure)
        else:
            self._report(sandbox, "MISSING", detail="It ended with its supervisor")

    def _runtime_of(self, sandbox: Sandbox) -> Runtime:
        assert sandbox.handle is not None
        return self._runtimes[sandbox.handle["runtime"]]

    def _report(self, sandbox: Sandbox, status: str, **fields: object) -> None:
        self._store.sandboxes.report(sandbox.id, self._host.id, status, **fields)

    def tell_log(self, sandbox_id: SandboxId, tail: int, reply: str) -> None:
        """Answer a request for the log of a sandbox, if it is one of this host."""
        [sandbox] = self._store.sandboxes.get_many([sandbox_id])
        if sandbox is None or sandbox.host != self._host.id:
            return
        text = self._runtime_of(sandbox).logs(_handle(sandbox), tail) if sandbox.handle else ""
        self._store.sandboxes.answer(reply, text)


def _handle(sandbox: Sandbox) -> Handle:
    assert sandbox.handle is not None
    return Handle(sandbox.handle)


def launch(sandbox: Sandbox, spec: Spec, webhook_base_url: str) -> Launch:
    """What a runtime starts for a sandbox: its environment is the spec's, its key, and where to post events."""
    key, webhook = sandbox.session_api_key, "OH_WEBHOOKS_0_"
    if spec.runtime == "docker":  # whose loopback is the container's own
        webhook_base_url = re.sub(
            r"//(127\.0\.0\.1|localhost|\[::1\])(?=[:/])", "//host.docker.internal", webhook_base_url
        )
    words = {"PYTHON": sys.executable, "PROJECT": _PROJECT}
    env = {
        **{name: filled(text, words) for name, text in spec.initial_env.items()},
        "OH_SESSION_API_KEYS_0": key,
        "SESSION_API_KEY": key,
        f"{webhook}BASE_URL": webhook_base_url,
        # An agent server keeps events back by default; whoever follows a conversation wants each at once.
        f"{webhook}EVENT_BUFFER_SIZE": "1",
        f"{webhook}FLUSH_DELAY": "0.5",
        f"{webhook}NUM_RETRIES": "10",
        f"{webhook}RETRY_DELAY": "1",
    }
    command = tuple(filled(word, words) for word in spec.command)
    return Launch(
        sandbox_id=sandbox.id,
        command=command,
        env=env,
        working_dir=spec.working_dir,
        ports=spec.ports,
        image=spec.image,
        memory_bytes=spec.memory_bytes,
        cpus=spec.cpus,
        processes=spec.processes,
        isolated=spec.isolated,
    )

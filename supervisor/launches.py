"""Turns a sandbox and its spec into a launch for a runtime, and reports the isolation on this host."""

import json
import logging
import re
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from core.wire import API_VERSION
from runtimes import PROJECT, Launch, RuntimeCallFailed, filled
from runtimes.isolation import BUBBLEWRAP, LANDLOCK, NONE, Abilities, SandboxIsolation, decided, why_shared
from runtimes.isolation.abilities import abilities
from settings.egress import NAMED, NO_WAY
from settings.specs import Spec, Specs, unsupported
from store import Store
from store.errors import UNAVAILABLE
from store.sandboxes.sandboxes import Sandbox

log = logging.getLogger("supervisor")

#: Isolation of a sandbox of the runtimes `docker` and `kubernetes`.
CONTAINER = "container"

#: Interval in seconds between two attempts while the store is unavailable.
_DELAY = 5.0


#: Isolation and network of a spec's sandboxes, in words.
_KINDS = {
    BUBBLEWRAP: "are isolated by bubblewrap",
    LANDLOCK: "are confined by Landlock alone",
    NONE: "are NOT ISOLATED",
    CONTAINER: "are containers",
}
_NETWORKS = {
    "internet": "reach the internet",
    NAMED: "reach by name what the spec allows",
    "none": "reach no network",
    "host": "have the network of this machine",
}


#: Names of the sandbox itself, to which programs connect without the proxy. curl, Go and requests read the network;
#: Python's urllib and httpx read each address. `[::1]`, which only urllib knows, crashes httpx.
_ITSELF = "localhost,sandbox,127.0.0.1,127.0.0.0/8,127.0.0.2,127.0.1.1,0.0.0.0,::1"

#: Variables that tell programs about the egress proxy. `NODE_USE_ENV_PROXY` makes Node.js read the others.
WAY_OUT = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "{EGRESS}"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), _ITSELF),
    "NODE_USE_ENV_PROXY": "1",
}

#: Loopback hosts in a URL. For a container they are the container itself.
_LOOPBACK = re.compile(r"//(127\.0\.0\.1|localhost|\[::1\])(?=[:/])")


def announce(store: Store, host: str, users: range, specs: Specs) -> None:
    """Probe the isolation that works on this host, and report what the sandboxes of each spec get.

    Takes about a second. users: ids that sandboxes may get.
    """
    if unsupported("process"):
        return
    can = abilities()
    shared, of_specs = why_shared(users, can), []
    for spec in specs.all:
        isolation = _isolation(spec, can, shared)
        of_specs.append({"spec": spec.id, **isolation.described()})
        is_whole = isolation.kind in (BUBBLEWRAP, CONTAINER) and not isolation.lacks
        line = "the sandboxes of %s %s, and %s. %s"
        words = (_KINDS[isolation.kind], _NETWORKS[isolation.network], " ".join([*isolation.lacks, *isolation.reaches]))
        (log.info if is_whole else log.warning)(line, spec.id, *words)
    auto = decided("auto", "internet", can, shared)
    while not _noted(store, host, {**auto.described(), "specs": of_specs}):
        time.sleep(_DELAY)


def _isolation(spec: Spec, can: Abilities, shared: str) -> SandboxIsolation:
    """Return the isolation of a spec's sandboxes on this host. shared: as for `decided`."""
    network = _network(spec) or "internet"
    if spec.runtime != "process":
        return SandboxIsolation(CONTAINER, network if network in (NAMED, "none") else "internet")
    try:
        return decided(spec.isolation, network, can, shared)
    except RuntimeCallFailed as failure:
        return SandboxIsolation(BUBBLEWRAP, network, [], [f"They do not start: {failure}."])


def _noted(store: Store, host: str, isolation: dict[str, Any]) -> bool:
    try:
        store.sandboxes.hosts.note(host, isolation, API_VERSION)
    except UNAVAILABLE:
        return False
    return True


def launch(sandbox: Sandbox, spec: Spec, webhook_base_url: str, hook_key: str, origins: Iterable[str] = ()) -> Launch:
    """Return the launch of a sandbox.

    Its environment has the spec's variables, its keys, its folder of conversations and the webhook's URL.

    hook_key: sent with its webhooks, from `Sandboxes.begin`. The published agent server replaces X-Session-API-Key in
    its webhooks by its own key, and keeps other headers. origins: of web pages that may use its agent server. Raises
    KeyUnreadable, and RuntimeCallFailed if a sandbox could not reach the webhooks.
    """
    key, webhook = sandbox.session_api_key, "OH_WEBHOOKS_0_"
    if spec.runtime == "docker" and spec.egress not in (NAMED, NO_WAY):  # a container has its own loopback
        webhook_base_url = _LOOPBACK.sub("//host.docker.internal", webhook_base_url)
    elif spec.runtime == "kubernetes" and _LOOPBACK.search(webhook_base_url):
        raise RuntimeCallFailed(
            f"a pod does not reach this server at {webhook_base_url}: set WEBHOOK_BASE_URL to a URL of the server's "
            "Service, such as http://agent-server:8000/api/v1/webhooks"
        )
    words = {"PYTHON": sys.executable}
    env = {
        "OH_CONVERSATIONS_PATH": "{WORK}/.agent-server/conversations",
        # By default an agent server seals with its session key, which differs after each start.
        "OH_SECRET_KEY": sandbox.files_key,
        # A sandbox has a single agent server, so a killed agent server must not hold a lease on conversations.
        "OH_LEASE_TTL_SECONDS": "0",
        **(WAY_OUT if spec.egress == NAMED else {}),
        **{name: filled(text, words) for name, text in spec.environment.items()},
        "OH_SESSION_API_KEYS_0": key,
        "SESSION_API_KEY": key,
        f"{webhook}BASE_URL": "{WEBHOOKS}",
        f"{webhook}HEADERS": json.dumps({"Authorization": f"Bearer {hook_key}"}),
        # By default an agent server buffers events. Followers of the conversation need each event at once.
        f"{webhook}EVENT_BUFFER_SIZE": "1",
        f"{webhook}FLUSH_DELAY": "0.5",
        f"{webhook}NUM_RETRIES": "10",
        f"{webhook}RETRY_DELAY": "1",
        **{f"OH_ALLOW_CORS_ORIGINS_{n}": origin for n, origin in enumerate(origins)},
    }
    return replace(_order(sandbox, spec, env, webhook_base_url), hook_key=hook_key)


def _network(spec: Spec) -> str | None:
    """Return the network that a spec's sandboxes request from their runtime; None: its default."""
    return {NAMED: NAMED, NO_WAY: "none"}.get(spec.egress, spec.network)


def files_of(sandbox: Sandbox, spec: Spec) -> Launch:
    """Return a launch that is only for packing or filling a sandbox's files: without an environment."""
    return _order(sandbox, spec, {}, "")


def _order(sandbox: Sandbox, spec: Spec, env: dict[str, str], webhook_base_url: str) -> Launch:
    command = tuple(filled(word, {"PYTHON": sys.executable}) for word in spec.command)
    return Launch(
        sandbox_id=sandbox.id,
        start=sandbox.start,
        command=command,
        env=env,
        working_dir=spec.working_dir,
        seen_dir=sandbox.working_dir if sandbox.linked_dir else "",
        ports=spec.ports,
        image=spec.image,
        memory_bytes=spec.memory_bytes,
        cpus=spec.cpus,
        processes=spec.processes,
        disk_bytes=spec.disk_bytes,
        webhooks=webhook_base_url,
        isolation=spec.isolation,
        readable=tuple(filled(path, {"PROJECT": PROJECT}) for path in spec.readable),
        network=_network(spec),
        capabilities=spec.capabilities,
        new_privileges=spec.new_privileges,
        read_only=spec.read_only,
    )

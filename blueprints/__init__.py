"""HTTP only: paths, statuses, headers and documentation. No Redis command and no business rule.

A handler calls one of these, by what its operation needs:

* `current_store`: all reads, and all writes that only Redis decides.
* `current_commands`: writes that the conversation's agent must also receive: messages, run, pause, interrupt,
  decisions, policies, analyzers, secrets and deletions. For a detached conversation they only change the store.
* `current_forwarding`: calls that are forwarded unchanged to the agent server of a sandbox.
* `current_specs`: the sandbox specs, which come from the settings.
* `current_desk`: the notification targets, which also come from the settings.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, cast

from flask import current_app, g, request
from werkzeug.local import LocalProxy

from agents.commands import Commands
from agents.expiry import ExpiryDriver
from agents.forwarding import Forwarding
from boot.rehearsing import Runners
from core.access import Joiner, Principal
from core.approvals import ApprovalLinks
from core.people import voter
from notifications.devices import DeviceDesk
from notifications.sending import Desk
from settings.config import Config
from settings.specs import Specs
from store import Store
from store.access import Quota
from store.approvals.audit import ActorKind, DecisionActor
from telemetry.meter import Meter

if TYPE_CHECKING:
    from blueprints.api import Api
    from blueprints.console import ConsoleFiles
    from blueprints.guard import Guard
    from blueprints.posture import Posture
    from blueprints.terminals import OpenSockets


@dataclass(frozen=True, slots=True)
class Server:
    """The services of one worker: `app.extensions["server"]`."""

    config: Config
    store: Store
    specs: Specs
    commands: Commands
    forwarding: Forwarding
    desk: Desk
    devices: DeviceDesk
    links: ApprovalLinks
    guard: "Guard"
    posture: "Posture"
    console: "ConsoleFiles"
    api: "Api"
    meter: Meter
    expiry: ExpiryDriver
    runners: Runners
    silent_sockets: Quota
    bash_sockets: "OpenSockets"


def current_server() -> Server:
    """Return the server of the running app. Valid only during a request."""
    server: Server = current_app.extensions["server"]
    return server


#: The store of the running app.
current_store = cast(Store, LocalProxy(lambda: current_server().store))

#: The sandbox specs of the running app, and the agent commands on behalf of the caller.
current_specs = cast(Specs, LocalProxy(lambda: current_server().specs))
current_commands = cast(Commands, LocalProxy(lambda: current_server().commands.of(current_actor())))

#: Forwards calls of the running app into sandboxes.
current_forwarding = cast(Forwarding, LocalProxy(lambda: current_server().forwarding))

#: The devices that the running app notifies.
current_devices = cast(DeviceDesk, LocalProxy(lambda: current_server().devices))

#: The notifications of the running app.
current_desk = cast(Desk, LocalProxy(lambda: current_server().desk))


def current_actor() -> DecisionActor:
    """Return the caller as the audit names them."""
    return actor_of(g.principal, request.remote_addr or "")


def actor_of(principal: Principal, address: str) -> DecisionActor:
    """Return a principal at an address as the audit names them."""
    kind: ActorKind = "person" if principal.person else "key"
    return DecisionActor(
        kind,
        principal.name,
        address,
        principal.may("approve"),
        principal.rights,
        voter(principal.person or principal.belongs_to or principal.name),
        principal.key_id,
        principal.groups,
    )


def current_client() -> str:
    """Return a digest of the caller's address and program, which tells the clients of one key apart."""
    return sha256(f"{request.remote_addr}\n{request.user_agent.string}".encode()).hexdigest()[:32]


def current_joiner() -> Joiner:
    """Return the caller's key as `agents/joins.py` checks it."""
    return Joiner(g.principal.owner, g.principal.name, request.remote_addr or "", g.principal.may("approve"))

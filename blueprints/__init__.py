"""HTTP only: paths, statuses, headers, documentation. No Redis command and no rule stands here.

A handler calls one of five, by what its operation needs:

* `current_store`, where Redis alone decides: every read, and every write that no agent receives.
* `current_commands`, where the agent of a conversation must receive it too: messages, run, pause, interrupt, decisions,
  policies, analyzers, secrets, deletions. Of a detached conversation these are the store's.
* `current_forwarding`, for calls that go on to a sandbox's agent server as they come.
* `current_specs`, for the sandbox specs, which no Redis holds.
* `current_desk`, for the targets of notifications, which the settings name.
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
from core.approvals import Links
from core.people import voter
from notifications.devices import DeviceDesk
from notifications.sending import Desk
from settings.config import Config
from settings.specs import Specs
from store import Store
from store.access import Quota
from store.approvals.audit import Actor, ActorKind
from telemetry.meter import Meter

if TYPE_CHECKING:
    from blueprints.api import Api
    from blueprints.console import ConsoleFiles
    from blueprints.guard import Guard
    from blueprints.posture import Posture
    from blueprints.terminals import OpenSockets


@dataclass(frozen=True, slots=True)
class Server:
    """What one worker serves with: `app.extensions["server"]`."""

    config: Config
    store: Store
    specs: Specs
    commands: Commands
    forwarding: Forwarding
    desk: Desk
    devices: DeviceDesk
    links: Links
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
    """The server of the running app; valid while a request is handled."""
    server: Server = current_app.extensions["server"]
    return server


#: the store of the running app
current_store = cast(Store, LocalProxy(lambda: current_server().store))

#: the specs of the running app's sandboxes, and the commands to agents of the one who asks
current_specs = cast(Specs, LocalProxy(lambda: current_server().specs))
current_commands = cast(Commands, LocalProxy(lambda: current_server().commands.of(current_actor())))

#: how calls of the running app go on into sandboxes
current_forwarding = cast(Forwarding, LocalProxy(lambda: current_server().forwarding))

#: the devices that the running app rings
current_devices = cast(DeviceDesk, LocalProxy(lambda: current_server().devices))

#: the notifications of the running app
current_desk = cast(Desk, LocalProxy(lambda: current_server().desk))


def current_actor() -> Actor:
    """The one who asks, as the audit names them."""
    return actor_of(g.principal, request.remote_addr or "")


def actor_of(principal: Principal, address: str) -> Actor:
    """One who asks from an address, as the audit names them."""
    kind: ActorKind = "person" if principal.person else "key"
    return Actor(
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
    """The program that asks and its address, as a digest that names a client among those of one key."""
    return sha256(f"{request.remote_addr}\n{request.user_agent.string}".encode()).hexdigest()[:32]


def current_joiner() -> Joiner:
    """The key that asks, as the check of joins takes it (`agents/joins.py`)."""
    return Joiner(g.principal.owner, g.principal.name, request.remote_addr or "", g.principal.may("approve"))

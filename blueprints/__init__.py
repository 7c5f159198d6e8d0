"""HTTP only: paths, statuses, headers, documentation. No Redis command and no rule stands here.

A handler calls one of five, by what its operation needs:

* `current_store`, where Redis alone decides: every read, and every write that no agent receives.
* `current_commands`, where the agent of a conversation must receive it too: messages, run, pause, interrupt, decisions,
  policies, analyzers, secrets, deletions. Of a detached conversation these are the store's.
* `current_forwarding`, for calls that go on to a sandbox's agent server as they come.
* `current_specs`, for the sandbox specs, which no Redis holds.
* `current_desk`, for the targets of notifications, which the settings name.
"""

from hashlib import sha256
from typing import cast

from flask import current_app, g, request
from werkzeug.local import LocalProxy

from agents.commands import Commands
from agents.forwarding import Forwarding
from core.access import Joiner
from notifications.sending import Desk
from settings.specs import Specs
from store import Store
from store.approvals.audit import Actor

#: the store of the running app; valid while a request is handled
current_store = cast(Store, LocalProxy(lambda: current_app.extensions["store"]))

#: the specs of the running app's sandboxes, and the commands to agents of the one who asks
current_specs = cast(Specs, LocalProxy(lambda: current_app.extensions["specs"]))
current_commands = cast(Commands, LocalProxy(lambda: current_app.extensions["commands"].of(current_actor())))

#: how calls of the running app go on into sandboxes
current_forwarding = cast(Forwarding, LocalProxy(lambda: current_app.extensions["forwarding"]))

#: the notifications of the running app
current_desk = cast(Desk, LocalProxy(lambda: current_app.extensions["desk"]))


def current_actor() -> Actor:
    """The one who asks, as the audit names them."""
    return Actor("key", g.principal.name, request.remote_addr or "", g.principal.may("approve"))


def current_client() -> str:
    """The program that asks and its address, as a digest that names a client among those of one key."""
    return sha256(f"{request.remote_addr}\n{request.user_agent.string}".encode()).hexdigest()[:32]


def current_joiner() -> Joiner:
    """The key that asks, as the check of joins takes it (`agents/joins.py`)."""
    return Joiner(g.principal.owner, g.principal.name, request.remote_addr or "", g.principal.may("approve"))

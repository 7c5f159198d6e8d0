"""HTTP only: paths, statuses, headers, documentation. Blueprints hold no Redis command and no rule."""

from typing import cast

from flask import current_app
from werkzeug.local import LocalProxy

from agents.commands import Commands
from specs import Specs
from store import Store

#: the store of the running app; valid while a request is handled
current_store = cast(Store, LocalProxy(lambda: current_app.extensions["store"]))

#: the specs of sandboxes, and the commands to agents, in a sandbox or detached
current_specs = cast(Specs, LocalProxy(lambda: current_app.extensions["specs"]))
current_commands = cast(Commands, LocalProxy(lambda: current_app.extensions["commands"]))

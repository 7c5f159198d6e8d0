"""HTTP only: paths, statuses, headers, documentation. No Redis command and no rule stands here."""

from typing import cast

from flask import current_app
from werkzeug.local import LocalProxy

from store import Store

#: the store of the running app; valid while a request is handled
current_store = cast(Store, LocalProxy(lambda: current_app.extensions["store"]))

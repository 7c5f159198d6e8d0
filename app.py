"""The composition root: settings → store → app → blueprints → errors."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

from flask import Flask, Response, current_app, request
from werkzeug.exceptions import HTTPException

from agents.client import http_client
from agents.commands import SHOWN_SECONDS, Commands
from agents.expiry import ExpiryDriver
from agents.forwarding import Forwarding
from blueprints import Server, current_store
from blueprints.access import keys, sandbox_settings, users, web_client
from blueprints.api import API_TITLE, Api, InvalidInput, UnicodeRequest
from blueprints.app_conversations import app_conversations, app_folders
from blueprints.approval_links import approval_links
from blueprints.approval_modes import approval_modes
from blueprints.approvals import approval_rules, decisions, inbox_stream, pending_actions
from blueprints.audit import audit
from blueprints.catalogs import catalogs
from blueprints.client_settings import agent_profiles, client_settings, profiles
from blueprints.console import console, console_files, docs_page
from blueprints.conversations import agent_verbs, conversation_list, conversations, list_stream
from blueprints.destinations import destinations
from blueprints.devices import devices
from blueprints.errors import register_errors
from blueprints.events import app_events, events, messages, pending_messages, stream
from blueprints.exports import downloads, exports, trajectories
from blueprints.forwarding import forwarding, workspace_files
from blueprints.grants import grants, owners
from blueprints.guard import Guard, register_guard
from blueprints.metrics import MeteredApp, metrics
from blueprints.once import register_once
from blueprints.openai import openai
from blueprints.operations import notifications, operations
from blueprints.people import ProxiedPeople
from blueprints.permission_requests import hooks, permission_requests
from blueprints.posture import Posture, TrustedProxies, admit, with_headers
from blueprints.previews import PreviewHosts, previews
from blueprints.provider_connections import provider_connections
from blueprints.pushes import pushes
from blueprints.rates import register_rates
from blueprints.request_log import register_logs, register_request_log
from blueprints.sandboxes import sandboxes, specs, spending
from blueprints.sockets import sockets
from blueprints.terminals import OpenSockets, bash_socket, terminals
from blueprints.waiting import waiting
from blueprints.webhooks import webhooks
from boot.posture import NO_ADMIN, asked_auth, make_key, show_key
from boot.rehearsing import Runners
from core.access import SettingsKeys
from core.approvals import ApprovalLinks
from core.origins import authority, host_pattern, origin
from core.wire import API_VERSION
from notifications.devices import DeviceDesk, DeviceStanding, open_rings
from notifications.sending import Desk, open_sender, targets_of
from settings import ConfigError
from settings.config import Config
from settings.specs import Specs
from store import Store
from store.access import Quota, TooManyFollowersOfKey, TooManySilentSockets
from store.errors import UNAVAILABLE
from wiring import open_store_of

BLUEPRINTS = (
    events,
    messages,
    stream,
    conversations,
    exports,
    conversation_list,
    decisions,
    agent_verbs,
    forwarding,
    app_conversations,
    app_events,
    app_folders,
    pushes,
    downloads,
    trajectories,
    pending_messages,
    pending_actions,
    inbox_stream,
    waiting,
    list_stream,
    sandboxes,
    previews,
    sandbox_settings,
    users,
    web_client,
    specs,
    webhooks,
    keys,
    client_settings,
    profiles,
    agent_profiles,
    provider_connections,
    catalogs,
    workspace_files,
    approval_modes,
    approval_rules,
    destinations,
    spending,
    audit,
    grants,
    owners,
    notifications,
    devices,
    operations,
    metrics,
    openai,
    permission_requests,
    hooks,
)

#: Names of the blueprints whose operations read data.
_READ_DATA = {blueprint.name for blueprint in (*BLUEPRINTS, sockets, bash_socket, terminals, approval_links)} - {
    operations.name,
    metrics.name,
    web_client.name,
}


class App(MeteredApp):
    """Counts its requests, and skips Flask's check in every request whether a function is a coroutine."""

    request_class = UnicodeRequest

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function itself: none of ours is a coroutine."""
        return func


def create_app(config: Config | None = None) -> Flask:
    """Return the WSGI app, one per worker. config: default: from the environment. Raises ConfigError."""
    settled = config is not None
    config = config or Config.from_env()
    if not config.redis.redis_url:
        raise ConfigError(
            "REDIS_URL is not set. Start with `gunicorn -c gunicorn.conf.py 'app:create_app()'`, "
            "which runs its own store, or set REDIS_URL."
        )
    app = App(__name__, static_folder="console/vendor", static_url_path="/docs/assets")
    register_logs(app, config.host.log_level)
    app.config.update(_of_libraries(config))
    app.url_map.merge_slashes = False  # a redirect to the merged path would be an HTML page
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.wsgi_app = PreviewHosts(app, app.wsgi_app, config.http.preview_host)  # type: ignore[method-assign]
    if config.http.trusted_proxies:
        app.wsgi_app = TrustedProxies(app.wsgi_app, config.http.trusted_proxies)  # type: ignore[method-assign]
    api = Api(app)
    for blueprint in BLUEPRINTS:
        api.register_blueprint(blueprint)
    for pages in (sockets, bash_socket, terminals, docs_page, console, approval_links):
        app.register_blueprint(pages)
    app.before_request(_to_console)
    app.count_rules()
    server = app.extensions["server"] = _server(app, config, api, asks_store=not settled)
    register_guard(app, server.guard)
    register_request_log(app)
    register_rates(app, config.access)
    register_once(app)
    app.before_request(_ensure_data_version)
    register_errors(app)
    app.after_request(with_headers)
    app.after_request(_without_slashes)
    return app


def _made_key(config: Config) -> str:
    """Return the key in DATA_DIR, after making and showing it if there is none. Raises OSError."""
    if make_key(config.key_file):
        show_key(config.key_file, [(config.http.host, config.http.port)], NO_ADMIN)
    return config.key_file.read_text().strip()


def _server(app: App, config: Config, api: Api, *, asks_store: bool) -> Server:
    """Return the services of the worker. asks_store: ask the store for keys before requiring one."""
    store, specs = open_store_of(config, app.meter), Specs.of(config.host)
    wake_seconds = config.sandboxes.wake_seconds
    client = http_client(config.sandboxes.agent_seconds)
    commands = Commands(store, client, specs, wake_seconds=wake_seconds, shown_seconds=SHOWN_SECONDS)
    public_url, link_seconds = config.http.public_url, config.notify.link_seconds
    # gunicorn's master leaves AUTH=auto if it could not ask the store for keys.
    asks_store = asks_store and config.access.auth == "auto" and config.is_open
    guard = Guard(
        app,
        store,
        SettingsKeys(config.access.api_keys),
        Quota(config.access.max_followers_per_key, TooManyFollowersOfKey),
        is_open=config.is_open,
        until_key=asked_auth(config.access.auth) == "auto",
        make_key=partial(_made_key, config) if asks_store else None,
        people=ProxiedPeople(config.access) if config.access.person_header else None,
    )
    return Server(
        config=config,
        store=store,
        specs=specs,
        commands=commands,
        forwarding=Forwarding(store, wake_seconds=wake_seconds),
        desk=Desk(store, targets_of(config.notify), open_sender(private=bool(config.notify.notify_private))),
        devices=_devices(config, store, guard),
        links=ApprovalLinks(config.redis.secret_keys, public_url=public_url, seconds=link_seconds),
        guard=guard,
        posture=_posture(config),
        console=console_files(),
        api=api,
        meter=app.meter,
        expiry=ExpiryDriver(store, commands),
        runners=Runners(config),
        silent_sockets=Quota(config.access.max_silent_sockets, TooManySilentSockets),
        bash_sockets=OpenSockets(),
    )


def _devices(config: Config, store: Store, guard: Guard) -> DeviceDesk:
    standing = DeviceStanding(store, SettingsKeys(config.access.api_keys), lambda: guard.auth != "keys")
    ringer = open_rings(store, config.notify, config.http.public_url)
    return DeviceDesk(store, standing, ringer, private=bool(config.notify.push_private))


def _of_libraries(config: Config) -> dict[str, Any]:
    """Return the options that Flask and flask-smorest read by name."""
    return dict(
        API_TITLE=API_TITLE,
        API_VERSION=API_VERSION,
        OPENAPI_VERSION="3.1.0",
        OPENAPI_URL_PREFIX="/",
        OPENAPI_JSON_PATH="openapi.json",
        MAX_CONTENT_LENGTH=config.http.max_body_bytes,
    )


def _posture(config: Config) -> Posture:
    sandboxes_see = authority(urlsplit(config.http.webhook_base).netloc)
    return Posture(
        is_open=config.is_open,
        allowed_hosts=tuple(map(host_pattern, config.http.allowed_hosts)),
        allowed_origins=frozenset(filter(None, map(origin, config.http.allowed_origins))),
        webhook_host=sandboxes_see.host if sandboxes_see else "",
    )


def _ensure_data_version() -> None:
    """Check the data version before the first request that reads data: the store may be unavailable at the start.

    If it still is, the request fails where it uses the store, after bad input is refused.
    """
    version = current_store.data_version
    if not version.is_current and request.blueprint in _READ_DATA:
        with suppress(*UNAVAILABLE):
            version.ensure()


def _to_console() -> Response | None:
    """Redirect to the console, which needs no key: browsers from `/`, all clients from its path without a slash.

    The page's relative URLs need the slash. Register it before the guard, which would ask for a key.
    """
    is_led = request.path == "/console" or (request.path == "/" and _is_browser())
    if not is_led or request.method not in ("GET", "HEAD"):
        return None
    # Relative, because a proxy with a path prefix may not report it. A reported prefix may lack its slash.
    place = f"{request.root_path}/console/" if request.root_path else "console/"
    return admit() or Response(status=302, headers={"Location": place, "Vary": "Accept"})


def _is_browser() -> bool:
    """Return whether a request prefers a page. A program without an Accept header does not."""
    return request.accept_mimetypes.best_match(["application/json", "text/html"]) == "text/html"


def _without_slashes(response: Response) -> Response:
    """Redirect with 307 to the path without its trailing slashes, if only that path is served.

    The method and the body stay. Register it after the guard, so that a refused request is not redirected. Only the id
    of an event may end in a slash, and existing ones are served. Another path may look like such an id, and then its
    query is refused. Source: docs/wire.md, 2.
    """
    if response.status_code not in (404, 405, 422):
        return response
    path = request.path.rstrip("/")
    if path in ("", request.path) or not _is_served(path):
        return response
    # One slash at the beginning, because two would begin a host name.
    query = f"?{request.query_string.decode('latin-1')}" if request.query_string else ""
    return Response(status=307, headers={"Location": f"{request.root_path}/{quote(path.lstrip('/'))}{query}"})


def _is_served(path: str) -> bool:
    """Return whether a rule serves a path with the method of the current request."""
    adapter = current_app.create_url_adapter(request)
    try:
        return adapter is not None and bool(adapter.match(path, method=request.method))
    except InvalidInput:  # a rule serves it, and refuses its id
        return True
    except HTTPException:
        return False

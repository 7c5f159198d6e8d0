"""Our flask-smorest: reads bodies, names operations, and documents errors and headers."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, wraps
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar
from urllib.parse import parse_qsl

from apispec import APISpec, BasePlugin
from flask import Flask, Request, Response, current_app, request
from flask_smorest import Api as SmorestApi
from flask_smorest import Blueprint as SmorestBlueprint
from flask_smorest.utils import prepare_response
from marshmallow import EXCLUDE, Schema, ValidationError
from webargs import core
from webargs.flaskparser import FlaskParser
from werkzeug.datastructures import ImmutableMultiDict, MultiDict
from werkzeug.exceptions import UnprocessableEntity, UnsupportedMediaType
from werkzeug.routing import BaseConverter

from core.access import Scope
from core.cuts import beginning
from core.wire import as_unicode, lone_surrogate
from schemas.approvals import RuleMembers
from schemas.client_settings import PROFILE_NAME, SECRET_NAME
from schemas.errors import Error, HTTPValidationError
from schemas.examples import add_examples
from schemas.fields import BaseSchema, FieldFault, canonical_id, read_said, read_told
from schemas.openai import OpenAIError
from store.conversations.lists import ConversationForm

View = TypeVar("View", bound=Callable[..., Any])

#: How a client sends a key, for the OpenAPI document.
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key, or the hook key of a sandbox."},
    "key": {"type": "apiKey", "in": "header", "name": "X-Session-API-Key", "description": "A key."},
}
_KEYS: list[dict[str, list[str]]] = [{"bearer": []}, {"key": []}]

#: Maximum number of unknown query names that a refusal lists, and of characters of each.
_MOST_NAMED, _LONGEST_NAME = 10, 100


#: Shared by all operations: an instance for each took a quarter of a process's start time.
_ERROR = Error()

#: The stored OpenAPI document, which is served as it is: it depends on no setting, and building it takes half a second.
OPENAPI = Path(__file__).parent.parent / "docs/openapi.json"

API_TITLE = "Agent Server"

_REQUEST_ID = {
    "description": "Id of the request: its `X-Request-Id`, or an id made by the server. Its log lines contain it.",
    "schema": {"type": "string"},
}
_IDEMPOTENCY_KEY = {
    "required": False,
    "description": "Unique key of a request, chosen by the client. For 24 hours a repeat with this key "
    "has no further effect and gets the first response. Source: docs/wire.md.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
}
_REPLAYED = {"description": "`true`: the response to an earlier request with this key.", "schema": {"type": "string"}}
_RETRY_AFTER = {"description": "Seconds after which the client may try again.", "schema": {"type": "integer"}}

#: Headers that the document describes once, as components.
_HEADERS = {"X-Request-Id": _REQUEST_ID, "Idempotency-Replayed": _REPLAYED, "Retry-After": _RETRY_AFTER}

#: Statuses of responses that are kept for repeated requests.
_REPLAYED_STATUSES = ("200", "201", "404", "409", "410")

#: RFC 9110 names of statuses that Python before 3.13 names differently, so that every Python makes one document.
REASONS = {413: "Content Too Large", 414: "URI Too Long", 416: "Range Not Satisfiable", 422: "Unprocessable Content"}

#: Internal marker of an operation that takes no Idempotency-Key (`blueprints/once.py`). Not in the document.
_REFUSES_KEY = "refuses_key"

#: The component that describes every 422.
UNPROCESSABLE = "UNPROCESSABLE_CONTENT"

#: Path parameters with a restricted form: beginning of the path, name, additions to the schema.
_IN_PATHS = (
    ("/api/settings/secrets/", "name", {"pattern": SECRET_NAME}),
    ("/api/profiles/", "name", {"pattern": PROFILE_NAME}),
    ("/api/agent-profiles/", "name", {"pattern": PROFILE_NAME}),
    ("/api/v1/app-conversations/", "start_task_id", {"format": "uuid"}),
)

#: Tag of operations without a rate limit.
_UNLIMITED = "Server Details"


class Needs(NamedTuple):
    """The callers of an operation: their scope and role."""

    #: Required scope of the key. `open`: no key needed; `hook`: only a sandbox; `link`: the token in the path is the
    #: key.
    scope: Scope | Literal["open", "hook", "link"]
    hook: bool = False  #: a sandbox may call it with its hook key
    ticket: bool = False  #: a ticket may replace the key
    session: bool = False  #: the session key of a sandbox gives access, for that sandbox
    cookie: bool = False  #: a browser's cookie for workspace files may replace the key


def needs(
    scope: Scope | Literal["open", "hook", "link"],
    *,
    hook: bool = False,
    ticket: bool = False,
    session: bool = False,
    cookie: bool = False,
) -> Callable[[View], View]:
    """Declare who may call an operation (see `Needs`), next to the route. `blueprints/guard.py` enforces it."""

    def declare(view: View) -> View:
        view.needs = Needs(scope, hook or scope == "hook", ticket, session, cookie)  # type: ignore[attr-defined]
        return view

    return declare


class Replay(NamedTuple):
    """How to answer a repeated request with an Idempotency-Key; see `Blueprint.replay`."""

    remade: bool = False
    has_key: bool = False


class InvalidInput(UnprocessableEntity):
    """An invalid part of a request. place: `path`, `query`, `header` or `body`. messages: marshmallow's."""

    def __init__(self, place: str, messages: Any) -> None:
        super().__init__()
        self.place = place
        self.messages = messages


class ConversationIdConverter(BaseConverter):
    """A conversation's id in a path: a UUID, dashed or as 32 digits. Anything else is 422, not 404."""

    part_isolating = True
    regex = "[^/]+"
    name = "conversation_id"

    def to_python(self, value: str) -> str:
        try:
            return canonical_id(value)
        except ValidationError as fault:
            raise InvalidInput("path", {self.name: fault.messages}) from None


class EventIdConverter(BaseConverter):
    """An event's id in a path: any text, including slashes."""

    part_isolating = False
    regex = ".+"
    name = "event_id"


class StrictParser(FlaskParser):
    """Reads JSON bodies strictly, and raises InvalidInput for every invalid request."""

    def parse(self, argmap: Any, req: Request | None = None, *, location: str | None = None, **options: Any) -> Any:
        """Load a part of a request with a schema. A query bypasses webargs, which is slower."""
        if location != "query":
            return super().parse(argmap, req, location=location, **options)
        try:
            return argmap.load(self.load_querystring(req or request, argmap), unknown=EXCLUDE)
        except ValidationError as error:
            raise InvalidInput("query", error.normalized_messages()) from None

    def load_querystring(self, req: Request, schema: Schema) -> Any:  # noqa: ARG002
        """Return the query by name, with the first value of a repeated name. No schema has a list in its query."""
        return req.args.to_dict() if req.query_string else {}

    def load_json(self, req: Request, schema: Schema) -> Any:
        raw = json_body(req)
        if not raw and not (isinstance(schema, BaseSchema) and schema.body_optional):
            raise InvalidInput("body", ["Missing data for required field."])
        if not raw:
            return core.missing
        return read_told(raw) if isinstance(schema, BaseSchema) and schema.of_agents else read_body(raw)

    def handle_error(self, error: ValidationError, *_: Any, **__: Any) -> NoReturn:
        [(location, messages)] = error.normalized_messages().items()
        raise InvalidInput("body" if location == "json" else location, messages)


def refuse_unknown(known: Collection[str]) -> None:
    """Raise InvalidInput for unknown members of the query: a misspelt filter would silently be ignored."""
    unknown = sorted(name for name in request.args if name not in known)
    if unknown:
        allowed = f"the query may have {', '.join(sorted(known))}" if known else "this operation has no query"
        more = f"; and {len(unknown) - _MOST_NAMED} more are unknown" if len(unknown) > _MOST_NAMED else ""
        fault = FieldFault(f"Unknown member of the query: {allowed}{more}", "extra_forbidden")
        raise InvalidInput("query", {beginning(name, _LONGEST_NAME): [fault] for name in unknown[:_MOST_NAMED]})


def _query_of(view: Any) -> frozenset[str]:
    """Return the query names that a view documents."""
    names = set[str]()
    for parameter in view._apidoc.get("arguments", {}).get("parameters", ()):
        if parameter["in"] == "query":
            schema = parameter["schema"]
            fields = schema.fields.items() if isinstance(schema, Schema) else ()
            names |= {field.data_key or name for name, field in fields} or {parameter["name"]}
    return frozenset(names)


def _strict(view: View, known: frozenset[str]) -> View:
    """Wrap a view so that it refuses unknown query names."""

    @wraps(view)
    def checked(*args: Any, **values: Any) -> Any:
        if request.query_string:
            refuse_unknown(known)
        return view(*args, **values)

    return checked  # type: ignore[return-value]


@contextmanager
def refused(place: str, member: str = "") -> Iterator[None]:
    """Turn a `ValidationError` raised in the block into an InvalidInput at `place`.

    member: the member of the request; empty: the error names its members.
    """
    try:
        yield
    except ValidationError as fault:
        raise InvalidInput(place, {member: fault.messages} if member else fault.normalized_messages()) from None


def read_body(raw: bytes) -> Any:
    """Parse a client's JSON body; see `read_said`. Raises InvalidJson, InvalidInput."""
    with refused("body"):
        return read_said(raw)


def repeated(name: str, read: Callable[[list[str]], list[str]]) -> list[str]:
    """Return the values of a repeatable query parameter, as `read` converts them. Raises InvalidInput."""
    with refused("query", name):
        return read(request.args.getlist(name))


def repeated_parameter(name: str, what: str, **item: str) -> dict[str, Any]:
    """Describe a repeatable query parameter for the OpenAPI document."""
    return {
        "in": "query",
        "name": name,
        "required": True,
        "schema": {"type": "array", "items": {"type": "string", **item}, "minItems": 1, "maxItems": 100},
        "description": f"Ids of {what}; repeat the parameter for each.",
    }


def array_with_holes(schema: str) -> dict[str, Any]:
    """Describe the response of a batch get, for the OpenAPI document: null for an unknown id."""
    return {"type": "array", "items": {"anyOf": [{"$ref": f"#/components/schemas/{schema}"}, {"type": "null"}]}}


def json_body(req: Request = request) -> bytes:
    """Return the body, empty if there is none. Raises UnsupportedMediaType (415) unless its Content-Type is JSON."""
    raw = req.get_data(cache=True)
    if raw and not core.is_json(req.mimetype):
        raise UnsupportedMediaType(f"Content-Type must be application/json, not {req.mimetype or 'absent'}")
    return raw


def begun(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Read the first chunk of a body at once, so that a failure is reported before the response begins."""
    return chain([next(pieces)], pieces)


def json_response(body: bytes) -> Response:
    """Make a response of serialised JSON."""
    return Response(body, mimetype="application/json")


def json_page(items: Sequence[bytes], following: str | None, **members: Any) -> bytes:
    """Serialise a page of serialised items. members: further members of the page."""
    rest = json.dumps({"next_page_id": following, **members}, separators=(",", ":"))
    return b'{"items":[%b],%b' % (b",".join(items), rest[1:].encode())


def form_of(name: str, dump: Callable[[Any], Any]) -> ConversationForm:
    """Return a form that dumps a state with a schema, in the JSON style of all responses."""
    return ConversationForm(name, lambda state: current_app.json.dumps(dump(state), separators=(",", ":")).encode())


class UnicodeRequest(Request):
    """A request that refuses a query with invalid Unicode, as bodies are refused."""

    @cached_property
    def args(self) -> MultiDict[str, str]:
        """Return the query by name. Raises InvalidInput for a value that is not UTF-8, such as a lone surrogate."""
        raw = self.query_string.decode(errors="surrogateescape")
        pairs = parse_qsl(raw, keep_blank_values=True, errors="surrogateescape")
        for pair in pairs:
            if lone_surrogate([*pair]):
                fault = FieldFault("String should be valid Unicode: its bytes are not UTF-8", "string_unicode")
                raise InvalidInput("query", {as_unicode(pair[0]): [fault]})
        return ImmutableMultiDict(pairs)


class Blueprint(SmorestBlueprint):
    """Names operations as FastAPI does, by function, path and method, and documents who may call them.

    Source: the interface description.
    """

    ARGUMENTS_PARSER = StrictParser()

    def add_url_rule(self, rule: str, endpoint: Any = None, view_func: Any = None, *args: Any, **options: Any) -> None:
        [method] = options.get("methods", ["GET"])
        path = re.sub(r"<(?:[^:<>]+:)?([^<>]+)>", r"{\1}", f"{self.url_prefix or ''}{rule}")
        operation = re.sub(r"\W", "_", f"{view_func.__name__}{path}") + f"_{method.lower()}"
        needed = declared(view_func, operation)
        _join_parameters(view_func)
        _document_failures(view_func, path)
        # Mail programs add query members to links, and an agent server reads the query of a forwarded call.
        is_checked = needed.scope != "link" and not getattr(view_func, "is_forwarded", False)
        if is_checked and not getattr(view_func, "ignores_query", False):
            view_func = _strict(view_func, _query_of(view_func) | ({"ticket"} if needed.ticket else set()))
        security = [] if needed.scope == "open" else [{"bearer": []}] if needed.scope == "hook" else _KEYS
        is_refused = getattr(view_func, "refuses_key", False) or getattr(view_func, "is_forwarded", False)
        of_once = {_REFUSES_KEY: True} if is_refused else {}
        view_func = self.doc(operationId=operation, security=security, **of_once)(view_func)
        if needed.scope != "open":
            _document(view_func, 401, *(() if needed.scope == "hook" else (403,)))
        super().add_url_rule(rule, endpoint, view_func, *args, **options)

    @staticmethod
    def ignores_query(view: View) -> View:
        """Declare that an operation accepts and ignores any query, next to the route.

        For probes and scrapers: balancers, caches and Prometheus (`params`) add their own members.
        """
        view.ignores_query = True  # type: ignore[attr-defined]
        return view

    @staticmethod
    def misses_nothing(view: View) -> View:
        """Declare that an operation creates what its path names, and so never responds with 404.

        Goes next to the route.
        """
        view.misses_nothing = True  # type: ignore[attr-defined]
        return view

    @staticmethod
    def refuses_key(view: View) -> View:
        """Declare that an operation takes no Idempotency-Key (`blueprints/once.py`), next to the route."""
        view.refuses_key = True  # type: ignore[attr-defined]
        return view

    def replay(self, *, remade: bool = False, has_key: bool = False) -> Callable[[View], View]:
        """Declare how to answer a repeated request whose first response was not kept, next to the route.

        A response is not kept if it is too long. With `has_key` it contains a key or is a stream, and is never kept.
        remade: run the view again, which then reads what it created. Otherwise the repeat gets 409.
        """

        def declare(view: View) -> View:
            view.replay = Replay(remade, has_key)  # type: ignore[attr-defined]
            return view

        return declare

    def starts(self, view: View) -> View:
        """Declare that an operation starts sandboxes and counts for RATE_LIMIT_STARTS, next to the route."""
        return self.starts_if(lambda: True)(view)

    def starts_if(self, is_start: Callable[[], bool]) -> Callable[[View], View]:
        """Declare that requests for which `is_start` returns true count for RATE_LIMIT_STARTS, next to the route."""

        def declare(view: View) -> View:
            view.is_start = is_start  # type: ignore[attr-defined]
            return view

        return declare

    def fails(self, *statuses: int) -> Callable[[View], View]:
        """Document the errors of an operation that do not follow from its path and body, next to the route.

        Documented automatically: 404 for a name in the path, 413 and 415 for a body, 422 for the path of a
        conversation, and 503 for an operation that uses the store.
        """

        def declare(view: View) -> View:
            view.failures = statuses  # type: ignore[attr-defined]
            return view

        return declare


def declared(view: Any, name: str) -> Needs:
    """Return who may call a view. Raises LookupError for a view without @needs, so that the server does not start."""
    needed: Needs | None = getattr(view, "needs", None)
    if needed is None:
        raise LookupError(f"The operation {name} does not declare who may call it: it lacks @needs(…)")
    return needed


def _join_parameters(view: Any) -> None:
    """Keep the parameters of `arguments` beside those of `doc`, which would otherwise replace them."""
    said = view._apidoc.get("manual_doc", {}).pop("parameters", [])
    if said:
        documented = view._apidoc.setdefault("arguments", {}).setdefault("parameters", [])
        documented[:] = [*said, *documented]


def _document_failures(view: Any, path: str) -> None:
    """Document the errors of a view, from its declaration, its path and its body."""
    if (failures := getattr(view, "failures", None)) is None:
        return
    statuses = {*failures}
    if "{" in path and not getattr(view, "misses_nothing", False):
        statuses.add(404)
    if any(one["in"] == "json" for one in view._apidoc.get("arguments", {}).get("parameters", ())):
        statuses |= {413, 415}
    _document(view, *sorted(statuses), 503)
    view._apidoc["response"]["responses"].setdefault(422, []).append(HTTPStatus.UNPROCESSABLE_ENTITY.name)


def _document(view: Any, *statuses: int) -> None:
    responses = view._apidoc.setdefault("response", {}).setdefault("responses", {})
    for status in statuses:
        known = responses.setdefault(status, [])
        known[:] = known or [{"schema": _ERROR, "description": HTTPStatus(status).phrase, "content_type": None}]


_kept = cache(OPENAPI.read_bytes)


class Api(SmorestApi):
    """Makes the OpenAPI document. 422 has its own schema; `blueprints/errors.py` formats the errors.

    `make docs` writes the document to a file, and every worker serves that file.
    """

    ERROR_SCHEMA = HTTPValidationError
    DEFAULT_ERROR_RESPONSE_NAME = None

    def __init__(self, app: Flask) -> None:
        self._undescribed: list[Blueprint] = []
        for converter in (ConversationIdConverter, EventIdConverter):
            app.url_map.converters[converter.name] = converter
        super().__init__(app, spec_kwargs={"extra_plugins": [CommonParts()]})
        self.register_converter(ConversationIdConverter, lambda _: {"type": "string", "format": "uuid"})
        self.register_converter(EventIdConverter, lambda _: {"type": "string"})
        self.ma_plugin.converter.add_attribute_function(_of_members)
        self.spec.components.schema("RuleMembers", schema=RuleMembers)
        for name, scheme in _SCHEMES.items():
            self.spec.components.security_scheme(name, scheme)

    def register_blueprint(self, blueprint: Blueprint) -> None:
        """Register the operations of a blueprint; `describe` documents them."""
        self._app.extensions["flask-smorest"]["blp_name_to_api"][blueprint.name] = self
        self._app.register_blueprint(blueprint)
        self._undescribed.append(blueprint)

    def describe(self) -> dict[str, Any]:
        """Build the document of the app. Call it once for each app, because it describes each blueprint once."""
        for blueprint in self._undescribed:
            blueprint.register_views_in_doc(self, self._app, self.spec, name=blueprint.name, parameters=None)
            self.spec.tag({"name": blueprint.name, "description": blueprint.description})
        described: dict[str, Any] = self.spec.to_dict()
        add_examples(described)
        return described

    def _openapi_json(self) -> Response:
        """Serve the document, without a key."""
        written = _kept()
        if root := request.root_path:  # behind a proxy with a path prefix, clients must use the prefix
            written = b'{"servers":[{"url":%b}],%b' % (json.dumps(root).encode(), written.removeprefix(b"{"))
        return Response(written, mimetype="application/json")

    def _register_error_handlers(self) -> None:
        """Do nothing: `blueprints/errors.py` formats all errors, also for paths outside the Api."""

    def _register_responses(self) -> None:
        """Register the shared 422 response under a name that is equal on every Python."""
        response = {"description": REASONS[422], "schema": self.ERROR_SCHEMA}
        prepare_response(response, self.spec, self.DEFAULT_RESPONSE_CONTENT_TYPE)
        self.spec.components.response(UNPROCESSABLE, response, lazy=True)

    def _register_pagination_header(self) -> None:
        """Do nothing: pages have `next_page_id` in the body."""


def _of_members(_: Any, field: Any, **__: Any) -> dict[str, Any]:
    """Return `propertyNames` and `contains` of a field, which apispec does not know."""
    return {name: field.metadata[name] for name in ("propertyNames", "contains") if name in field.metadata}


class CommonParts(BasePlugin):
    """Adds shared headers, parameters and errors to each operation after it has described itself."""

    def init_spec(self, spec: APISpec) -> None:
        for name, header in _HEADERS.items():
            spec.components.header(name, header)
        spec.components.parameter("Idempotency-Key", "header", _IDEMPOTENCY_KEY)
        self._spec = spec

    def schema_helper(self, name: str, definition: Any, **options: Any) -> dict[str, Any]:  # noqa: ARG002
        """Hook of apispec for a schema that becomes a component."""
        return dict(getattr(options.get("schema"), "as_a_whole", {}))

    def response_helper(self, response: Any, **_: Any) -> dict[str, Any]:  # noqa: ARG002
        """Hook of apispec for a shared response."""
        return {"headers": {"X-Request-Id": _reference("X-Request-Id")}}

    def path_helper(
        self,
        path: str | None = None,
        operations: Any = None,  # noqa: ARG002
        parameters: Any = None,
        **_: Any,
    ) -> str | None:
        """Hook of apispec for each path, after its rule has described the parameters.

        None leaves the path unchanged.
        """
        for parameter in parameters or ():
            for start, name, schema in _IN_PATHS:
                if parameter["name"] == name and (path or "").startswith(start):
                    parameter["schema"] |= schema
        return None

    def operation_helper(self, path: str | None = None, operations: Any = None, **_: Any) -> None:
        """Hook of apispec for the operations of a path."""
        for method, operation in (operations or {}).items():
            responses = operation.setdefault("responses", {})
            if _UNLIMITED not in operation.get("tags", ()):
                _add_error(responses, HTTPStatus.TOO_MANY_REQUESTS)
                responses["429"]["headers"] = {"Retry-After": _reference("Retry-After")}
            refuses_key = operation.pop(_REFUSES_KEY, False)
            if method == "post":
                if not refuses_key:
                    operation["parameters"] = [*operation.get("parameters", ()), "Idempotency-Key"]
                for status in (HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT):
                    _add_error(responses, status)
            for status, response in responses.items():
                if response == HTTPStatus.UNPROCESSABLE_ENTITY.name:
                    responses[status] = UNPROCESSABLE
                elif isinstance(response, dict):
                    if response["description"] == HTTPStatus(int(status)).phrase:
                        response["description"] = REASONS.get(int(status), response["description"])
                    headers = response.setdefault("headers", {})
                    headers["X-Request-Id"] = _reference("X-Request-Id")
                    if method == "post" and not refuses_key and str(status) in _REPLAYED_STATUSES:
                        headers["Idempotency-Replayed"] = _reference("Idempotency-Replayed")
            if path and path.startswith("/v1/"):
                self._shape_as_openai(responses)

    def _shape_as_openai(self, responses: dict[Any, Any]) -> None:
        """Give every error below /v1/ OpenAI's shape, also the shared 422."""
        if "OpenAIError" not in self._spec.components.schemas:
            self._spec.components.schema("OpenAIError", schema=OpenAIError)
        content = {"application/json": {"schema": {"$ref": "#/components/schemas/OpenAIError"}}}
        for status, response in responses.items():
            if int(status) >= 400:
                told: dict[str, Any] = response if isinstance(response, dict) else {"description": REASONS[int(status)]}
                headers = {**told.get("headers", {}), "X-Request-Id": _reference("X-Request-Id")}
                responses[status] = {**told, "content": content, "headers": headers}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/headers/{name}"}


def _add_error(responses: dict[str, Any], status: HTTPStatus) -> None:
    schema = {"$ref": "#/components/schemas/Error"}
    described = {"description": status.phrase, "content": {"application/json": {"schema": schema}}}
    responses.setdefault(str(status.value), described)

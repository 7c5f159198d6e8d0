"""The OpenAPI document: true to the app, to the interface description, and usable without a network."""

import json
import re

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from app import create_app
from blueprints.api import OPENAPI
from docs import make
from schemas.examples import EXAMPLES
from settings.config import Config


@pytest.fixture(scope="module")
def client():
    return create_app(Config.of(redis_url="redis://127.0.0.1:1")).test_client()


@pytest.fixture(scope="module")
def document(client):
    return client.get("/openapi.json").get_json()


def operations(document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method != "parameters":
                yield path, method, operation


def test_the_stored_document_is_current():
    assert OPENAPI.read_text() == make.openapi(), "run `make docs`"


def references(node):
    """Every `$ref` below a node."""
    if isinstance(node, dict):
        yield from (value for name, value in node.items() if name == "$ref")
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else []:
        yield from references(child)


def test_the_document_says_what_the_api_is_and_how_to_begin(document):
    description = document["info"]["description"]
    for word in ("stream-start", "Authorization: Bearer", "next_page_id", "after_seq", "detail", "Idempotency-Key"):
        assert word in description
    paths = re.findall(r"(?:GET|POST) (/api[^`]*)", description)
    assert len(paths) > 3
    assert [path for path in paths if path not in document["paths"]] == []


@pytest.mark.parametrize(("method", "path"), EXAMPLES)
def test_each_example_fits_the_schema_of_its_operation(document, method, path):
    operation = document["paths"][path][method]
    contents = [operation["responses"][EXAMPLES[method, path].status]["content"]["application/json"]]
    if EXAMPLES[method, path].request is not None:
        contents.append(operation["requestBody"]["content"]["application/json"])
    for content in contents:
        whole = {**content["schema"], "components": document["components"]}
        Draft202012Validator(whole, format_checker=FormatChecker()).validate(content["example"])
        assert unknown_members(document, content["schema"], content["example"]) == []


def unknown_members(document, schema, value):
    """The members of an example that its schema does not have. An event has members that its kind alone knows."""
    while "$ref" in schema:
        if schema["$ref"].endswith("/Event"):
            return []
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if isinstance(value, list):
        return [name for one in value for name in unknown_members(document, schema.get("items", {}), one)]
    if not isinstance(value, dict) or "properties" not in schema:
        return []
    unknown = [name for name in value if name not in schema["properties"] and not schema.get("additionalProperties")]
    for name, one in value.items():
        unknown += unknown_members(document, schema["properties"].get(name, {}), one)
    return unknown


def test_every_reference_resolves(document):
    found = set(references(document))

    assert found
    for reference in found:
        node = document
        for step in reference.removeprefix("#/").split("/"):
            assert step in node, reference
            node = node[step]


def test_the_document_has_its_versions(document):
    assert document["openapi"].startswith("3.1")
    assert document["info"]["version"] == "0.1.0"


def test_count_is_described_as_in_the_interface(document):
    path = document["paths"]["/api/conversations/{conversation_id}/events/count"]
    count = path["get"]

    assert count["operationId"] == "count_conversation_events_api_conversations__conversation_id__events_count_get"
    assert count["tags"] == ["Events"]
    assert count["summary"] == "Count local events matching the given filters."
    assert path["parameters"] == [
        {"in": "path", "name": "conversation_id", "required": True, "schema": {"type": "string", "format": "uuid"}}
    ]
    queries = {query["name"]: query for query in count["parameters"]}
    assert list(queries) == ["kind", "source", "body", "timestamp__gte", "timestamp__lt"]
    assert not any(query["required"] for query in queries.values())
    formats = {name: query["schema"].get("format") for name, query in queries.items()}
    assert formats == {**dict.fromkeys(queries), "timestamp__gte": "date-time", "timestamp__lt": "date-time"}
    assert count["responses"]["200"]["content"]["application/json"]["schema"]["type"] == "integer"
    assert {"404", "422"} <= set(count["responses"])


def test_respond_to_confirmation_is_described_as_in_the_interface(document):
    operation = document["paths"]["/api/conversations/{conversation_id}/events/respond_to_confirmation"]["post"]

    assert operation["tags"] == ["Events"]
    assert operation["requestBody"]["required"] is True
    body, result = (
        part["content"]["application/json"]["schema"]
        for part in (operation["requestBody"], operation["responses"]["200"])
    )
    assert body == {"$ref": "#/components/schemas/ConfirmationResponse"}
    assert result == {"$ref": "#/components/schemas/ConfirmationResult"}


def test_schemas_have_the_names_fields_and_defaults_of_the_interface(document):
    schemas = document["components"]["schemas"]

    response = schemas["ConfirmationResponse"]
    assert response["required"] == ["accept"]
    assert response["properties"]["accept"]["type"] == "boolean"
    reason = response["properties"]["reason"]
    assert (reason["type"], reason["default"]) == ("string", "User rejected the action.")
    success = schemas["ConfirmationResult"]["properties"]["success"]
    assert (success["type"], success["default"]) == ("boolean", True)
    assert "required" not in schemas["ConfirmationResult"]
    error = schemas["ValidationError"]
    assert sorted(error["required"]) == ["loc", "msg", "type"]
    assert error["properties"]["loc"]["items"] == {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    detail = schemas["HTTPValidationError"]["properties"]["detail"]
    assert detail == {"type": "array", "items": {"$ref": "#/components/schemas/ValidationError"}}


def test_every_operation_has_an_id_of_its_own_a_summary_and_a_tag(document):
    ids = [operation["operationId"] for _, _, operation in operations(document)]

    assert len(ids) == len(set(ids))
    for path, method, operation in operations(document):
        assert operation["operationId"].endswith(re.sub(r"\W", "_", path) + f"_{method}")
        assert operation["summary"]
        assert len(operation["tags"]) == 1


def test_every_error_has_one_of_the_two_shapes_or_openais_where_its_clients_read_it(document):
    for path, _, operation in operations(document):
        is_openais = path.startswith("/v1/")
        shapes = dict.fromkeys(operation["responses"], "OpenAIError") if is_openais else {"422": "HTTPValidationError"}
        for status, response in operation["responses"].items():
            if "$ref" in response:
                response = document["components"]["responses"][response["$ref"].rpartition("/")[2]]
            if status >= "400":
                schema = response["content"]["application/json"]["schema"]
                assert schema == {"$ref": f"#/components/schemas/{shapes.get(status, 'Error')}"}, path


def test_the_docs_page_loads_nothing_from_elsewhere(client):
    with client.get("/docs") as shown:
        page = shown.get_data(as_text=True)
    loaded = re.findall(r"""<(?:script|link|img)[^>]+(?:src|href)=["']([^"']+)""", page)

    assert len(loaded) == 3
    with client.get("/docs/assets/page/docs.js") as loading:
        script = loading.get_data(as_text=True)
    for address in loaded:
        assert address.startswith("docs/assets/")
        with client.get(f"/{address}") as asset:
            assert asset.status_code == 200
    assert json.dumps("openapi.json") in script


def resolved(document, node):
    while "$ref" in node:
        target = document
        for step in node["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        node = target
    return node


def test_every_post_that_takes_an_idempotency_key_names_it_and_every_response_the_request_id(document):
    for path, method, operation in operations(document):
        names = [resolved(document, one)["name"] for one in operation.get("parameters", ())]
        is_refused = operation["tags"] == ["Forwarded"] or path.endswith("/import")
        assert ("Idempotency-Key" in names) == (method == "post" and not is_refused), path
        for status, response in operation["responses"].items():
            assert "X-Request-Id" in resolved(document, response)["headers"], f"{method} {path} {status}"


def test_every_operation_that_a_limit_can_refuse_says_so(document):
    for path, _, operation in operations(document):
        limited = operation["tags"] != ["Server Details"]
        assert ("429" in operation["responses"]) == limited, path
        assert not limited or "Retry-After" in operation["responses"]["429"]["headers"]


def test_no_schema_names_a_type_twice(document):
    def types(node):
        if isinstance(node, dict) and isinstance(node.get("type"), list):
            yield node["type"]
        for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else []:
            yield from types(child)

    assert [each for each in types(document) if len(set(each)) != len(each)] == []

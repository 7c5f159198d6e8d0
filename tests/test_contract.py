"""The running server against its own OpenAPI document: schemathesis makes the requests, from good to absurd."""

import json
from uuid import uuid4

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.chance import often
from tests.conftest import recorded
from tests.servers import PROJECT, TIMEOUT, supervised_server

pytestmark = pytest.mark.process("a few requests to each operation of a running server")

CONVERSATION = str(uuid4())

# Left out: that every request which fits its schema is accepted. A cursor must be one that the server gave out,
# and no schema can express that.
CHECKS = [
    checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def base_url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("contract")
    with supervised_server(folder, MAX_SANDBOXES="2") as (client, _):
        client.post(f"/api/v1/webhooks/events/{CONVERSATION}", json=recorded("pending"))
        yield str(client.base_url)


# Too many ids make too long a line, which gunicorn refuses before the app can.
config = SchemathesisConfig.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": ["4xx"]}}})


@schemathesis.serializer("application/zstd", "application/x-tar", "application/x-ndjson")
def serialized(_, value):
    """A body that is an archive or an export as far as its type says."""
    return value if isinstance(value, bytes) else json.dumps(value, default=str).encode()


DOCUMENT = json.loads((PROJECT / "docs" / "openapi.json").read_text())

# A stream never ends; tests/blueprints/streams read them.
OPERATIONS = [
    f"{method.upper()} {path}"
    for path, methods in DOCUMENT["paths"].items()
    if not path.endswith("/stream")
    for method in methods
    if method in ("get", "post", "put", "patch", "delete")
]


@pytest.fixture(scope="module")
def operations():
    """The operations of the document by their labels."""
    found = [one.ok() for one in schemathesis.openapi.from_dict(DOCUMENT, config=config).get_all_operations()]
    return {operation.label: operation for operation in found}


@pytest.mark.parametrize("label", OPERATIONS)
def test_every_response_of_an_operation_is_declared_in_the_document(operations, label, base_url):
    @given(operations[label].as_strategy())
    @settings(
        max_examples=often(4, 60),
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def conforms(case):
        case.call_and_validate(base_url=base_url, checks=[*CHECKS, negative_data_rejection], timeout=TIMEOUT)
        if "conversation_id" in (case.path_parameters or {}) and case.method != "DELETE":
            # Again with a conversation that exists; a path that was meant to be refused no longer is.
            case.path_parameters["conversation_id"] = CONVERSATION
            case.call_and_validate(base_url=base_url, checks=CHECKS, timeout=TIMEOUT)

    conforms()

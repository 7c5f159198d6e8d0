"""The OpenAPI document allows nothing that the server refuses: a few requests that fit a schema, the same in every run.

Left out is what no schema says: that a cursor is one that the server gave out, that one member goes with another, that
an `Idempotency-Key` is new. tests/test_contract.py sends what does not fit.
"""

import json

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from tests.servers import PROJECT

DOCUMENT = json.loads((PROJECT / "docs" / "openapi.json").read_text())

#: operations whose schemas say all that the server asks of a request
OPERATIONS = [
    "GET /api/conversations/{conversation_id}/events/count",
    "GET /api/conversations/{conversation_id}/events/histogram",
    "PATCH /api/conversations/{conversation_id}",
    "POST /api/conversations/{conversation_id}/goal",
    "POST /api/conversations/{conversation_id}/secrets",
    "DELETE /api/v1/app-conversations/start-tasks/{start_task_id}",
    "PATCH /api/v1/app-conversations/{conversation_id}",
    "POST /api/v1/conversations/{receiver_id}/pending-messages",
    "POST /api/v1/destinations/decisions",
    "POST /api/v1/destination-rules",
    "POST /api/v1/tickets",
    "PUT /api/settings/secrets",
    "DELETE /api/settings/secrets/{name}",
    "POST /api/profiles/{name}",
    "POST /api/profiles/{name}/rename",
    "DELETE /api/agent-profiles/{name}",
]


@pytest.fixture(scope="module")
def operations():
    """The operations of the document by their labels."""
    found = schemathesis.openapi.from_dict(DOCUMENT)
    return {one.ok().label: one.ok() for one in found.get_all_operations()}


@pytest.mark.parametrize("label", OPERATIONS)
def test_a_request_that_fits_the_document_is_not_refused_for_what_it_says(operations, client, label):
    refused = []

    @given(operations[label].as_strategy(generation_mode=GenerationMode.POSITIVE))
    @settings(
        max_examples=6,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def looks(case):
        headers = {name: value for name, value in (case.headers or {}).items() if name != "Idempotency-Key"}
        body = {} if isinstance(case.body, schemathesis.core.NotSet) else {"json": case.body}
        response = client.open(
            case.formatted_path, method=case.method, query_string=case.query or {}, headers=headers, **body
        )
        if response.status_code in (400, 405, 415, 422) or response.status_code >= 500:
            refused.append((response.status_code, response.get_json()))

    looks()
    assert refused == []

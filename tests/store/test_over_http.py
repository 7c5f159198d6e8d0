"""What clients are told of a store that other tests of this folder check: on one backend."""

import json

import pytest

from store.approvals.inbox import InboxFilter
from store.log.frames import PAGE_BYTES
from tests.conftest import action, as_events, message, status

ALWAYS = {"kind": "AlwaysConfirm"}


def test_the_state_of_a_conversation_shows_how_often_its_agent_resumed_unapproved(client, store, conversation):
    def post(*events):
        store.events.append(conversation, as_events(list(events)), sandbox_id="a-sandbox")

    store.conversations.create(conversation, sandbox_id="a-sandbox", app={}, confirmation_policy=ALWAYS)
    post(action(), status("waiting_for_confirmation"))
    url = f"/api/conversations/{conversation}"
    assert client.get(url).get_json()["unapproved_resumes"] == 0
    post(status("running"))
    assert client.get(url).get_json()["unapproved_resumes"] == 1


def test_an_action_that_a_stream_opens_is_what_the_list_shows(client, store, conversation):
    store.conversations.create(conversation, confirmation_policy=ALWAYS)
    store.events.append(conversation, as_events([action("ls", summary="Look")]))

    stream = store.streams.inbox.follow(None, InboxFilter(conversation_id=conversation))
    reset, snapshot, _ = stream.next(0)
    stream.close()

    assert reset.name == "reset"
    listed = client.get(f"/api/v1/pending-actions?conversation_id={conversation}").get_json()["items"]
    assert json.loads(snapshot.raw)["items"] == listed


@pytest.mark.parametrize("location", ["query", "body"])
def test_the_refusal_of_a_batch_that_is_too_long_names_the_location_and_the_bound(
    client, store, conversation, location
):
    log = [message("x" * 1_000_000) for _ in range(5)]
    for one in log:
        store.events.append(conversation, as_events([one]))
    url, ids = f"/api/conversations/{conversation}/events", [one["id"] for one in log]

    response = client.get(url, json=ids) if location == "body" else client.get(url, query_string={"event_ids": ids})

    assert response.status_code == 422
    [fault] = response.get_json()["detail"]
    assert fault["loc"] == (["body"] if location == "body" else ["query", "event_ids"])
    assert str(PAGE_BYTES) in fault["msg"]

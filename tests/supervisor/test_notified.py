"""Notifications by the whole server with its supervisor: from the event to the webhook, and back by its link."""

import pytest

from tests.conftest import action, event, status
from tests.notifications import receiver
from tests.servers import supervised_server, wait_until
from tests.v1.processes import supervisor_of

pytestmark = pytest.mark.process("starts whole servers with supervisors")

KEY = {"X-Session-API-Key": "an-admin-key-of-the-settings"}


@pytest.fixture
def hook():
    with receiver() as one:
        yield one


def settings(hook, **others) -> dict[str, str]:
    return {
        "NOTIFY_WEBHOOKS": hook.setting,
        "NOTIFY_PRIVATE": "1",
        "SESSION_API_KEY": KEY["X-Session-API-Key"],
        "LOG_LEVEL": "debug",
        **others,
    }


def post(client, path, body):
    response = client.post(path, json=body, headers=KEY)
    assert response.status_code < 300, response.text
    return response.json()


def waiting(client) -> tuple[str, dict]:
    """A conversation with an action that waits."""
    identity = post(client, "/api/conversations", {"title": "Tidy up"})["id"]
    path = f"/api/conversations/{identity}/confirmation_policy"
    post(client, path, {"policy": {"kind": "AlwaysConfirm"}})
    one = action(command="rm -rf build", summary="Cleaning up")
    post(client, f"/api/v1/webhooks/events/{identity}", [one])
    return identity, one


def test_an_action_that_waits_reaches_a_webhook_and_its_link_decides(tmp_path, hook):
    with supervised_server(tmp_path, **settings(hook, PUBLIC_URL="http://agents.example")) as (client, _):
        identity, one = waiting(client)
        wait_until(lambda: hook.taken, "the notification")
        data = hook.taken[0]["data"]
        assert hook.taken[0]["type"] == "action.pending"
        assert (data["conversation_id"], data["action_id"], data["title"]) == (identity, one["id"], "Tidy up")

        page = data["approval_link"].removeprefix("http://agents.example")
        assert client.get(page).status_code == 200
        assert client.post(page, data={"decision": "approve", "sure": "on"}).status_code == 200
        wait_until(lambda: len(hook.taken) == 2, "the notification of the decision")
        decided = hook.taken[1]
        assert (decided["type"], decided["data"]["decision"]) == ("action.decided", "approve")
        assert decided["data"]["actor"]["kind"] == "link"

        post(client, f"/api/v1/webhooks/events/{identity}", [status("finished")])
        wait_until(lambda: len(hook.taken) == 3, "the notification of the end")
        assert hook.taken[2]["type"] == "conversation.finished"

        def counts() -> tuple:
            [target] = client.get("/api/v1/notifications", headers=KEY).json()["items"]
            return target["sent"], target["queued"], target["last_failure"]

        wait_until(lambda: counts() == (3, 0, None), "the count of what was sent")

    log = (tmp_path / "log").read_text()
    assert "a-path-that-is-secret" not in log
    assert "whsec_" not in log


def test_a_killed_supervisor_delays_notifications_and_loses_none(tmp_path, hook):
    with supervised_server(tmp_path, **settings(hook)) as (client, master):
        identity = post(client, "/api/conversations", {})["id"]
        hook.does = [500, "half"] * 2
        for number in range(4):
            events = [status("running"), event(), status("finished" if number % 2 else "error")]
            post(client, f"/api/v1/webhooks/events/{identity}", events)
            wait_until(lambda n=number: len(hook.received) > n, "a try")
            if number % 2:
                supervisor_of(master).kill()
        wait_until(lambda: len(set(hook.ids)) == 4, "every notification")

    expected = ["conversation.error", "conversation.finished"] * 2
    assert [hook.taken[hook.ids.index(one)]["type"] for one in dict.fromkeys(hook.ids)] == expected

"""Run, pause, interrupt and messages over HTTP: every verb in every status."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from core.wire import EXECUTION_STATUSES
from store.errors import ConversationNotFound
from tests.conftest import action, observation, status

API = "/api/conversations"
WIRE = Path(__file__).parent.parent.parent / "docs" / "wire.md"
WAITING = "waiting_for_confirmation"
VERBS = ("run", "pause", "interrupt")

#: the status after each of VERBS, by the status before; None: refused. Source: docs/wire.md, 5
FOLLOWING = {
    "idle": ("running", "paused", "paused"),
    "running": (None, "paused", "paused"),
    "paused": ("running", "paused", "paused"),
    WAITING: ("running", WAITING, WAITING),
    "finished": ("finished", "finished", "finished"),
    "error": ("running", "error", "error"),
    "stuck": ("running", "stuck", "stuck"),
    "deleting": (None, None, None),
}
CELLS = [(verb, before, after) for before, row in FOLLOWING.items() for verb, after in zip(VERBS, row, strict=True)]

#: the status after a message, by the status before: alone, and with run. Source: docs/wire.md, 5
MESSAGE = {
    "idle": ("idle", "running"),
    "running": ("running", "running"),
    "paused": ("paused", "running"),
    WAITING: ("idle", "running"),
    "finished": ("idle", "running"),
    "error": ("error", "running"),
    "stuck": ("idle", "running"),
    "deleting": ("deleting", "deleting"),
}


@pytest.fixture
def url(client, conversation):
    """A conversation that exists and is idle."""
    client.post(API, json={"conversation_id": conversation})
    return f"{API}/{conversation}"


@pytest.fixture
def post_events(client, conversation):
    """Append events as the agent does."""
    return lambda *events: client.post(f"/api/v1/webhooks/events/{conversation}", json=list(events))


@pytest.fixture
def waiting(client, url, post_events):
    """An action that waits for a decision."""
    client.post(f"{url}/confirmation_policy", json={"policy": {"kind": "AlwaysConfirm"}})
    proposed = action()
    post_events(proposed)
    assert client.get(url).get_json()["execution_status"] == WAITING
    return proposed


def log(client, url, after=0):
    """The events after a seq, in the order of appending: kind, source, and status or action."""
    items = client.get(f"{url}/events/search?after_seq={after}").get_json()["items"]
    return [(one["kind"], one["source"], one.get("value", one.get("action_id"))) for one in items]


def length(client, url):
    return client.get(f"{url}/events/count").get_json()


def state(value):
    return ("ConversationStateUpdateEvent", "environment", value)


MESSAGE_EVENT = ("MessageEvent", "user", None)


def documented(row):
    """A row of the table in docs/wire.md: the following status of each status, None where the verb is refused."""
    section = WIRE.read_text().partition("## 5. State")[2].partition("## 6.")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    [names] = [line[1:] for line in lines if line[1:2] == [" idle "]]
    [cells] = [line[1:] for line in lines if line[0].strip() == row]
    following = {}
    for name, cell in zip(map(str.strip, names), cells, strict=True):
        [word] = [word.strip(",") for word in cell.split() if word.strip(",") in ("-", "stays", *EXECUTION_STATUSES)]
        following[name] = {"-": None, "stays": name}.get(word, word)
    return following


def test_the_tables_of_this_test_are_those_of_the_documentation():
    for number, verb in enumerate(VERBS):
        assert documented(verb) == {before: row[number] for before, row in FOLLOWING.items()}
    for number, row in enumerate(("message", "message with run")):
        assert documented(row) == {before: following[number] for before, following in MESSAGE.items()}
    assert set(FOLLOWING) == set(MESSAGE) == set(EXECUTION_STATUSES)


@pytest.mark.parametrize(("verb", "before", "after"), CELLS)
def test_a_verb_has_one_response_and_one_following_status_in_each_status(client, url, post_events, verb, before, after):
    # Given a conversation in that status
    post_events(status(before))
    earlier, seq = client.get(url).get_json(), length(client, url)

    # When the verb is requested
    response = client.post(f"{url}/{verb}")

    # Then the status changes as in the table, or the response names the present status and nothing changes
    now = client.get(url).get_json()
    if after is None:
        assert response.status_code == 409
        assert before in response.get_json()["detail"]
        assert verb in response.get_json()["detail"]
    else:
        assert (response.status_code, response.get_json()) == (200, {"success": True})
        assert now["execution_status"] == after
    if after in (None, before):
        assert now == earlier
        assert log(client, url, seq) == []
    else:
        assert now["updated_at"] > earlier["updated_at"]
        assert now == {**earlier, "execution_status": after, "updated_at": now["updated_at"]}
        kind = {"run": [], "pause": ["PauseEvent"], "interrupt": ["InterruptEvent"]}[verb]
        if (verb, before) == ("interrupt", "idle"):
            kind = ["PauseEvent"]  # no run could be interrupted
        assert log(client, url, seq) == [*((one, "user", None) for one in kind), state(after)]


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_to_an_unknown_conversation_is_404_and_to_no_id_422(client, verb):
    response = client.post(f"{API}/{uuid4()}/{verb}")
    assert (response.status_code, response.get_json()) == (404, {"detail": ConversationNotFound.words})

    response = client.post(f"{API}/no-id/{verb}")
    assert response.status_code == 422
    assert response.get_json()["detail"][0]["loc"] == ["path", "conversation_id"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_needs_no_body_and_reads_none(client, url, verb):
    response = client.post(f"{url}/{verb}", data=b"{ no json", content_type="text/plain")

    assert (response.status_code, response.get_json()) == (200, {"success": True})


def test_repeated_pauses_write_one_event(client, url):
    client.post(f"{url}/pause")
    earlier = client.get(url).get_json()

    for verb in ("pause", "interrupt", "pause"):
        assert client.post(f"{url}/{verb}").status_code == 200

    assert log(client, url) == [("PauseEvent", "user", None), state("paused")]
    assert client.get(url).get_json() == earlier


def test_a_conversation_runs_pauses_and_runs_again_as_often_as_it_is_asked_to(client, url):
    for _ in range(2):
        for verb in ("run", "interrupt", "run", "pause"):
            assert client.post(f"{url}/{verb}").status_code == 200

    one_round = [state("running"), ("InterruptEvent", "user", None), state("paused")]
    one_round += [state("running"), ("PauseEvent", "user", None), state("paused")]
    assert log(client, url) == one_round * 2


def test_a_run_accepts_pending_actions_for_good(client, url, post_events, waiting):
    # When the conversation with the pending action is run
    seq = length(client, url)
    assert client.post(f"{url}/run").get_json() == {"success": True}

    # Then the agent may continue, and no decision finds a pending action
    assert log(client, url, seq) == [state("running")]
    assert client.get(f"{url}/pending_actions").get_json() == []
    for accept in (True, False):
        response = client.post(f"{url}/events/respond_to_confirmation", json={"accept": accept})
        assert (response.status_code, response.get_json()) == (200, {"success": False})
    assert log(client, url, seq) == [state("running")]

    # Not even when the agent reports that it waits, and a message rejects nothing
    post_events(status(WAITING))
    assert client.get(f"{url}/pending_actions").get_json() == []
    client.post(f"{url}/events", json={})
    assert log(client, url, seq) == [state("running"), state(WAITING), state("idle"), MESSAGE_EVENT]


def test_an_action_that_a_run_accepted_can_still_be_observed(client, url, post_events, waiting):
    client.post(f"{url}/run")

    assert post_events(observation(waiting)).get_json()["appended"] == 1

    assert client.get(url).get_json()["execution_status"] == "running"


def test_an_accepting_run_is_logged_after_its_action_whatever_the_agents_clock(client, url, post_events):
    client.post(f"{url}/confirmation_policy", json={"policy": {"kind": "AlwaysConfirm"}})
    post_events(action(timestamp="2199-01-01T00:00:00"))

    client.post(f"{url}/run")

    items = client.get(f"{url}/events/search?timestamp__gte=2199-01-01").get_json()["items"]
    assert [one.get("value", one["kind"]) for one in items] == ["ActionEvent", WAITING, "running"]


@pytest.mark.parametrize("verb", ["pause", "interrupt"])
@pytest.mark.parametrize("accept", [True, False])
def test_pending_actions_can_be_decided_after_a_pause_without_effect(client, url, waiting, verb, accept):
    client.post(f"{url}/{verb}")

    assert [one["id"] for one in client.get(f"{url}/pending_actions").get_json()] == [waiting["id"]]
    response = client.post(f"{url}/events/respond_to_confirmation", json={"accept": accept})
    assert response.get_json() == {"success": True}
    assert client.get(url).get_json()["execution_status"] == ("running" if accept else "idle")


@pytest.mark.parametrize("run", [False, True])
@pytest.mark.parametrize("before", MESSAGE)
def test_a_message_has_one_following_status_in_each_status(client, url, post_events, before, run):
    # Given a conversation in that status
    post_events(status(before))
    earlier, seq = client.get(url).get_json(), length(client, url)

    # When the user sends a message
    response = client.post(f"{url}/events", json={"content": [{"type": "text", "text": "Hello"}], "run": run})

    # Then the message is kept in every status, an ended conversation is idle before it, and a run begins after it
    assert (response.status_code, response.get_json()) == (200, {"success": True})
    after = MESSAGE[before][run]
    expected = [MESSAGE_EVENT]
    if after != before:
        expected = [*expected, state(after)] if run else [state(after), *expected]
    assert log(client, url, seq) == expected
    now = client.get(url).get_json()
    assert now["execution_status"] == after
    assert now["updated_at"] > earlier["updated_at"]
    assert now["last_user_message_id"] != earlier["last_user_message_id"]


@pytest.mark.parametrize("run", [False, True])
def test_a_message_rejects_pending_actions_first(client, url, post_events, waiting, run):
    post_events(second := action())
    seq = length(client, url)

    client.post(f"{url}/events", json={"run": run})

    rejections = [("UserRejectObservation", "environment", one["id"]) for one in (waiting, second)]
    expected = [state("idle"), *rejections, MESSAGE_EVENT, *([state("running")] if run else [])]
    assert log(client, url, seq) == expected
    assert client.get(f"{url}/pending_actions").get_json() == []


def race(app, path, times=8):
    """The HTTP statuses of concurrent POSTs."""
    barrier = threading.Barrier(times)

    def post(_):
        client = app.test_client()
        barrier.wait(30)
        return client.post(path).status_code

    with ThreadPoolExecutor(times) as pool:
        return sorted(pool.map(post, range(times)))


@pytest.mark.faults("a race of threads")
def test_eight_concurrent_runs_start_the_agent_once(app, client, url):
    assert race(app, f"{url}/run") == [200] + [409] * 7

    assert log(client, url) == [state("running")]


@pytest.mark.faults("a race of threads")
def test_eight_concurrent_pauses_write_one_event(app, client, url):
    client.post(f"{url}/run")

    assert race(app, f"{url}/pause") == [200] * 8

    assert log(client, url, 1) == [("PauseEvent", "user", None), state("paused")]


@pytest.mark.faults("a race of threads")
def test_eight_concurrent_runs_accept_a_pending_action_once(app, client, url, waiting):
    seq = length(client, url)

    assert race(app, f"{url}/run") == [200] + [409] * 7

    assert log(client, url, seq) == [state("running")]

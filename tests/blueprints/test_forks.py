"""Forks: copies of a conversation up to an event or to its end, byte for byte, whole or not at all."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from store.errors import ConversationNotFound, CopyEnded, EventNotFound, IdInUse, NobodyRuns
from tests.blueprints import API, at, log, opened, refused, said, sealed
from tests.conftest import action, event, observation, recorded

QUERIES = ["", "kind=MessageEvent", "source=agent", "body=o", "body=Straße", "kind=ActionEvent&source=agent"]
QUERIES += ["timestamp__gte=2026-11-20T20:00:03", "body=&timestamp__lt=2026-11-20T20:00:02"]


def assert_same_log(client, url, copy):
    """Both have the same events, byte for byte, and every count and search agrees about them."""
    for query in QUERIES:
        for operation in ("count", "search", "search?sort_order=TIMESTAMP_DESC&limit=3"):
            path = f"/events/{operation}{'&' if '?' in operation else '?'}{query}"
            assert client.get(copy + path).get_data() == client.get(url + path).get_data(), path
    assert log(client, copy) == log(client, url)
    for one in log(client, url):
        assert client.get(f"{copy}/events/{one['id']}").get_data() == client.get(f"{url}/events/{one['id']}").get_data()


def fork(client, url, status=201, **request):
    response = client.post(f"{url}/fork", json=request)
    assert response.status_code == status, response.get_data(as_text=True)
    return response.get_json()


def keys_of(store, conversation):
    redis = store.conversations._redis
    return {key.decode(): redis.ttl(key) for key in redis.scan_iter(f"conv:{{{conversation}}}*")}


def test_a_fork_has_the_whole_log_byte_for_byte(client, store, url, conversation):
    # Given a log of every kind of event, out of order, one of them with odd whitespace
    odd = (
        f'{{ "id":"{uuid4()}",\t"kind" : "m.MessageEvent","source":"agent", "timestamp":"1999-01-01T00:00:00Z","x":1e3,'
    )
    odd += '"llm_message":{"content":[{"type":"text","text":"Stra\\u00dfe \\ud83d\\ude00"}]}, "none":null }'
    events = [*recorded("pending"), said("from the future", timestamp="2199-01-01T00:00:00+02:00"), said("o", **at(3))]
    body = f"[{', '.join([json.dumps(one) for one in events] + [odd])}]"
    webhook = f"/api/v1/webhooks/events/{conversation}"
    assert client.post(webhook, data=body, content_type="application/json").status_code == 200
    earlier = client.get(url).get_json()

    # When the conversation is forked
    copy = fork(client, url)

    # Then the copy is a conversation of its own with the same log
    assert copy == client.get(f"{API}/{copy['id']}").get_json()
    assert copy["id"] != conversation
    assert (copy["forked_from_conversation_id"], copy["forked_from_event_id"]) == (conversation, None)
    assert copy["created_at"] == copy["updated_at"] > earlier["updated_at"]
    assert_same_log(client, url, f"{API}/{copy['id']}")
    assert odd.encode() in client.get(f"{API}/{copy['id']}/events/search").get_data()

    # And no temporary key is left, no key of the copy expires, and the source is unchanged
    keys = keys_of(store, copy["id"])
    assert not [key for key in keys if ":fork" in key]
    assert set(keys.values()) == {-1}
    assert client.get(url).get_json() == earlier


def test_a_log_of_many_pages_is_forked_whole(client, url, post_events, store):
    # Given more events than one page has, and a few that fill pages by their size
    post_events(*(said(f"text {number}", **at(number % 60)) for number in range(230)))
    post_events(*(said("o" * 150_000 + str(number)) for number in range(5)))

    copy = fork(client, url)

    assert_same_log(client, url, f"{API}/{copy['id']}")
    assert set(keys_of(store, copy["id"]).values()) == {-1}


def test_a_fork_ends_with_the_named_event_in_append_order(client, url, post_events):
    # Given a log whose times run backwards
    events = [said(f"o {number}", **at(9 - number)) for number in range(6)]
    post_events(*events)

    for last, one in enumerate(events, 1):
        copy = fork(client, url, from_event_id=one["id"])
        assert log(client, f"{API}/{copy['id']}") == events[:last]
        assert copy["forked_from_event_id"] == one["id"]
        assert client.get(f"{API}/{copy['id']}/events/count?body=o").get_json() == last


def test_an_empty_conversation_is_forked_too(client, url, store):
    for body in ({}, {"json": {}}):
        response = client.post(f"{url}/fork", **body)

        assert response.status_code == 201
        copy = f"{API}/{response.get_json()['id']}"
        assert client.get(copy).get_json()["execution_status"] == "idle"
        assert (log(client, copy), client.get(f"{copy}/events/count").get_json()) == ([], 0)
        assert set(keys_of(store, response.get_json()["id"]).values()) == {-1}


def test_a_fork_and_its_source_have_separate_logs(client, url, conversation, post_events):
    # Given a copy of the first of two events
    first, second = said("first"), said("second")
    post_events(first, second)
    copy = fork(client, url, from_event_id=first["id"])["id"]

    # When the copy receives the second event, a third one, and the first one again
    third = said("third")
    response = client.post(f"/api/v1/webhooks/events/{copy}", json=[first, second, third])

    # Then the copy has each event once; the source does not have the third; and the copy outlives the source
    assert response.get_json() == {"success": True, "appended": 2, "seq": 3}
    assert log(client, url) == [first, second]
    client.delete(url)
    assert log(client, f"{API}/{copy}") == [first, second, third]
    assert client.get(f"{API}/{copy}/events/count?body=third").get_json() == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [("/events", {"role": "user", "content": [{"type": "text", "text": "Go on"}], "run": True}), ("/run", {})],
)
@pytest.mark.parametrize("kind", ["fork", "import"])
def test_a_message_or_a_run_for_a_copy_that_no_agent_runs_is_refused_until_one_has_posted_to_it(
    client, url, post_events, kind, path, body
):
    # Given a copy without a sandbox
    post_events(said("first"))
    if kind == "fork":
        copy = f"{API}/{fork(client, url)['id']}"
    else:
        exported = client.get(f"{url}/export").get_data()
        client.delete(url)
        assert client.post(f"{API}/import", data=exported, content_type="application/x-ndjson").status_code == 201
        copy = url

    # When a message or a run is sent
    response = client.post(f"{copy}{path}", json=body)

    # Then it is refused with the next step, and the copy is as it was
    assert (response.status_code, response.get_json()) == (409, {"detail": NobodyRuns.words})
    assert client.get(copy).get_json()["execution_status"] == "idle"
    assert client.get(f"{copy}/events/count").get_json() == 1

    # When an agent has posted to it, then both are taken
    webhook = f"/api/v1/webhooks/events/{copy.rpartition('/')[2]}"
    assert client.post(webhook, json=[event("agent", source="agent")]).status_code == 200
    assert client.post(f"{copy}{path}", json=body).status_code == 200
    assert client.get(copy).get_json()["execution_status"] == "running"


def test_a_fork_of_a_waiting_conversation_is_idle_with_nothing_pending_and_the_source_still_waits(
    client, url, post_events
):
    # Given a pending action
    client.post(f"{url}/confirmation_policy", json={"policy": {"kind": "AlwaysConfirm"}})
    waiting = action()
    post_events(waiting)

    # When the conversation is forked
    copy = fork(client, url)

    # Then no action is pending in the copy, which behaves like any idle conversation once an agent has it
    copied = f"{API}/{copy['id']}"
    assert copy["execution_status"] == "idle"
    assert client.get(f"{copied}/pending_actions").get_json() == []
    for accept in (True, False):
        response = client.post(f"{copied}/events/respond_to_confirmation", json={"accept": accept})
        assert response.get_json() == {"success": False}
    client.post(f"/api/v1/webhooks/events/{copy['id']}", json=[said("I am here")])
    assert client.post(f"{copied}/run").status_code == 200

    # And the policy is the same there
    client.post(f"/api/v1/webhooks/events/{copy['id']}", json=[observation(waiting), action()])
    assert client.get(copied).get_json()["execution_status"] == "waiting_for_confirmation"

    # And the source accepts a decision as if there were no fork
    assert [one["id"] for one in client.get(f"{url}/pending_actions").get_json()] == [waiting["id"]]
    response = client.post(f"{url}/events/respond_to_confirmation", json={"accept": True})
    assert response.get_json() == {"success": True}


@pytest.mark.parametrize("before", ["running", "paused", "finished", "error", "stuck"])
def test_a_fork_is_idle_whatever_the_status_of_its_source(client, url, post_events, before):
    post_events(event("ConversationStateUpdateEvent", "environment", key="execution_status", value=before))

    assert fork(client, url)["execution_status"] == "idle"

    assert client.get(url).get_json()["execution_status"] == before


def test_a_fork_has_the_members_that_its_source_was_started_with(client, conversation):
    given = {
        "workspace": {"kind": "LocalWorkspace", "working_dir": "/w"},
        "confirmation_policy": {"kind": "ConfirmRisky", "threshold": "LOW", "confirm_unknown": False},
        "security_analyzer": {"kind": "X"},
        "max_iterations": 7,
        "client_tools": [{"name": "t"}],
        "title": "Title",
        "tags": {"team": "blue"},
    }
    client.post(API, json={"conversation_id": conversation, **given, "initial_message": {}})

    copy = fork(client, f"{API}/{conversation}")

    assert {name: copy[name] for name in given} == given


def test_a_fork_may_have_its_own_title_and_tags_and_keep_the_metrics(client, url, post_events):
    stats = {"usage_to_metrics": {"agent": {"accumulated_cost": 0.5}}}
    post_events(event("ConversationStateUpdateEvent", "environment", key="stats", value=stats))

    plain, reset, kept = (
        fork(client, url),
        fork(client, url, reset_metrics=True),
        fork(client, url, reset_metrics=False),
    )
    assert (plain["stats"], reset["stats"], kept["stats"]) == ({}, {}, stats)
    assert (plain["title"], plain["tags"]) == ("Old", {"old": "1"})

    own = fork(client, url, title="Own", tags={"own": "2"})
    assert (own["title"], own["tags"]) == ("Own", {"own": "2"})
    assert fork(client, url, tags={})["tags"] == {}
    assert fork(client, url, title=None, tags=None, id=None, from_event_id=None)["title"] == "Old"
    now = client.get(url).get_json()
    assert (now["title"], now["tags"], now["stats"]) == ("Old", {"old": "1"}, stats)


def test_a_fork_has_the_requested_id(client, url, post_events):
    post_events(said("text"))
    given = str(uuid4())

    assert fork(client, url, id=given.replace("-", "").upper())["id"] == given

    assert_same_log(client, url, f"{API}/{given}")


def test_a_fork_may_take_the_id_of_a_deleted_conversation(client, url, post_events, store):
    post_events(said("new"))
    gone = client.post(API, json={"initial_message": {"content": [{"type": "text", "text": "old"}]}}).get_json()["id"]
    assert client.get(f"{API}/{gone}/events/count?body=old").get_json() == 1
    client.delete(f"{API}/{gone}")

    fork(client, url, id=gone)

    assert client.get(f"{API}/{gone}/events/count?body=old").get_json() == 0
    assert_same_log(client, url, f"{API}/{gone}")


def test_an_id_in_use_is_refused_and_its_conversation_stays_unchanged(client, store, url, conversation, post_events):
    post_events(said("text"))
    other = client.post(API, json={"title": "Other"}).get_json()

    for taken in (other["id"], conversation):
        earlier = client.get(f"{API}/{taken}").get_json()
        refusal = fork(client, url, 409, id=taken)
        assert refusal == {"detail": IdInUse.words}
        assert client.get(f"{API}/{taken}").get_json() == earlier

        # The keys of the unfinished copy expire
        aside = [ttl for key, ttl in keys_of(store, taken).items() if ":fork:" in key]
        assert all(0 < ttl <= 3600 for ttl in aside)


def test_an_unknown_source_or_event_is_not_found(client, url, post_events):
    post_events(said("text"))
    other = client.post(API, json={"initial_message": {}}).get_json()

    for event_id in (str(uuid4()), "", "x", other["last_user_message_id"]):
        assert fork(client, url, 404, from_event_id=event_id) == {"detail": EventNotFound.words}
    for request in ({}, {"from_event_id": "x"}, {"id": other["id"]}):
        assert fork(client, f"{API}/{uuid4()}", 404, **request) == {"detail": ConversationNotFound.words}


def test_an_event_id_that_cannot_be_encoded_as_utf_8_is_no_server_error(client, url):
    response = client.post(f"{url}/fork", json={"from_event_id": "\ud800"})

    assert response.status_code in (404, 422)


BAD = [
    ({"id": "x"}, ["id"]),
    ({"id": 5}, ["id"]),
    ({"title": ""}, ["title"]),
    ({"title": "x" * 201}, ["title"]),
    ({"tags": {"A": "x"}}, ["tags"]),
    ({"reset_metrics": "yes"}, ["reset_metrics"]),
    ({"reset_metrics": None}, ["reset_metrics"]),
    ({"from_event_id": 5}, ["from_event_id"]),
    ([], []),
]


def test_a_bad_member_of_a_fork_request_is_named(client, url):
    for body, loc in BAD:
        assert refused(client.post(f"{url}/fork", json=body), *loc), body


def test_secrets_are_not_forked(keeper, store, conversation):
    keeper.post(API, json={"conversation_id": conversation, "secrets": {"a": "1"}, "initial_message": {}})

    copy = fork(keeper, f"{API}/{conversation}")

    assert copy["secret_registry"] == {"secret_sources": {}}
    assert sealed(store, copy["id"]) == {}
    assert opened(store, conversation) == {"a": "1"}


@pytest.mark.faults("a race of threads")
def test_concurrent_forks_into_one_id_create_one(app, client, store, url, post_events):
    # Given two sources and an id for which concurrent forks of both race
    post_events(said("text"))
    other = client.post(API, json={"initial_message": {}}).get_json()["id"]
    sources, target, barrier = [url, f"{API}/{other}"], str(uuid4()), threading.Barrier(8)

    def copy(number):
        client = app.test_client()
        barrier.wait(30)
        return client.post(f"{sources[number % 2]}/fork", json={"id": target, "title": f"Copy {number}"}).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(copy, range(8)))

    # Then one fork is created, whole and unmixed
    assert sorted(statuses) == [201] + [409] * 7
    winner = statuses.index(201)
    assert client.get(f"{API}/{target}").get_json()["title"] == f"Copy {winner}"
    assert_same_log(client, sources[winner % 2], f"{API}/{target}")
    keys = keys_of(store, target)
    assert {ttl for key, ttl in keys.items() if ":fork:" not in key} == {-1}
    assert all(0 < ttl <= 3600 for key, ttl in keys.items() if ":fork:" in key)


class Meanwhile:
    """Scripts that run an action before the nth read of the log; a test fails after many reads."""

    def __init__(self, scripts, number, happen):
        self._scripts, self._number, self._happen, self._reads = scripts, number, happen, 0

    def __getattr__(self, name):
        return getattr(self._scripts, name)

    def read_log(self, root, **wanted):
        self._reads += 1
        assert self._reads < 10, "the log is read again and again"
        if self._reads == self._number:
            self._happen()
        return self._scripts.read_log(root, **wanted)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("successor", [None, 1, 200])
def test_a_source_that_is_deleted_during_its_fork_is_not_found(
    client, store, url, conversation, post_events, monkeypatch, number, successor
):
    # Given a source that is deleted between two reads, and perhaps created again with another log
    post_events(*(said("old") for _ in range(150)))
    target = str(uuid4())

    def delete():
        client.delete(url)
        if successor:
            post_events(*(said("new") for _ in range(successor)))

    monkeypatch.setattr(
        store.conversations.forks, "_scripts", Meanwhile(store.conversations.forks._scripts, number, delete)
    )

    # Then there is no copy, neither half nor mixed, and the keys of the unfinished copy expire
    with pytest.raises(ConversationNotFound):
        store.conversations.forks.fork(conversation, id=target)
    assert client.get(f"{API}/{target}").status_code == 404
    assert all(0 < ttl <= 3600 for ttl in keys_of(store, target).values())


def test_events_that_are_appended_during_a_fork_are_not_in_it(
    client, store, url, conversation, post_events, monkeypatch
):
    before = [said("old") for _ in range(150)]
    post_events(*before)
    monkeypatch.setattr(
        store.conversations.forks,
        "_scripts",
        Meanwhile(store.conversations.forks._scripts, 2, lambda: post_events(said("new"))),
    )

    copy = store.conversations.forks.fork(conversation)

    assert log(client, f"{API}/{copy}") == before


@pytest.mark.parametrize("number", [1, 2])
def test_deleting_the_id_during_a_fork_ends_the_fork(
    client, store, url, conversation, post_events, monkeypatch, number
):
    post_events(*(said("text") for _ in range(150)))
    target, deleted = str(uuid4()), []
    scripts = store.conversations.forks._scripts

    def delete():
        deleted.append(client.delete(f"{API}/{target}").status_code)

    monkeypatch.setattr(store.conversations.forks, "_scripts", Meanwhile(scripts, number, delete))
    with pytest.raises(CopyEnded):
        store.conversations.forks.fork(conversation, id=target)

    assert deleted == [200]
    assert client.get(f"{API}/{target}").status_code == 404
    assert client.delete(f"{API}/{target}").status_code == 404
    monkeypatch.setattr(store.conversations.forks, "_scripts", scripts)
    assert store.conversations.forks.fork(conversation, id=target) == target  # another request may have the id
    assert client.delete(f"{API}/{target}").status_code == 200


def test_the_deletion_of_a_conversation_ends_the_copies_into_its_id_too(client, store, url, conversation, post_events):
    post_events(said("text"))
    target = client.post(f"{url}/fork", json={}).get_json()["id"]
    copy = store.conversations.forks.begin(target, None)

    assert client.delete(f"{API}/{target}").status_code == 200

    with pytest.raises(CopyEnded):
        store.conversations.forks.fork(conversation, id=target, copy=copy)


def test_the_first_complete_copy_into_an_id_becomes_the_conversation(client, store, url, conversation):
    target = str(uuid4())
    store.conversations.forks.begin(target, None)  # of a worker that was killed

    assert client.post(f"{url}/fork", json={"id": target, "title": "Whole"}).status_code == 201
    assert client.post(f"{url}/fork", json={"id": target}).status_code == 409
    assert client.get(f"{API}/{target}").get_json()["title"] == "Whole"


def test_a_fork_that_fails_leaves_nothing_that_a_deletion_would_end(client, url):
    target = str(uuid4())
    assert client.post(f"{url}/fork", json={"id": target, "from_event_id": "unknown"}).status_code == 404
    assert client.delete(f"{API}/{target}").status_code == 404

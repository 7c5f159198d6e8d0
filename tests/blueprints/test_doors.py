"""The largest thing that one door takes passes every other door that has to carry it."""

import json
from urllib.parse import urlencode
from uuid import uuid4

import pytest

from agents.client import MOST_BYTES, _event
from blueprints import approval_links
from core.bounds import MOST_SECRETS, MOST_SECRETS_BYTES
from core.wire import MOST_EVENT_BYTES, MOST_REPORTED_BYTES, MOST_TITLE
from reference_agent import events as wire
from reference_agent.api import PAGE_BYTES as AGENT_PAGE_BYTES
from reference_agent.log import StepState
from reference_agent.mind import MOST_COMMAND, MOST_COMMANDS, RuleMind
from reference_agent.output import MOST_OUTPUT
from reference_agent.shell import seen
from schemas.approvals import MOST_ARGUMENTS_BYTES, MOST_REASON, DecisionsRequest
from schemas.conversations import (
    MOST_SECRET_BYTES,
    MOST_SECRET_NAME,
    MOST_TAG,
    MOST_TAG_KEY,
    MOST_TAGS,
)
from schemas.exports import MOST_LINE_BYTES
from settings.config import Config
from tests.blueprints import API, log
from tests.blueprints.test_exports import as_another, exported, imported
from tests.conftest import action, event

#: characters that take much room somewhere: none, in JSON, in UTF-8 and in JSON, in JSON with escapes, in URLs
CHARACTERS = ("x", "\x01", "é", "\N{GRINNING FACE}", '"')

CONFIG = Config()


def largest(character: str, most: int, made=lambda text: text) -> str:
    """As many of a character as what is made of the text may have bytes of JSON."""
    return character * ((most - len(json.dumps(made("")))) // (len(json.dumps(character)) - 2))


def content(text: str) -> list[dict]:
    return [{"cache_prompt": False, "type": "text", "text": text}]


def posted(client, conversation, *fields: dict) -> None:
    """Events as an agent posts them: without escapes."""
    body = json.dumps(list(fields), ensure_ascii=False, separators=(",", ":")).encode()
    assert len(body) <= CONFIG.http.max_body_bytes
    path = f"/api/v1/webhooks/events/{conversation}"
    response = client.post(path, data=body, content_type="application/json")
    assert response.status_code == 200, response.get_data(as_text=True)[:500]


def carried(client, url) -> None:
    """Fork the conversation, and export it and import the export: each has all of its events."""
    events = log(client, url)
    assert len(events) > 0
    fork = client.post(f"{url}/fork", json={})
    assert fork.status_code == 201, fork.get_data(as_text=True)[:500]
    assert [one["id"] for one in log(client, f"{API}/{fork.get_json()['id']}")][: len(events)] == [
        one["id"] for one in events
    ]
    lines = exported(client, url)
    assert max(map(len, lines)) <= MOST_LINE_BYTES
    other, lines = as_another(lines)
    imported(client, lines)
    assert log(client, other) == events
    before, after = client.get(url).get_json(), client.get(other).get_json()
    assert [before[name] for name in ("title", "tags", "stats")] == [after[name] for name in ("title", "tags", "stats")]


@pytest.mark.parametrize("character", CHARACTERS)
def test_the_largest_message_is_queued_forked_exported_imported_and_posted_back(
    client, store, conversation, url, character
):
    said = content(largest(character, MOST_EVENT_BYTES - 1024, content))
    message = {"role": "user", "content": said, "run": True}

    sent = client.post(f"{url}/events", json=message)
    assert sent.status_code == 200, sent.get_data(as_text=True)[:500]
    receiver = str(uuid4())
    store.conversations.create(receiver, sandbox_id="none", app={})
    queue = f"/api/v1/conversations/{receiver}/pending-messages"
    queued = client.post(queue, json={"role": "user", "content": said})
    assert queued.status_code == 201, queued.get_data(as_text=True)[:500]
    assert len(json.dumps(message, ensure_ascii=False).encode()) <= CONFIG.http.socket_message_bytes
    echo = wire.message("user", said)
    [answer] = RuleMind().respond([echo], StepState({}, unanswered=[echo["id"]]), lambda *_: None).events
    posted(client, conversation, echo, answer)
    assert _event(echo) is not None
    assert _event(answer) is not None
    assert AGENT_PAGE_BYTES + MOST_EVENT_BYTES < MOST_BYTES
    carried(client, url)


@pytest.mark.parametrize("character", CHARACTERS)
def test_the_largest_event_of_a_webhook_is_read_from_the_log_of_its_agent_too(client, conversation, url, character):
    def bytes_of(text):
        return len(json.dumps(event(note=text), ensure_ascii=False, separators=(",", ":")).encode())

    note = character * ((MOST_EVENT_BYTES - bytes_of("")) // (bytes_of(character) - bytes_of("")))
    fields = event(note=note)

    posted(client, conversation, fields)

    read = _event(fields)
    assert read is not None
    assert read.fields["note"] == note
    assert CONFIG.redis.follower_bytes >= 4 * MOST_EVENT_BYTES
    carried(client, url)


@pytest.mark.parametrize("character", CHARACTERS)
def test_the_longest_title_is_kept_whole_by_every_door(client, character):
    identity, title = str(uuid4()), character * MOST_TITLE
    url = f"{API}/{identity}"
    assert client.post(API, json={"conversation_id": identity, "title": title}).status_code == 201
    assert client.patch(url, json={"title": title}).status_code == 200
    assert client.post(f"{url}/fork", json={"title": title}).get_json()["title"] == title
    posted(client, identity, wire.change("title", title))
    assert client.get(url).get_json()["title"] == title
    carried(client, url)


def test_a_title_that_an_agent_reports_is_cut_with_a_mark(client, conversation, url):
    posted(client, conversation, wire.change("title", "x" * (MOST_TITLE + 1)))
    assert client.get(url).get_json()["title"] == "x" * (MOST_TITLE - 1) + "…"


@pytest.mark.parametrize("character", CHARACTERS[0:4:3])
def test_the_most_tags_are_kept_by_every_door(client, character):
    identity = str(uuid4())
    url, tags = f"{API}/{identity}", {f"{n:0{MOST_TAG_KEY}}": character * MOST_TAG for n in range(MOST_TAGS)}
    assert client.post(API, json={"conversation_id": identity, "tags": tags}).status_code == 201
    assert client.patch(url, json={"tags": tags}).status_code == 200
    assert client.post(f"{url}/fork", json={"tags": tags}).get_json()["tags"] == tags
    posted(client, identity, wire.change("tags", tags))
    assert client.get(url).get_json()["tags"] == tags
    assert len(json.dumps(tags)) <= MOST_REPORTED_BYTES
    assert client.patch(url, json={"tags": {**tags, "more": ""}}).status_code == 422
    carried(client, url)


def test_what_an_agent_says_of_tags_and_stats_is_kept_where_an_import_takes_it(client, conversation, url):
    for most in (MOST_REPORTED_BYTES, MOST_EVENT_BYTES // 2):
        posted(client, conversation, wire.change("tags", {"a": largest("x", most - 20)}))
        posted(client, conversation, wire.change("stats", {"a": largest("x", most - 20)}))
    state = client.get(url).get_json()
    assert len(state["tags"]["a"]) < MOST_REPORTED_BYTES
    assert len(state["stats"]["a"]) < MOST_REPORTED_BYTES
    carried(client, url)


@pytest.mark.parametrize("character", CHARACTERS)
def test_the_longest_reason_is_taken_by_every_door_that_rejects(agent, client, conversation, character):
    most = CONFIG.conversations.max_reason_bytes
    reason = character * (most // len(character.encode()))
    proposed = action("ls")
    agent.posts(proposed)
    response = client.post(
        f"{API}/{conversation}/events/respond_to_confirmation", json={"accept": False, "reason": reason}
    )
    assert response.status_code == 200, response.get_data(as_text=True)
    assert [one["rejection_reason"] for one in log(client, f"{API}/{conversation}") if "rejection_reason" in one] == [
        reason
    ]
    form = urlencode({"decision": "reject", "reason": reason})
    assert len(form) < approval_links._MOST_BODY
    assert len(reason) <= approval_links._MOST_REASON
    rule = f"Approval rule {uuid4()}: {character * MOST_REASON}"
    assert len(rule.encode()) <= most
    posted(client, conversation, wire.rejection({**proposed, "id": str(uuid4())}, reason))


@pytest.mark.parametrize("character", CHARACTERS)
def test_the_largest_secret_fits_into_the_environment_of_a_command(keeper, conversation, character):
    value = largest(character, MOST_SECRET_BYTES)
    url = f"{API}/{conversation}"
    assert keeper.post(API, json={"conversation_id": conversation, "secrets": {"A": value}}).status_code == 201
    assert keeper.post(f"{url}/secrets", json={"secrets": {"B": value}}).status_code == 200
    one_string, all_of_them = 128 * 1024, 2 * 1024 * 1024  # of Linux: MAX_ARG_STRLEN, and a quarter of the usual stack
    assert len(value.encode()) + 4 * MOST_SECRET_NAME + 2 < one_string
    assert MOST_SECRETS_BYTES + one_string < all_of_them
    secrets = {str(number): value for number in range(MOST_SECRETS_BYTES // MOST_SECRET_BYTES + 1)}
    assert keeper.post(f"{url}/secrets", json={"secrets": secrets}).status_code == 422


@pytest.mark.parametrize("character", CHARACTERS)
def test_the_most_secrets_of_a_conversation_come_in_several_requests_and_start_its_agent_again(
    keeper, conversation, character
):
    store, url = keeper.application.extensions["server"].store, f"{API}/{conversation}"
    value = largest(character, MOST_SECRETS_BYTES // 16 - 200)
    secrets = {f"A{number}": value for number in range(16)}
    assert keeper.post(API, json={"conversation_id": conversation, "secrets": {"A0": value}}).status_code == 201
    for name in secrets:  # one that is there is overwritten, and counts once
        assert keeper.post(f"{url}/secrets", json={"secrets": {name: value}}).status_code == 200

    refused = keeper.post(f"{url}/secrets", json={"secrets": {"A0": value[1:], "B": value}})

    assert refused.status_code == 422
    [fault] = refused.get_json()["detail"]
    assert fault["loc"] == ["body", "secrets"]
    assert f"at most {MOST_SECRETS} secrets, of {MOST_SECRETS_BYTES} bytes together" in fault["msg"]
    assert store.conversations.secrets_of(conversation) == secrets  # all or none of a request
    body = {"conversation_id": conversation, "secrets": secrets}
    assert len(json.dumps(body)) <= CONFIG.http.max_body_bytes
    assert keeper.post(f"{url}/fork", json={}).status_code == 201


def test_a_conversation_has_no_more_secrets_than_one_request_may_bring(keeper, conversation):
    url = f"{API}/{conversation}"
    names = [str(number) for number in range(MOST_SECRETS)]
    assert keeper.post(API, json={"conversation_id": conversation}).status_code == 201
    assert keeper.post(f"{url}/secrets", json={"secrets": dict.fromkeys(names[1:], "x")}).status_code == 200
    assert keeper.post(f"{url}/secrets", json={"secrets": {names[0]: "x"}}).status_code == 200
    assert keeper.post(f"{url}/secrets", json={"secrets": {"more": "x"}}).status_code == 422
    assert keeper.post(f"{url}/secrets", json={"secrets": dict.fromkeys(names, "y")}).status_code == 200


def test_the_largest_event_that_is_nothing_but_secrets_is_carried_with_what_stands_for_them(keeper, conversation):
    url = f"{API}/{conversation}"
    assert keeper.post(API, json={"conversation_id": conversation, "secrets": {"A": "sesame"}}).status_code == 201
    text = "sesame " * ((MOST_EVENT_BYTES - 2048) // 7)

    posted(keeper, conversation, event("ObservationEvent", "environment", note=text))

    [kept] = log(keeper, url)
    assert kept["note"].replace("<secret-hidden> ", "") == ""
    assert len(json.dumps(kept)) > 2 * MOST_EVENT_BYTES
    carried(keeper, url)


@pytest.mark.parametrize("character", CHARACTERS)
def test_the_largest_body_that_starts_an_agent_is_kept_and_starts_it_again(keeper, conversation, character):
    store = keeper.application.extensions["server"].store
    body = {"agent": {"kind": "Agent"}, "workspace": None, "title": None}
    body["note"] = largest(character, CONFIG.http.max_body_bytes - 1024)
    assert len(json.dumps(body)) < CONFIG.http.max_body_bytes

    sealed = store.start_tasks.bodies.sealed(conversation, body)
    store.conversations.create(conversation, sandbox_id=None, start_body=sealed)

    assert store.start_tasks.bodies.of(conversation) == body
    posted(keeper, conversation, event(note="its masks are read"))


@pytest.mark.parametrize("character", CHARACTERS)
def test_the_largest_command_that_runs_and_the_largest_output_fit_into_events(client, conversation, url, character):
    echo = wire.message("user", content(f"run: {largest(character, MOST_COMMAND)}"))
    [proposed] = RuleMind().respond([echo], StepState({}, unanswered=[echo["id"]]), lambda *_: None).events
    command = proposed["action"]["command"]
    assert proposed["kind"] == "ActionEvent"
    result = wire.observation(proposed, seen(command, "\0" * MOST_OUTPUT, 0))
    posted(client, conversation, proposed)
    posted(client, conversation, result)
    assert _event(proposed) is not None
    assert _event(result) is not None
    carried(client, url)


@pytest.mark.parametrize("text", ["run: " + "x" * MOST_COMMAND, "run: ls\n" * (MOST_COMMANDS + 1)])
def test_commands_that_no_event_and_no_queue_carries_are_refused_in_words(text):
    echo = wire.message("user", content(text))
    [answer] = RuleMind().respond([echo], StepState({}, unanswered=[echo["id"]]), lambda *_: None).events
    assert answer["kind"] == "MessageEvent"
    assert "No command was run." in answer["llm_message"]["content"][0]["text"]


def test_all_commands_of_a_message_may_wait_at_once():
    assert CONFIG.conversations.max_pending_actions >= MOST_COMMANDS


@pytest.mark.parametrize("character", CHARACTERS)
def test_the_largest_edit_fits_with_its_result_into_an_event(client, conversation, url, character):
    arguments = {"command": largest(character, MOST_ARGUMENTS_BYTES, lambda text: {"command": text})}
    assert len(json.dumps(arguments)) <= MOST_ARGUMENTS_BYTES
    proposed = wire.action({"id": "call", "name": "terminal", "arguments": "{}"}, None, "r")
    of = {**proposed, "action": {**arguments, "kind": "TerminalAction"}, "edited": arguments}
    posted(client, conversation, wire.observation(of, seen(arguments["command"], "\0" * MOST_OUTPUT, 0)))
    decision = {"action_id": "a", "decision": "edit", "arguments": arguments}
    assert not DecisionsRequest().validate({"decisions": [decision]})
    larger = {**decision, "arguments": {**arguments, "more": "x" * 20}}
    assert "arguments" in DecisionsRequest().validate({"decisions": [larger]})["decisions"][0]

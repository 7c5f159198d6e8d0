"""Masks in a sandbox: the secrets of its environment are in no event, whoever appends it."""

import json
from uuid import uuid4

import pytest

from core.wire import own_event
from store.sandboxes.sandboxes import key_hash
from tests.conftest import message


@pytest.fixture
def begun(store):
    """Starts the processes of a sandbox with a secret of its spec; returns the hook key of that start."""
    assert store.sandboxes.beat("h", "supervisor")
    sandbox = store.sandboxes.start("reference-agent")
    while store.sandboxes.claim("h") not in (None, sandbox.id):
        pass

    def begin(secret):
        hook_key = store.sandboxes.begin(sandbox.id, "h", "supervisor", "process", "", [secret])
        assert hook_key
        return sandbox.id, hook_key

    return begin


def said(text):
    one = message(text, "agent")
    return own_event(one["id"], "MessageEvent", 0, "agent", llm_message=one["llm_message"])


def test_the_keys_of_a_sandbox_and_the_secrets_of_its_spec_are_masked_after_each_start(store, conversation, begun):
    for secret in ("spec-secret-1", "spec-secret-2"):
        sandbox_id, hook_key = begun(secret)
        store.conversations.create(conversation, sandbox_id=sandbox_id, app={})
        sandbox = store.sandboxes.get(sandbox_id)
        event = said(f"{hook_key} {sandbox.session_api_key} {sandbox.files_key} {secret}")

        store.events.append(conversation, [event], sandbox_id=sandbox_id, hook_hash=key_hash(hook_key))

        kept = store.events.get(conversation, event.id).decode()
        assert " ".join(["<secret-hidden>"] * 4) in kept


def test_what_is_fetched_from_the_log_of_an_agent_is_masked_too(store, conversation, begun):
    sandbox_id, hook_key = begun("spec-secret-1")
    store.conversations.create(conversation, sandbox_id=sandbox_id, app={}, secrets={"TOKEN": "sesame-ghp_1"})
    event = said(f"{hook_key} spec-secret-1 sesame-ghp_1")

    store.events.append(conversation, [event], sandbox_id=sandbox_id, fetched=True)

    kept = store.events.get(conversation, event.id).decode()
    assert " ".join(["<secret-hidden>"] * 3) in kept


def shown(store, conversation, text, sandbox_id):
    """A text as the log of a conversation has it that its sandbox posts."""
    event = said(text)
    store.events.append(conversation, [event], sandbox_id=sandbox_id)
    return json.loads(store.events.get(conversation, event.id))["llm_message"]["content"][0]["text"]


def test_the_secrets_of_another_conversation_of_the_sandbox_are_masked_whenever_they_are_set(
    store, conversation, begun
):
    sandbox_id, _ = begun("spec-secret-1")
    other = str(uuid4())
    store.conversations.create(conversation, sandbox_id=sandbox_id, app={})
    assert shown(store, conversation, "first-secret", sandbox_id) == "first-secret"  # nobody has it yet

    store.conversations.create(other, sandbox_id=sandbox_id, app={}, secrets={"TOKEN": "first-secret"})
    assert shown(store, conversation, "first-secret", sandbox_id) == "<secret-hidden>"
    store.conversations.put_secrets(other, {"LATER": "later-secret"}, sandbox_id)
    assert shown(store, conversation, "first-secret later-secret", sandbox_id) == "<secret-hidden> <secret-hidden>"

    last = str(uuid4())  # it is made after all of them were set
    store.conversations.create(last, sandbox_id=sandbox_id, app={})
    assert shown(store, last, "later-secret", sandbox_id) == "<secret-hidden>"


def test_the_secrets_of_its_source_are_masked_in_a_fork_that_runs(store, conversation, begun):
    sandbox_id, _ = begun("spec-secret-1")
    store.conversations.create(conversation, sandbox_id=sandbox_id, app={}, secrets={"TOKEN": "first-secret"})

    fork = store.conversations.forks.fork(conversation, sandbox_id=sandbox_id)
    store.sandboxes.places.take(sandbox_id, fork, made=True)

    assert shown(store, fork, "first-secret", sandbox_id) == "<secret-hidden>"
    store.conversations.put_secrets(conversation, {"LATER": "later-secret"}, sandbox_id)
    assert shown(store, fork, "later-secret", sandbox_id) == "<secret-hidden>"


def test_what_a_sandbox_shows_beside_events_is_masked_by_its_processes_and_all_its_conversations(
    store, conversation, begun
):
    sandbox_id, hook_key = begun("spec-secret-1")
    assert store.masks.in_sandbox(sandbox_id).text("spec-secret-1 first-secret") == "<secret-hidden> first-secret"

    store.conversations.create(conversation, sandbox_id=sandbox_id, app={}, secrets={"TOKEN": "first-secret"})

    text = f"{hook_key} spec-secret-1 first-secret"
    assert store.masks.in_sandbox(sandbox_id).text(text) == " ".join(["<secret-hidden>"] * 3)
    assert not store.masks.in_sandbox("no-sandbox")

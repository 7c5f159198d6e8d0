"""Masks in a sandbox: the secrets of its environment are in no event, whoever appends it."""

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

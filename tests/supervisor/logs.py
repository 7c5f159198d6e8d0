"""What the log and the state of a conversation say."""

import json


def of(store, conversation, kind: str) -> list[dict]:
    return [json.loads(raw) for raw in store.events.search(conversation, kind=kind)[0]]


def codes(store, conversation) -> list[str]:
    return [one["code"] for one in of(store, conversation, "ConversationErrorEvent")]


def state(store, conversation) -> str:
    return store.conversations.get(conversation)["execution_status"]


def pending(store, conversation) -> list[str]:
    return [one["id"] for one in store.approvals.confirmations.pending(conversation)]


def all_of(store, conversation) -> list[dict]:
    return [json.loads(raw) for raw in store.events.search(conversation)[0]]

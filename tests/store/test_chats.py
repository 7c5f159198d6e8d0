"""Which conversation gave the last answer of a chat, to whom, and for which words."""

from uuid import uuid4

import pytest


def said(role: str, text: str, **part) -> dict:
    return {"role": role, "content": [{"type": "text", "text": text, **part}]}


@pytest.fixture
def chats(store):
    return store.conversations.chats


@pytest.fixture
def chat():
    """A chat that nobody else has."""
    return [said("user", f"hello {uuid4()}"), said("assistant", "hi")]


def test_the_words_that_follow_an_answer_go_to_the_conversation_that_gave_it(chats, chat, conversation):
    assert chats.take("ada", chat, [said("user", "more")]) is None

    chats.remember("ada", chat, conversation)

    assert chats.take("ada", chat, [said("user", "more")]) == conversation
    assert chats.take("ada", chat, [said("user", "more")]) == conversation


def test_other_words_after_the_same_answer_are_another_branch(chats, chat, conversation):
    chats.remember("ada", chat, conversation)
    assert chats.take("ada", chat, [said("user", "more")]) == conversation

    assert chats.take("ada", chat, [said("user", "something else")]) is None


def test_an_answer_that_two_conversations_gave_belongs_to_neither(chats, chat, conversation):
    for one in (str(uuid4()), conversation, conversation):
        chats.remember("ada", chat, one)

    assert chats.take("ada", chat, [said("user", "more")]) is None


def test_another_key_takes_nothing(chats, chat, conversation):
    chats.remember("ada", chat, conversation)

    assert chats.take("bob", chat, [said("user", "more")]) is None


def test_blanks_and_instructions_make_no_other_chat_and_images_do(chats, chat, conversation):
    chats.remember("ada", chat, conversation)
    image = {"role": "user", "content": [*chat[0]["content"], {"type": "image", "image_urls": ["data:,"]}]}

    assert chats.take("ada", [image, chat[1]], [said("user", "more")]) is None
    assert (
        chats.take("ada", [said("system", "Today is Monday."), chat[0], said("assistant", "hi\n ")], []) == conversation
    )


def test_an_answer_is_remembered_for_a_week(chats, store, chat, conversation):
    chats.remember("ada", chat, conversation)
    [key] = [
        key
        for key in store.events._redis.scan_iter("chat:*")
        if store.events._redis.hget(key, "conversation") == conversation.encode()
    ]

    assert 6 * 86_400 < store.events._redis.ttl(key) <= 7 * 86_400

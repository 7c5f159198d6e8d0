"""What a call of OpenAI's API says to an agent that begins, and to one that knows the rest."""

import pytest
from marshmallow import ValidationError

from schemas.openai import ChatCompletionRequest, ResponseRequest, error_of, faulty


def chat(*messages: tuple[str, object]):
    """The words of a chat completion with these messages, by role and content."""
    listed = [{"role": role, "content": content} for role, content in messages]
    return ChatCompletionRequest().load({"model": "m", "messages": listed})["words"]


def texts(parts: list[dict]) -> list[str]:
    return [part["text"] for part in parts]


def test_a_single_message_is_said_as_it_is():
    words = chat(("user", "hello"))

    assert texts(words.whole) == texts(words.new) == ["hello"]


def test_an_agent_that_begins_is_told_what_was_said_before_with_the_roles():
    words = chat(("system", "Be brief."), ("user", "one"), ("assistant", "two"), ("tool", None), ("user", "three"))

    assert texts(words.new) == ["three"]
    assert texts(words.whole) == [
        *('<message role="system">', "Be brief.", "</message>"),
        *('<message role="user">', "one", "</message>"),
        *('<message role="assistant">', "two", "</message>"),
        "three",
    ]


def test_new_are_all_messages_of_the_user_since_the_last_answer():
    assert texts(chat(("user", "one"), ("assistant", "two"), ("user", "three"), ("user", "four")).new) == [
        "three",
        "four",
    ]


def test_where_the_last_message_is_no_users_the_users_last_one_is_said_again():
    words = chat(("user", "one"), ("assistant", "two"))

    assert texts(words.new) == ["one"]
    assert texts(words.whole)[-2:] == ["two", "</message>"]


def test_texts_and_images_are_parts_of_this_servers_own_wire():
    content = [
        {"type": "text", "text": "see"},
        {"type": "text", "text": ""},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        {"type": "input_image", "image_url": "https://example.org/a.png"},
    ]

    assert chat(("user", content)).new == [
        {"cache_prompt": False, "type": "text", "text": "see"},
        {"cache_prompt": False, "type": "image", "image_urls": ["data:image/png;base64,AA=="]},
        {"cache_prompt": False, "type": "image", "image_urls": ["https://example.org/a.png"]},
    ]


@pytest.mark.parametrize("part", [{"type": "image_url"}, {"type": "input_audio"}, {"type": "text", "text": 1}, "x"])
def test_a_part_that_no_agent_reads_is_refused(part):
    with pytest.raises(ValidationError) as refused:
        chat(("user", [{"type": "text", "text": "ok"}, part]))

    assert list(refused.value.messages["messages"][0]["content"]) == [1]


def test_the_instructions_of_a_response_come_first():
    said = {"model": "m", "input": [{"role": "user", "content": "hello"}], "instructions": "Be brief."}

    assert texts(ResponseRequest().load(said)["words"].whole) == [
        *('<message role="system">', "Be brief.", "</message>"),
        "hello",
    ]


def test_an_error_has_its_type_by_its_status_and_its_code_from_what_refuses():
    assert error_of("No", 404, "model_not_found")["error"] == {
        "message": "No",
        "type": "invalid_request_error",
        "param": None,
        "code": "model_not_found",
    }
    assert error_of("No", 401)["error"]["code"] == "invalid_api_key"
    assert error_of("No", 429)["error"]["type"] == "rate_limit_error"
    assert error_of([{"msg": "odd"}], 502)["error"]["message"] == '[{"msg": "odd"}]'


def test_faults_are_one_sentence_and_the_first_names_the_member():
    faults = [
        {"loc": ["body", "messages", 0, "role"], "msg": "Field required", "type": "missing"},
        {"loc": ["body"], "msg": "Odd", "type": "value_error"},
    ]

    assert faulty(faults)["error"] == {
        "message": "messages[0].role: Field required; Odd",
        "type": "invalid_request_error",
        "param": "messages[0].role",
        "code": "missing",
    }

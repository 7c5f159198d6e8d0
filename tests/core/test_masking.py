"""Masks: which forms of a value they find, and that no other text changes. What settings call a credential."""

import base64
import json
import random
from urllib.parse import quote, quote_plus

import pytest

from core import masking
from core.masking import (
    HIDDEN,
    LEAST,
    REDACTED,
    Mask,
    Masked,
    TextTooLong,
    credentials_in,
    redacted,
    without_secrets_of,
)
from core.wire import read_event
from tests.conftest import event

TOKEN = "ghp_sesame/1+2=3"
ODD = 'a "quoted" \\ pässword\n!'


def seen(raw, *values):
    """The event of these bytes, masked."""
    return Mask(values).event(read_event(raw))


def observed(*texts):
    content = [{"type": "text", "text": text} for text in texts]
    return json.dumps(
        event("ObservationEvent", observation={"kind": "TerminalObservation", "content": content})
    ).encode()


@pytest.mark.parametrize("value", [TOKEN, ODD, "x" * 2000])
def test_a_value_is_found_as_it_is_and_in_json_within_a_text(value):
    mask = Mask([value])

    for text in (value, json.dumps(value), json.dumps(json.dumps({"a": value})), f"A={value}\n"):
        assert value.strip() not in mask.text(text)
        assert HIDDEN in mask.text(text)
    assert mask.text(f"{value.strip()}{value.strip()}") == HIDDEN


@pytest.mark.parametrize("value", [TOKEN, ODD.strip()])
def test_a_value_is_found_percent_encoded(value):
    mask = Mask([value])

    for coded in (quote(value), quote(value, safe=""), quote_plus(value)):
        assert mask.text(f"?q={coded}&x") == f"?q={HIDDEN}&x"


@pytest.mark.parametrize("before", ["", "u:", "me:", "user:"])
@pytest.mark.parametrize("after", ["", "\n", "@host"])
def test_a_value_is_found_in_base64_wherever_it_stands_in_what_was_encoded(before, after):
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        masked = Mask([TOKEN]).text(encode(f"{before}{TOKEN}{after}".encode()).decode())

        assert HIDDEN in masked
        assert len(masked.replace(HIDDEN, "")) <= 4 + (len(before) + len(after)) * 4 / 3


def test_a_long_value_is_found_in_base64_of_lines_and_by_its_own_lines():
    lines = [f"line {number} of a key that has many" for number in range(20)]
    key = "\n".join(["-----BEGIN KEY-----", *lines, "-----END KEY-----"])
    mask = Mask([key])

    assert not any(line in mask.text(f"1\t{line}") for line in lines)
    coded = base64.encodebytes(key.encode()).decode().splitlines()
    assert not any(line in mask.text("\n".join(coded)) for line in coded if len(line) >= 16)
    assert mask.text("-----BEGIN KEY-----") == "-----BEGIN KEY-----"


@pytest.mark.parametrize("within", ["\u2028", "\x85", "\f", "\v"])
def test_a_line_of_a_long_value_is_found_whole_whatever_stands_in_it(within):
    line = f"begins{within}and-it-ends"

    assert Mask([f"-----BEGIN-----\n{line}\nanother line of it"]).text(f"1\t{line}") == f"1\t{HIDDEN}"


def test_the_credentials_of_a_header_are_found_without_their_scheme():
    assert Mask(["Bearer tok_abcdef"]).text("it is tok_abcdef") == f"it is {HIDDEN}"


def test_a_value_is_masked_in_every_text_of_an_event_and_no_other_byte_changes():
    raw = (
        '{ "id":"1","timestamp":"2026-11-20T20:00:00","source":"agent","kind":"ObservationEvent" ,'
        '"observation":{"kind":"X","content":[{"text":"a \\u00e9 ghp_sesame1 b"},{"text":"é, untouched \\/"}],'
        '"ghp_sesame1":1.0e2,"more":["\\"ghp_sesame1\\""]}}'
    ).encode()

    masked = seen(raw, "ghp_sesame1")

    expected = raw.replace(b"a \\u00e9 ghp_sesame1 b", f"a \\u00e9 {HIDDEN} b".encode())
    assert masked.raw == expected.replace(b"ghp_sesame1", HIDDEN.encode())
    assert masked.fields == json.loads(masked.raw)


def test_an_event_without_a_value_is_the_same_event():
    one = read_event(observed("nothing of it", "ghp", "sesame"))

    assert Mask([TOKEN]).event(one) is one
    assert Mask().event(one) is one


def test_a_value_of_few_characters_is_not_masked():
    assert Mask(["x" * (LEAST - 1)]).text("xxxxxxxxxx") == "xxxxxxxxxx"
    assert Mask(["x" * LEAST]).text("x" * LEAST) == HIDDEN


def test_a_secret_that_is_a_word_of_the_wire_leaves_events_readable():
    one = event("ConversationStateUpdateEvent", "environment", key="execution_status", value="finished")
    words = ["finished", "environment", "execution_status", "ConversationStateUpdateEvent", "timestamp", one["id"]]

    masked = seen(json.dumps(one).encode(), *words)

    assert masked.fields == one


def test_a_value_that_is_split_over_two_outputs_is_masked_in_both():
    value = "0123456789abcdefghij"
    for at in range(8, 13):
        first, second = (seen(observed(text), value).raw for text in (f"x {value[:at]}", f"{value[at:]} y"))
        assert f'"x {HIDDEN}"'.encode() in first
        assert f'"{HIDDEN} y"'.encode() in second
    assert HIDDEN.encode() in seen(observed(value[4:14]), value).raw


def test_a_value_whose_begin_was_cut_off_is_masked_in_what_a_command_has_printed_so_far():
    raw = json.dumps(
        event("CommandOutputEvent", "environment", action_id="a", text="89abcdefghij y", size=999)
    ).encode()

    assert f'"{HIDDEN} y"'.encode() in seen(raw, "0123456789abcdefghij").raw


def test_a_part_of_a_value_within_a_message_stays():
    raw = json.dumps(event("MessageEvent", llm_message={"content": [{"text": "0123456789"}]})).encode()

    assert seen(raw, "0123456789abcdefghij").raw == raw


def test_a_lone_surrogate_in_a_text_or_a_secret_raises_no_error():
    raw = observed("ghp_sesame \ud83d", "\ud83d")

    assert seen(raw, "ghp_sesame", "\ud83d hush hush").raw == raw.replace(b"ghp_sesame", HIDDEN.encode())


def cut(whole, chance, longest):
    """A text or bytes in pieces."""
    while whole:
        size = chance.randint(1, longest)
        yield whole[:size]
        whole = whole[size:]


def printed_by(chance):
    """What a program may print of TOKEN and ODD."""
    words = [TOKEN, ODD, json.dumps(ODD), base64.b64encode(TOKEN.encode()).decode(), TOKEN[:7], "\n", "é ", "ghp_"]
    return "".join(chance.choice(words) for _ in range(20))


@pytest.mark.parametrize("longest", [1, 3, 40])
def test_a_value_that_is_split_over_pieces_is_masked_as_in_one_text(longest):
    mask, chance = Mask([TOKEN, ODD]), random.Random(longest)
    for _ in range(50):
        text = printed_by(chance)
        masked = Masked(mask)

        shown = "".join(masked.feed(piece) for piece in cut(text, chance, longest)) + masked.end()

        assert shown.replace(HIDDEN, "") == mask.text(text).replace(HIDDEN, "")
        assert TOKEN not in shown


def test_only_a_possible_beginning_of_a_secret_is_held_back():
    masked = Masked(Mask([TOKEN]))

    assert masked.feed("nothing of it\n") == "nothing of it\n"
    assert masked.feed("it is ghp_") == "it is "
    assert masked.feed("none") == "ghp_none"
    assert masked.feed(f"{TOKEN[:5]}") + masked.feed(TOKEN[5:]) == HIDDEN
    assert masked.end() == ""


@pytest.mark.parametrize("longest", [1, 7, 500])
def test_a_json_text_that_comes_in_pieces_is_masked_and_stays_json(longest):
    mask, chance = Mask([TOKEN, ODD]), random.Random(longest)
    for indent in (None, 1):
        text = printed_by(chance)
        value = {"items": [{"stdout": text, "id": "é", "n": [1.5, None, text]}], "kind": TOKEN, text: True}
        raw = json.dumps(value, ensure_ascii=bool(indent), indent=indent).encode()

        masked = b"".join(mask.json(cut(raw, chance, longest), 1 << 20))

        shown = mask.text(text)
        assert json.loads(masked) == {
            "items": [{"stdout": shown, "id": "é", "n": [1.5, None, shown]}],
            "kind": TOKEN,  # by which programs know it
            shown: True,
        }


def test_a_json_text_without_a_value_stays_byte_for_byte_and_one_that_is_too_long_is_refused():
    raw = b'{ "a" : "\\u00e9 \\/",\n"b":[1.0e2 , "", {"c": "x"}]} '

    assert b"".join(Mask([TOKEN]).json([raw[:7], raw[7:]], 100)) == raw
    assert b"".join(Mask([TOKEN]).json([b"[1", b",2" * 200, b"]"], 100)) == b"[1" + b",2" * 200 + b"]"
    with pytest.raises(TextTooLong):
        list(Mask([TOKEN]).json([b'{"a": "', b"x" * 200, b'"}'], 100))


def test_many_secrets_are_found_like_few(monkeypatch):
    few = Mask([TOKEN, ODD])
    monkeypatch.setattr(masking, "_MOST_SEARCHED", 0)
    many, chance = Mask([TOKEN, ODD]), random.Random(1)
    for _ in range(50):
        text = printed_by(chance)
        raw = observed(text, "nothing of it é")

        assert many.text(text) == few.text(text)
        assert many.event(read_event(raw)).raw == few.event(read_event(raw)).raw
        assert [many.begin_at_end(text[:end]) for end in range(len(text))] == [
            few.begin_at_end(text[:end]) for end in range(len(text))
        ]


def test_the_most_secrets_of_a_conversation_are_masked_without_a_search_for_each():
    lines = ["\n".join(f"{one}-{line}-of-a-key-of-many-lines" for line in range(250)) for one in range(100)]
    mask = Mask(lines)

    assert mask._anchors is None
    assert mask.text("it is 77-123-of-a-key-of-many-lines, no") == f"it is {HIDDEN}, no"
    assert mask.text("nothing of it\n" * 1000) == "nothing of it\n" * 1000


def test_values_with_credential_names_and_passwords_in_urls_are_found():
    settings = {
        "API_KEY": "the key",
        "llm": {"model": "a-model", "base_url": "https://host/path", "api_key": "another key"},
        "mirrors": "redis://me:pass:word@one/0 and http://:alone@two",
        "others": [{"first": "http://three:80/a@b", "second": "http://four:@x"}],
    }

    assert list(credentials_in(settings)) == ["the key", "another key", "pass:word", "alone"]


def test_credentials_among_the_arguments_of_a_program_are_found():
    """As the settings of an MCP server have them."""
    arguments = [
        "serve",
        "--api-key",
        "key one",
        "--token=key two",
        "API_KEY=key three",
        "-H",
        "Authorization: Bearer 4",
    ]
    others = [["https://me:five@host"], "redis://:six@host", "--port", "8000", "--verbose", "--secret", "--quiet"]

    found = list(credentials_in({"mcp_servers": {"one": {"args": arguments + others}}}))

    assert found == ["key one", "key two", "key three", "Bearer 4", "4", "five", "six"]


def test_a_response_shows_no_password_of_a_url_and_no_credential_among_arguments():
    agent = {
        "llm": {"model": "a-model", "base_url": "https://me:hush@host/v1"},
        "acp_command": ["agent", "--token", "hush", "--api-key=hush", "--verbose", "--port", "8000"],
        "mcp_config": {"one": {"url": "https://host/mcp", "args": [["redis://:hush@two"]]}},
    }

    assert redacted(agent) == {
        "llm": {"model": "a-model", "base_url": REDACTED},
        "acp_command": ["agent", "--token", REDACTED, REDACTED, "--verbose", "--port", "8000"],
        "mcp_config": {"one": {"url": "https://host/mcp", "args": [[REDACTED]]}},
    }


def test_a_message_about_a_body_shows_none_of_its_secrets():
    body = {"base_url": "https://me:hush-hush@host/v1", "args": ["--token=a-token"], "api_key": "a key"}

    said = without_secrets_of(body, "hush-hush is wrong for https://me:hush-hush@host/v1, so are a-token and a key")

    assert said == f"{REDACTED} is wrong for {REDACTED}, so are {REDACTED} and {REDACTED}"


@pytest.mark.parametrize("begin", ["://", "://:", "://a:b", "://:@"])
@pytest.mark.parametrize("unit", [":", "://", "://:", "x"])
def test_a_long_text_is_searched_in_time_in_proportion_to_its_length(begin, unit):
    """A search that tried every colon as the one before the password would take hours."""
    text = begin + unit * (1 << 18)

    assert set(credentials_in({"text": text, "args": [text]})) <= {""}

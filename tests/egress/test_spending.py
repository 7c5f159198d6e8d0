"""What responses of models say of their usage, however they are cut; the budgets, and the shape of a refusal."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import ConnectionError as RedisDown

from core.prices import NO_BUDGETS, Budgets, ModelBudget, Prices, Used, read_prices
from egress import spending as room
from egress.spending import Accounts, ModelCall, OverBudget, UsageReader, check, refused, used_of
from store.spending import Account, SoFar
from tests.store.conftest import fresh_sandboxes

CHAT = {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 40}}
RESPONSES = {"input_tokens": 100, "output_tokens": 10, "input_tokens_details": {"cached_tokens": 40}}
MESSAGES = {"input_tokens": 60, "output_tokens": 10, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 5}

OPENAI = Used(input=60, output=10, cached=40)
ANTHROPIC = Used(input=60, output=10, cached=40, written=5)


def sse(*events, ending="\n") -> bytes:
    lines = []
    for event in events:
        if isinstance(event, dict) and "type" in event:
            lines.append(f"event: {event['type']}")
        lines += [f"data: {event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)}", ""]
    return "".join(line + ending for line in lines).encode()


def delta(text: str) -> dict:
    return {"model": "gpt-5.5", "choices": [{"delta": {"content": text}}], "usage": None}


#: a name, the body of a response, what it used, and its model
BODIES = {
    "chat": (json.dumps({"model": "gpt-5.5", "choices": [], "usage": CHAT}).encode(), OPENAI, "gpt-5.5"),
    "chat, indented": (json.dumps({"model": "m", "usage": CHAT}, indent=2).encode(), OPENAI, "m"),
    "chat, streamed": (
        sse(delta('"usage": {"prompt_tokens": 9}'), delta("ü\u2028x"), {"choices": [], "usage": CHAT}, "[DONE]"),
        OPENAI,
        "gpt-5.5",
    ),
    "chat, streamed with CRLF": (sse(delta("a"), {"usage": CHAT}, "[DONE]", ending="\r\n"), OPENAI, "gpt-5.5"),
    "chat, streamed with CR": (sse(delta("a"), {"usage": CHAT}, "[DONE]", ending="\r"), OPENAI, "gpt-5.5"),
    "chat, counted as it grows": (
        sse({**delta("a"), "usage": {"prompt_tokens": 100, "completion_tokens": 1}}, {"usage": CHAT}, "[DONE]"),
        OPENAI,
        "gpt-5.5",
    ),
    "chat, a comment before, nothing after": (
        b": go\n\n" + sse(delta("a"), {"usage": CHAT}).rstrip(),
        OPENAI,
        "gpt-5.5",
    ),
    "responses": (json.dumps({"model": "o3", "output": [], "usage": RESPONSES}).encode(), OPENAI, "o3"),
    "responses, streamed": (
        sse(
            {"type": "response.created", "response": {"model": "o3", "usage": None}},
            {"type": "response.output_text.delta", "delta": "a"},
            {"type": "response.completed", "response": {"model": "o3", "usage": RESPONSES}},
        ),
        OPENAI,
        "o3",
    ),
    "messages": (json.dumps({"type": "message", "model": "claude", "usage": MESSAGES}).encode(), ANTHROPIC, "claude"),
    "messages, streamed": (
        sse(
            {"type": "message_start", "message": {"model": "claude", "usage": {**MESSAGES, "output_tokens": 1}}},
            {"type": "content_block_delta", "delta": {"text": "a"}},
            {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 10}},
            {"type": "message_stop"},
        ),
        ANTHROPIC,
        "claude",
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_usage_is_found_wherever_a_response_is_cut(name):
    body, used, model = BODIES[name]

    @given(st.lists(st.integers(0, len(body)), max_size=8))
    def found(cuts):
        reader, places = UsageReader(), [0, *sorted(cuts), len(body)]
        for begin, end in pairwise(places):
            reader.read(body[begin:end])
        reader.end()
        assert (reader.used, reader.model, reader.size) == (used, model, len(body))

    found()


@pytest.mark.parametrize("name", BODIES)
def test_usage_is_found_byte_by_byte_and_before_the_last_byte_of_a_stream(name):
    body, used, _ = BODIES[name]
    reader = UsageReader()
    for at in range(len(body)):
        reader.read(body[at : at + 1])
    assert reader.is_over == ("streamed" in name or "grows" in name)
    reader.end()
    assert reader.used == used


@pytest.mark.parametrize(
    ("usage", "used"),
    [
        ({"prompt_tokens": 5, "total_tokens": 5}, Used(5)),  # embeddings
        ({"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 4}, Used(5, 1, 4)),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3}},
            Used(2, 0, 4, 3),
        ),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 9}}, Used(0, 0, 3)),
        ({"prompt_tokens": 10, "completion_tokens": 31, "total_tokens": 90_041}, Used(10, 90_031)),  # of reasoning
        ({"prompt_tokens": 10, "completion_tokens": 31, "total_tokens": 41}, Used(10, 31)),
        ({"input_tokens": 10, "output_tokens": 3, "total_tokens": 50, "input_tokens_details": {}}, Used(10, 40)),
        ({"input_tokens": 31, "output_tokens": 10, "total_tokens": 90_041}, Used(31, 90_010)),
        ({"input_tokens": 3, "output_tokens": 2, "cache_read_input_tokens": 5, "total_tokens": 10}, Used(3, 2, 5)),
        ({"prompt_tokens": "9", "completion_tokens": 1.5, "prompt_tokens_details": []}, Used(9, 2)),
        ({"prompt_tokens": True, "completion_tokens": 1}, None),
        ({"prompt_tokens": 1, "completion_tokens": -1}, None),
        ({"prompt_tokens": 1, "completion_tokens": "many"}, None),
        ({"prompt_tokens": 1, "completion_tokens": float("inf")}, None),
        ({"input_tokens": 2, "output_tokens": 3, "input_tokens_details": None}, Used(2, 3)),
        ({"input_tokens": 1 << 40, "output_tokens": 3}, None),
        ({"seconds": 3}, None),
        ({}, None),
    ],
)
def test_a_usage_is_read_by_its_shape(usage, used):
    assert used_of(usage) == used


@given(st.lists(st.binary(max_size=200), max_size=6))
def test_a_body_of_any_bytes_is_read_to_its_end(pieces):
    reader = UsageReader()
    for piece in pieces:
        reader.read(piece)
    reader.end()
    assert reader.size == sum(map(len, pieces))


def test_a_longer_event_than_is_read_is_left_out_and_of_a_longer_document_the_end_is_read(monkeypatch):
    monkeypatch.setattr(room, "MOST_READ", 100)
    reader = UsageReader()
    for piece in (sse(delta("a")), b"data: " + b"x" * 200, b"y" * 200 + b"\n\n", sse({"usage": CHAT}, "[DONE]")):
        reader.read(piece)
    assert (reader.used, reader.is_over) == (OPENAI, True)

    for end, used in ((b'", "usage": {"prompt_tokens": 1}}', Used(1)), (b'"}', None), (b'", "usage": {"prompt', None)):
        reader = UsageReader()
        for piece in (b'{"model": "m", "a": "', b"x" * 100_000, b'\\"usage\\": {\\"prompt_tokens\\": 9}', end):
            reader.read(piece)
        assert len(reader._rest) < 70_000
        reader.end()
        assert (reader.used, reader.is_over) == (used, True)


# budgets


def account(nanos=0, tokens=0, unpriced=0, model="") -> Account:
    return Account(
        "me", SoFar(0, 0, 0, ""), SoFar(nanos, tokens, unpriced, model), SoFar(nanos, tokens, unpriced, model)
    )


DOLLAR = ModelBudget(nanos=1_000_000_000)


def test_a_budget_admits_calls_until_it_is_used_up():
    budgets = Budgets(day=ModelBudget(1_000_000_000, 500))
    check(budgets, account(999_999_999, 499), Prices())
    with pytest.raises(OverBudget, match=r"All .* \$1\.0000 of \$1 \(MODEL_BUDGET_DAY\)") as over:
        check(budgets, account(1_000_000_000), Prices())
    assert over.value.setting == "MODEL_BUDGET_DAY"
    with pytest.raises(OverBudget, match=r"500 of 500 tokens \(MODEL_BUDGET_DAY\)"):
        check(budgets, account(0, 500), Prices())
    with pytest.raises(OverBudget, match=r"of this key .* \(MODEL_BUDGET_KEY\)"):
        check(Budgets(key=DOLLAR, day=DOLLAR), account(2_000_000_000), Prices())
    check(NO_BUDGETS, account(1 << 60, 1 << 60), Prices())


def test_what_has_no_price_ends_a_budget_in_dollars_unless_it_counts_tokens_too():
    spent = account(0, 10, unpriced=10, model="mine")
    with pytest.raises(OverBudget, match=r"the model mine, whose price is not known: name its price in MODEL_PRICES"):
        check(Budgets(day=DOLLAR), spent, Prices())
    check(Budgets(day=ModelBudget(1_000_000_000, 11)), spent, Prices())
    check(Budgets(day=ModelBudget(tokens=11)), spent, Prices())
    check(Budgets(day=DOLLAR), spent, Prices(read_prices("mine=0/0")))  # it has got one since


def test_a_refusal_has_the_shape_of_the_provider():
    over = OverBudget("MODEL_BUDGET_DAY", "Used up")
    status, body = refused("/v1/chat/completions", [], over)
    assert (status, body["error"]["code"], body["error"]["message"]) == (429, "insufficient_quota", "Used up")
    told = {"type": "error", "error": {"type": "billing_error", "message": "Used up"}}
    assert refused("/v1/messages", [], over) == (402, told)
    assert refused("/x", [(b"Anthropic-Version", b"2023-06-01")], over) == (402, told)


# calls


@pytest.fixture
def here(store, redis_url):
    """Accounts without budgets, and a sandbox that a key has started, of a store without others."""
    sandbox = fresh_sandboxes(redis_url).start("spec", owner="me").id
    return store.spending, Accounts(store.spending, NO_BUDGETS, Prices()), sandbox


def call(here, path="/v1/chat/completions", model="") -> ModelCall:
    _, accounts, sandbox = here
    return ModelCall(accounts, sandbox, accounts.admit(sandbox, "api.example", 443), path, model)


def test_a_call_is_booked_before_the_last_piece_of_its_response(here):
    spending, _, sandbox = here
    body, used, _ = BODIES["chat, streamed"]
    streamed, whole = call(here), call(here)
    streamed.begin(200, [(b"content-type", b"text/event-stream")])
    streamed.read(body[:-20], 50)
    assert spending.of_sandbox(sandbox).calls == 0
    streamed.read(body[-20:], 50)
    assert (spending.of_sandbox(sandbox).calls, spending.of_sandbox(sandbox).tokens) == (1, used.tokens)
    streamed.book(50, is_whole=True)

    body, _, _ = BODIES["chat"]
    whole.begin(200, [(b"Content-Length", b"%d" % len(body))])
    whole.read(body[:-1], 50)
    assert spending.of_sandbox(sandbox).calls == 1
    whole.read(body[-1:], 50)
    found = spending.of_sandbox(sandbox)
    assert (found.calls, found.tokens, found.estimated) == (2, 2 * used.tokens, 0)
    assert found.nanos == 2 * Prices().of("gpt-5.5").nanos(used)
    assert spending.so_far(sandbox).key.tokens == 2 * used.tokens


def test_usage_that_grows_after_it_was_booked_is_booked_once(here):
    spending, _, sandbox = here
    made = call(here)
    made.begin(200, [])
    made.read(sse({"usage": {"prompt_tokens": 10, "completion_tokens": 1}}, "[DONE]"), 0)
    made.read(sse({"usage": {"prompt_tokens": 10, "completion_tokens": 7}}), 0)
    made.book(0, is_whole=True)
    found = spending.of_sandbox(sandbox)
    assert (found.calls, found.input, found.output) == (1, 10, 7)


def test_a_response_that_breaks_off_or_says_nothing_is_estimated(here):
    spending, _, sandbox = here
    broken, silent, begun = call(here), call(here, model="gpt-5.5"), call(here)
    broken.begin(200, [])
    broken.read(sse(delta("a"), delta("b"), delta("c")), 400)
    broken.book(400, is_whole=False)
    found = spending.of_sandbox(sandbox)
    assert (found.calls, found.estimated, found.input, found.output) == (1, 1, 100, 3)

    silent.begin(200, [])
    silent.read(b'{"text": "%s"}' % (b"x" * 28), 400)
    silent.book(400, is_whole=True)
    found = spending.of_sandbox(sandbox)
    assert (found.estimated, found.input, found.output, found.unpriced) == (2, 200, 13, 0)

    body, _, _ = BODIES["messages, streamed"]
    begun.begin(200, [])
    begun.read(body.partition(b"event: message_delta")[0], 400)
    begun.book(400, is_whole=False)
    found = spending.of_sandbox(sandbox)
    assert (found.estimated, found.input, found.output, found.written) == (3, 260, 15, 5)


def test_errors_and_calls_without_tokens_cost_nothing(here):
    spending, _, sandbox = here
    for status, path in ((500, "/v1/chat/completions"), (200, "/v1/messages/count_tokens")):
        made = call(here, path)
        made.begin(status, [])
        made.read(b'{"input_tokens": 100}', 400)
        made.book(400, is_whole=True)
    assert spending.of_sandbox(sandbox).calls == 0


def test_what_could_not_be_booked_is_booked_before_the_next_call_is_admitted(here, monkeypatch):
    spending, accounts, sandbox = here
    made = call(here)
    made.begin(200, [])
    book = spending.book

    def fail(*_, **__):
        raise RedisDown

    monkeypatch.setattr(spending, "book", fail)
    made.read(BODIES["chat"][0], 0)
    made.book(0, is_whole=True)
    with pytest.raises(RedisDown):
        accounts.admit(sandbox, "api.example", 443)
    monkeypatch.setattr(spending, "book", book)
    assert accounts.admit(sandbox, "api.example", 443) == "me"
    assert spending.of_sandbox(sandbox).calls == 1


def test_a_refused_call_is_counted_and_names_the_setting(here):
    spending, _, sandbox = here
    accounts = Accounts(spending, Budgets(conversation=ModelBudget(tokens=1)), Prices())
    assert accounts.admit(sandbox, "api.example", 443) == "me"
    accounts.book(sandbox, "me", "mine", Used(1), calls=1, estimated=0)
    with pytest.raises(OverBudget, match="MODEL_BUDGET_CONVERSATION"):
        accounts.admit(sandbox, "api.example", 443)
    assert (spending.of_sandbox(sandbox).refused, spending.of_sandbox(sandbox).unpriced) == (1, 1)

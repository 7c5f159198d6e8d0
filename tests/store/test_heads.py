"""The heads of scripts as contracts: which Lua gets its arguments, and which Python reads its replies."""

import ast

import pytest

from core.wire import Micros
from docs import script_calls
from store.errors import UnknownReply
from store.scripts import heads
from store.scripts.calls import AskSandbox, Calls, LogState, SendMessage
from tests.servers import PROJECT

CALLS = PROJECT / "store" / "scripts" / "calls.py"

SHAPES = {"stamp": (heads.Field("iso", "text"), heads.Field("score", "micros"))}


def contract(arguments: str, reply: str = "missing") -> heads.Contract:
    return heads.contract("do_it.lua", {"ARGV": arguments, "Returns": reply}, SHAPES)


def run(lua: str, words: list[str]) -> None:
    """Run Lua with words as its arguments."""
    runtime = pytest.importorskip("lupa.lua51").LuaRuntime()
    runtime.globals().ARGV = runtime.table_from(words)
    runtime.execute(lua)


@pytest.mark.parametrize(
    ("arguments", "words", "holds"),
    [
        ("id:text  most:int sandboxes that may run", ["a", "20"], "id == 'a' and most == 20"),
        ("at:micros", ["1795848512000001"], "at == '1795848512000001'"),
        ("run:flag  wait:flag", ["1", ""], "run == true and wait == false"),
        ("at:int?", [""], "at == nil"),
        ("stamp:stamp  id:text", ["now", "5", "a"], "stamp.iso == 'now' and stamp.score == '5' and id == 'a'"),
        ("id:text  ids:text*", ["a", "b", "c"], "#ids == 2 and ids[2] == 'c'"),
        ("ids:int*", [], "#ids == 0"),
        ("fields:map*", ["name", "value"], "fields[1] == 'name' and fields[2] == 'value'"),
        ("a:text[]  b:map*", ["2", "x", "y", "n", "v"], "#a == 2 and a[2] == 'y' and #b == 2 and b[1] == 'n'"),
        ("a:text[]  b:map*", ["0", "n", "v"], "#a == 0 and #b == 2"),
    ],
)
def test_arguments_are_locals_of_the_body(arguments, words, holds):
    run(f"{heads.preamble(contract(arguments))}assert({holds})", words)


def test_rows_are_iterated_as_often_as_the_body_likes():
    lua = heads.preamble(contract("id:text  rows:(name:text at:int last:flag)*"))
    loop = (
        "local sum, last = 0, 0\nfor name, at, is_last in rows() do sum, last = sum + at, is_last and at or last end\n"
    )

    run(f"{lua}for i = 1, 2 do\n{loop}assert(sum == 12 and last == 7)\nend", ["id", "a", "5", "", "b", "7", "1"])


@pytest.mark.parametrize(
    ("words", "taken"),
    [
        (["7", "2", "x", "y", "1", "a", "3", "z"], [b"7", b"x", b"y", b"a+3", b"z"]),
        (["7", "0", "2", "a", "3", "b", "4"], [b"7", b"a+3", b"b+4"]),
        (["7", "0", "0"], [b"7"]),
    ],
)
def test_lists_of_which_the_number_is_sent_are_told_from_what_follows(store, words, taken):
    says = "first:digits  names:text[]  rows:(name:text number:int)[]  rest:text*"
    read = contract(says)
    body = (
        "local taken = {first}\n"
        "for _, name in ipairs(names) do taken[#taken + 1] = name end\n"
        "for name, number in rows() do taken[#taken + 1] = name .. '+' .. number end\n"
        "for _, one in ipairs(rest) do taken[#taken + 1] = one end\n"
        "return taken"
    )

    assert store.conversations._redis.eval(heads.preamble(read) + body, 0, *words) == taken


@pytest.mark.parametrize(
    ("arguments", "reply", "problem"),
    [
        ("1 id", "missing", "its line ARGV has '1 id', and should have name:type there"),
        ("id:word", "missing", "'id' has the type 'word', which is none of text, "),
        ("end:text", "missing", "its argument 'end' has a name that Lua, Python or the scripts have already"),
        ("from:text", "missing", "its argument 'from' has a name"),
        ("ids:text*  id:text", "missing", "its argument 'ids' takes the rest, so it must be the last one"),
        ("ids:text[]  id:text", "missing", "its arguments that have many words must come after the others"),
        ("fields:map", "missing", "its argument 'fields' is a map"),
        ("none", '"done"(at:second)', "'at' has the type 'second'"),
        ("none", '"done"(at)', "'at' has no type"),
        ("none", '"done"(at:int', "a row has no closing bracket"),
        ("none", '"done" int', "'int' is too much"),
        ("none", "", "names neither an outcome nor a type"),
    ],
)
def test_a_line_that_declares_nothing_is_an_error_with_the_scripts_name(arguments, reply, problem):
    with pytest.raises(ValueError, match=r"^do_it\.lua: ") as refused:
        contract(arguments, reply)

    assert problem in str(refused.value)


class Answering(Calls):
    """Scripts that reply with the same whatever they are sent, which is kept."""

    def __init__(self, reply: object) -> None:
        self.sent: list[object] = []
        self._ask_sandbox = self._send_message = self._find_events = self._count_events = self._answer
        self._reply = reply

    def _answer(self, keys: list[str], args: list[object]) -> object:
        self.sent += (keys, args)
        return self._reply


def ask(scripts: Calls):
    return scripts.ask_sandbox("root", id="a", verb="pause", most=2, host_span=3, trace="", used_at=0)


def test_a_call_sends_its_arguments_in_the_order_of_the_head():
    scripts = Answering(None)

    assert ask(scripts) is None
    assert scripts.sent == [["root"], ["a", "pause", 2, 3, "", 0]]


@pytest.mark.parametrize(
    ("reply", "read"),
    [
        (b"done", "done"),
        ([b"done"], "done"),
        ([b"full", 7], AskSandbox.Full(7)),
        ([b"lost", b"h"], AskSandbox.Lost("h")),
    ],
)
def test_an_outcome_is_its_word_or_an_object_with_its_fields(reply, read):
    assert ask(Answering(reply)) == read
    assert type(ask(Answering(reply))) is type(read)


@pytest.mark.parametrize("reply", [b"other", [b"full"], [b"full", 7, 8], [], 3])
def test_a_reply_that_the_head_does_not_name_is_a_failure(reply):
    with pytest.raises(UnknownReply, match="ask_sandbox"):
        ask(Answering(reply))


def test_a_shape_within_a_reply_is_an_object():
    state = [5, b"idle", b"then", b"now", b"", b"null", b"1", b""]
    named = {"id": "i", "pair": "p", "event": b"", "record": b"", "run": True, "reason": '""', "actor": "{}"}
    named |= {"voter": "v", "rights": ""}
    scripts = Answering([b"early", *state, b"17"])

    read = scripts.send_message("root", stamp=Args(("s",)), may_decide=False, most_bytes=9, **named)

    assert read == SendMessage.Early(LogState(5, "idle", "then", "now", "", "null", True, False), Micros(17))
    assert scripts.sent[1] == ["s", "i", "p", b"", b"", "1", '""', "", "{}", "v", "", 9]


class Args:
    """A stamp with these words."""

    def __init__(self, args: tuple[str, ...]) -> None:
        self.args = args


def test_an_absent_value_of_a_list_is_none():
    assert Answering([3, None, b"4"]).find_events("root", ids=["a", "b", "c"]) == [3, None, 4]


def shape(module: str) -> list[str]:
    """A module without its imports, and however it is laid out."""
    return [ast.dump(one) for one in ast.parse(module).body if not isinstance(one, ast.ImportFrom)]


def test_the_module_of_calls_is_that_of_the_heads():
    assert shape(CALLS.read_text()) == shape(script_calls.calls()), "run `make docs`"

"""The Lua by which a script takes its arguments, from the line ARGV of its head."""

import pytest

from store.scripts.heads import contract, preamble


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
    read = contract("do_it.lua", {"ARGV": says, "Returns": "any"}, {})
    body = (
        "local taken = {first}\n"
        "for _, name in ipairs(names) do taken[#taken + 1] = name end\n"
        "for name, number in rows() do taken[#taken + 1] = name .. '+' .. number end\n"
        "for _, one in ipairs(rest) do taken[#taken + 1] = one end\n"
        "return taken"
    )

    assert store.conversations._redis.eval(preamble(read) + body, 0, *words) == taken


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        ("names:text[]  first:int", "that have many words must come after the others"),
        ("names:text*  more:text[]", "'names' takes the rest, so it must be the last one"),
        ("name:word", "'name' has the type 'word', which is none of text, "),
    ],
)
def test_a_line_that_cannot_be_taken_apart_ends_the_start(says, problem):
    with pytest.raises(ValueError, match=f"^do_it.lua: .*{problem}"):
        contract("do_it.lua", {"ARGV": says, "Returns": "any"}, {})

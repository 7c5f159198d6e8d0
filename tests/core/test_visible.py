"""What a person is shown has nothing that does not show as itself."""

import subprocess
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.visible import is_seen, visible
from tests.servers import program

SHOWN = [
    ("plain text\nof two lines", "plain text\nof two lines"),
    ("żółw 写 שלום 👍", "żółw 写 שלום 👍"),
    ("\x1b[2J", "\\u{1b}[2J"),
    ("a\rb\tc\x00\x7f\x9b", "a\\u{d}b\\u{9}c\\u{0}\\u{7f}\\u{9b}"),
    ("txt.\u202eexe", "txt.\\u{202e}exe"),
    ("\u2066a\u2069\u200f\u061c", "\\u{2066}a\\u{2069}\\u{200f}\\u{61c}"),
    ("rm\u00a0-rf\u3000/", "rm\\u{a0}-rf\\u{3000}/"),
    ("zero\u200bwidth\u2060\ufeff", "zero\\u{200b}width\\u{2060}\\u{feff}"),
    ("\u2028\u2029", "\\u{2028}\\u{2029}"),
    ("tag\U000e0041s", "tag\\u{e0041}s"),
    ("blank\u3164\u2800\uffa0", "blank\\u{3164}\\u{2800}\\u{ffa0}"),
    ("hidden\ufe0f\U000e0100", "hidden\\u{fe0f}\\u{e0100}"),
    ("joined\u034f\u17b4\u17b5\u180f", "joined\\u{34f}\\u{17b4}\\u{17b5}\\u{180f}"),
    ("note\U00016fe4\U0001d159", "note\\u{16fe4}\\u{1d159}"),
    ("\ud800", "\\u{d800}"),
]


def test_a_character_that_does_not_show_as_itself_is_an_escape():
    assert [(text, visible(text)) for text, _ in SHOWN] == SHOWN


@pytest.mark.process("starts a program")
def test_no_character_that_unicode_lets_a_program_ignore_is_shown():
    """Perl has Unicode's table of the property."""
    each = 'chr($_) =~ /\\p{Default_Ignorable_Code_Point}/ and print "$_\\n" for 0 .. 0xd7ff, 0xe000 .. 0x10ffff'
    ignorable = subprocess.run([program("perl"), "-e", each], capture_output=True, text=True, check=True).stdout.split()

    assert len(ignorable) > 4000
    assert not [hex(int(one)) for one in ignorable if is_seen(chr(int(one)))]


@given(st.text(st.characters(exclude_categories=())))
def test_no_control_or_format_character_is_left_of_any_text(text):
    left = visible(text).replace("\n", "")

    assert not {unicodedata.category(one) for one in left} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert visible(left) == left
    assert all(is_seen(one) for one in left)
    left.encode()

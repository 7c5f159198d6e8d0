"""The terminals of a sandbox that may open none."""

import os
import termios

import pytest

from core.pseudo_terminals import PseudoTerminals, named


@pytest.fixture
def pairs():
    pairs = [os.openpty() for _ in range(2)]
    yield pairs
    for file in [end for pair in pairs for end in pair]:
        os.close(file)


@pytest.fixture
def terminals(pairs):
    return PseudoTerminals(named(pairs))


def test_each_given_terminal_is_opened_once_and_again_after_it_was_closed(terminals, pairs):
    opened = [terminals.open() for _ in pairs]
    with pytest.raises(OSError, match="all 2 terminals of this sandbox are in use: close one, or end a conversation"):
        terminals.open()

    terminals.close(*opened[0])

    assert sorted(opened) == sorted(pairs)
    assert terminals.open() == opened[0]


def test_a_terminal_that_is_opened_again_is_as_new(terminals, pairs):
    master, slave = terminals.open()
    new = termios.tcgetattr(slave)
    changed = [*new[:3], new[3] & ~termios.ECHO & ~termios.ICANON, *new[4:]]
    termios.tcsetattr(slave, termios.TCSANOW, changed)
    os.write(master, b"typed")
    terminals.close(master, slave)

    assert terminals.open() == (master, slave)
    assert termios.tcgetattr(slave) == new
    os.write(master, b"new\n")
    assert os.read(slave, 100) == b"new\n"


def test_without_given_terminals_new_ones_are_opened_and_closed():
    terminals = PseudoTerminals()

    master, slave = terminals.open()
    terminals.close(master, slave)

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(slave)

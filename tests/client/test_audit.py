"""`agentctl audit`: who decided what, in words."""

from uuid import uuid4

import pytest

from tests.conftest import action


@pytest.fixture
def decided(ctl, client, started):
    """Start a conversation in which one command is approved, or rejected."""

    def decided(command: str, verb: str = "approve") -> str:
        one = started(title=f"Title of {command}")
        client.post(f"/api/v1/webhooks/events/{one}", json=[action(command)])
        ctl(verb, one, "--yes") if verb == "approve" else ctl(verb, one)
        return one

    return decided


def test_an_entry_names_the_decision_the_command_and_the_conversation(ctl, decided):
    command = f"make {uuid4().hex}"
    decided(command)

    (line,) = ctl("audit", command).stdout.splitlines()

    when, decision, who, what, title = line.split("\t")
    assert (decision, what, title) == ("approve", command, f"Title of {command}")
    assert who
    assert when.endswith("Z")


def test_entries_are_filtered_by_words_and_by_decision_and_the_newest_comes_first(ctl, decided):
    word = uuid4().hex
    decided(f"first {word}")
    decided(f"second {word}", "reject")
    decided(f"third {word}")

    def whats(*words: str) -> list[str]:
        return [line.split("\t")[3] for line in ctl("audit", word, *words).stdout.splitlines()]

    assert whats() == [f"third {word}", f"second {word}", f"first {word}"]
    assert whats("--decision", "reject") == [f"second {word}"]
    assert whats("--tool", "nothing") == []


def test_more_than_is_shown_is_said(ctl, decided):
    word = uuid4().hex
    decided(f"first {word}")
    decided(f"second {word}")

    shown = ctl("audit", word, "-n", "1")

    assert len(shown.stdout.splitlines()) == 1
    assert "1 shown, and there are more" in shown.stderr

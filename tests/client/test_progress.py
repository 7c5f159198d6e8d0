"""What is shown of an agent at work: what it does, the text that comes, and the output of a command."""

import io
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from agent_server_client import Client
from agent_server_client.cli.ages import Ages
from agent_server_client.cli.live import Followed, followed
from agent_server_client.cli.program import CommandSession
from agent_server_client.cli.progress import EventProgress, took
from agent_server_client.wire import Entry
from rich.console import Console
from rich.live import Live

from tests.client.responses import responding
from tests.conftest import action, message, observation, status


class ProgressClock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return ProgressClock()


@pytest.fixture
def progress(clock):
    made = EventProgress(clock)
    made.take(status("running"))
    return made


def console(width: int = 60, encoding: str = "utf-8") -> Console:
    return Console(file=io.TextIOWrapper(io.BytesIO(), encoding), width=width, force_terminal=True, color_system=None)


def lines(progress: EventProgress, width: int = 60, most: int = 20) -> list[str]:
    return [line.plain for line in progress.lines(console(width), most)]


def delta(content: str | None = None, reasoning: str | None = None) -> dict:
    parts = {"content": content, "reasoning_content": reasoning}
    return {"kind": "StreamingDeltaEvent", "source": "agent", **parts}


def printed(text: str, of: str = "a") -> dict:
    return {"kind": "CommandOutputEvent", "source": "environment", "action_id": of, "text": text, "size": len(text)}


@pytest.mark.parametrize(
    ("seconds", "words"), [(-1, "0 s"), (12.9, "12 s"), (125, "2 min 5 s"), (3780, "1 h 3 min"), (3600, "1 h 0 min")]
)
def test_a_time_is_told_in_its_two_largest_units(seconds, words):
    assert took(seconds) == words


def test_a_model_that_thinks_is_shown_with_its_seconds_and_one_that_does_nothing_is_not(progress, clock):
    clock.now += 12.4
    assert progress.doing == "waits for the model, 12 s"
    assert [line[2:] for line in lines(progress)] == ["waits for the model, 12 s"]
    for stopped in ("finished", "idle", "paused", "error", "stuck", "waiting_for_confirmation"):
        progress.take(status(stopped))
        assert lines(progress) == []


def test_a_command_that_runs_is_shown_with_the_end_of_its_output(progress, clock):
    progress.take(action("pytest -q", id="a"))
    clock.now += 34
    assert progress.doing == "terminal: pytest -q, 34 s"
    progress.take(printed("".join(f"line {number}\n" for number in range(9))))
    assert [line[2:] for line in lines(progress)] == [*(f"line {number}" for number in range(4, 9)), progress.doing]
    progress.take(observation({"id": "a"}))
    assert progress.doing == "waits for the model, 0 s"
    assert len(lines(progress)) == 1


def test_a_long_command_leaves_its_time_in_sight(progress, clock):
    progress.take(action("echo 漢字漢字 " + "x" * 100, id="a"))
    clock.now += 125
    [line] = lines(progress, width=40)
    assert line[2:] == "terminal: echo 漢字漢字 x…, 2 min 5 s"


def test_of_several_actions_the_first_without_a_result_runs(progress):
    progress.take(action("one", id="a"))
    progress.take(action("two", id="b", tool_call_id="call_b"))
    progress.take(printed("of another", of="b"))
    assert [line[2:] for line in lines(progress)] == ["terminal: one, 0 s"]
    progress.take(observation({"id": "a"}))
    assert progress.doing == "terminal: two, 0 s"
    progress.take({"kind": "AgentErrorEvent", "source": "agent", "tool_call_id": "call_b", "error": "no such tool"})
    assert progress.doing == "waits for the model, 0 s"


def test_text_is_shown_while_it_comes_and_its_event_takes_its_place(progress):
    progress.take(delta(reasoning="I should greet."))
    assert lines(progress)[0] == "  I should greet."
    progress.take(delta("Hello"))
    progress.take(delta(" world"))
    assert lines(progress)[0] == "  Hello world"
    assert progress.doing == "writing 0 s"
    progress.take(message("a steering word"))
    assert lines(progress)[0] == "  Hello world"
    progress.take(message("Hello world", "agent"))
    assert [line[2:] for line in lines(progress)] == ["waits for the model, 0 s"]


def test_a_long_text_shows_its_end_in_the_rows_that_are_free(progress):
    progress.take(delta("".join(f"line {number}\n" for number in range(100)) + "漢字" * 38))
    shown = lines(progress, width=41, most=6)
    assert len(shown) == 6
    assert shown[:2] == ["  line 99", "  " + ("漢字" * 10)[:19]]
    assert len(lines(progress, most=1)) == 1


def test_escapes_stay_inert_in_halves_and_a_colour_shows_nothing(progress):
    for piece in ("red \x1b", "[31mtext\x1b[0", "m \x1b]0;title\x07\u202e"):
        progress.take(delta(piece))
        assert "\x1b" not in "".join(lines(progress))
    assert lines(progress)[0] == "  red \\u{1b}[31mtext\\u{1b}[0m \\u{1b}]0;title\\u{7}\\u{202e}"
    progress.take(delta("\x1b[3"))
    assert lines(progress)[0].endswith("\\u{202e}")

    progress.take(action("make \x1b[2J\nsecond", id="a"))
    progress.take(printed("\x1b[32mok\x1b[0m\r\n 10 %\r 99 %\x1b["))
    assert [line[2:] for line in lines(progress)] == ["ok", " 99 %", "terminal: make \\u{1b}[2J … (+1 line), 0 s"]


def test_a_lost_connection_is_shown_until_something_comes_or_a_moment_has_passed(progress, clock):
    progress.tell("The server does not answer")
    assert progress.doing == "The server does not answer"
    progress.take(delta("more"))
    assert progress.doing == "writing 0 s"
    progress.tell("The server does not answer")
    clock.now += 10
    assert progress.doing == "writing 10 s"


def test_a_terminal_without_unicode_gets_a_plain_spinner(progress):
    [line] = progress.lines(console(encoding="latin-1"), 5)
    assert line.plain[0] in "|/-\\"


def test_what_an_agent_does_that_works_already_is_known_from_the_entries_before():
    progress, now = EventProgress(), {"timestamp": datetime.now(UTC).isoformat()}
    shown = Followed(CommandSession(), Live(console=console()), progress, Ages(Client("http://server")), False)
    shown.begin([Entry(1, status("running") | now), Entry(2, action("make", id="a") | now)])
    assert progress.doing.startswith("terminal: make, ")


#: where clocks of a test begin
NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)


def at(seconds: float, event: dict) -> dict:
    return event | {"timestamp": (NOON + timedelta(seconds=seconds)).isoformat()}


@pytest.mark.parametrize("ahead", [0.0, 3600.0, -3600.0], ids=["alike", "ahead", "behind"])
def test_a_terminal_that_comes_later_shows_the_time_since_the_event_by_the_clock_of_the_server(clock, ahead):
    progress, client = EventProgress(clock), Client("http://server")
    client.clock_ahead = ahead
    ages = Ages(client, clock=lambda: NOON.timestamp() + 40 - ahead)
    shown = Followed(CommandSession(), Live(console=console()), progress, ages, False)
    for entry in (Entry(1, at(0, status("running"))), Entry(2, at(28, action("make", id="a")))):
        shown.show(entry, is_printed=False)
    assert progress.doing == "terminal: make, 12 s"


def test_an_agent_whose_clock_differs_from_the_servers_shows_no_time_of_the_future_or_of_hours():
    ages = Ages(Client("http://server"), clock=lambda: NOON.timestamp())
    assert [ages.of(Entry(1, at(seconds, status("running")))) for seconds in (10, 30, 25)] == [0.0, 0.0, 5.0]
    live = at(-7200, delta("Hel"))
    assert ages.of(Entry(None, live)) == 0.0
    assert ages.of(Entry(2, at(-7202, status("running")))) == 2.0


@pytest.mark.parametrize(
    ("date", "ahead"),
    [
        ("Sat, 28 Nov 2026 12:00:00 GMT", 0.0),
        ("Sat, 28 Nov 2026 13:00:00 GMT", 3599.5),
        ("Sat, 28 Nov 2026 11:00:00 GMT", -3600.5),
        ("noon", 0.0),
    ],
)
def test_the_clock_of_the_server_is_known_from_the_date_of_its_responses(monkeypatch, date, ahead):
    monkeypatch.setattr("agent_server_client.wire.time.time", lambda: NOON.timestamp() + 0.5)
    client, _ = responding(httpx.Response(200, json={}, headers={"Date": date}))
    client.server_info()
    assert client.clock_ahead == ahead


def test_a_pipe_gets_the_entries_alone():
    session, written = CommandSession(), io.StringIO()
    session.out = Console(file=written)
    with followed(session, Client("http://server")) as shown:
        for event in (status("running"), delta("Hel"), delta("lo"), message("Hello", "agent")):
            shown.show(Entry(1, event))
    assert [line.split()[2:] for line in written.getvalue().splitlines()] == [["status", "running"], ["agent", "Hello"]]

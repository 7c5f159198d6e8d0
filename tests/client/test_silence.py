"""A server that does not answer: when a person is told, how often, and what is no silence."""

import pytest
from agent_server_client.cli.silence import Silence
from agent_server_client.wire import Patience


class SilenceClock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class FollowedInSilence:
    """A request that waits for a server, which answers the questions of `Silence` or not."""

    def __init__(self, monkeypatch):
        self.clock, self.said, self.asked, self.answers = SilenceClock(), [], 0, True
        self.fault, self.is_hidden, self.shown = TimeoutError, False, []
        monkeypatch.setattr("agent_server_client.wire.time.monotonic", self.clock)
        self.patience = Patience(60.0, None, None)
        self.silence = Silence(
            "http://server", self._say, self._ask, lambda: self.is_hidden, self.shown.append, self.clock
        )
        self.silence._waits.append((self.patience, 60.0))

    def _say(self, words, bound):
        self.said.append(f"{words}; {bound}" if bound else words)

    def _ask(self):
        self.asked += 1
        if not self.answers:
            self.clock.now += 2.5
            raise self.fault

    def goes_on(self, seconds):
        """Look each half second."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now += 0.5
            self.silence.look()


@pytest.fixture
def followed(monkeypatch):
    return FollowedInSilence(monkeypatch)


def test_a_silent_server_is_told_once_within_five_seconds_and_that_it_is_back(followed):
    followed.answers = False
    with followed.patience:
        followed.goes_on(4.5)
        assert followed.said == ["The server at http://server has not answered for 4 s; waiting up to 60 s"]
        followed.goes_on(20)
        assert len(followed.said) == 1
        followed.answers = True
        followed.goes_on(1)
    assert followed.said[1].startswith("The server answers again, after 2")


def test_a_request_that_takes_long_at_a_server_that_answers_is_no_silence(followed):
    with followed.patience:
        followed.goes_on(60)
    assert not followed.said
    assert followed.asked <= 60 / 4


def test_a_stream_that_sends_and_a_command_that_waits_for_a_person_ask_nothing(followed):
    with followed.patience:
        for _ in range(20):
            followed.goes_on(1.5)
            followed.patience.hear()
    followed.goes_on(60)
    assert not followed.asked


def test_a_stream_that_falls_silent_after_a_quiet_time_is_told_soon(followed):
    with followed.patience:
        followed.goes_on(30)
        followed.answers = False
        followed.goes_on(7)
    assert len(followed.said) == 1


def test_a_lost_connection_is_told_here_only_while_an_open_question_hides_it(followed):
    followed.answers, followed.fault = False, ConnectionError
    with followed.patience:
        followed.goes_on(10)
        assert not followed.said
        followed.is_hidden = True
        followed.goes_on(5)
    assert len(followed.said) == 1


@pytest.mark.parametrize("fault", [TimeoutError, ConnectionError])
def test_a_stopped_and_a_refusing_server_are_both_shown_as_a_lost_connection_until_they_answer(followed, fault):
    followed.answers, followed.fault = False, fault
    with followed.patience:
        followed.goes_on(10)
        assert followed.shown == [True]
        followed.answers = True
        followed.goes_on(10)
    assert followed.shown == [True, False]

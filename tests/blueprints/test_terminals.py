"""The socket of commands before an agent server that answers anything: what runs in its sandbox may stand in for it."""

import json
from contextlib import suppress
from urllib.parse import parse_qsl

import pytest

from agents.client import MOST_BYTES
from agents.forwarding import ConversationFolder
from blueprints import websocket
from blueprints.terminals import CommandSocket
from blueprints.websocket import SocketClosed, served

COMMAND = {"id": "c", "kind": "BashCommand", "command": "ls"}
OUTPUT = {"id": "o", "kind": "BashOutput", "order": 0, "exit_code": None}
END = {**OUTPUT, "order": 1, "exit_code": 0}


class TerminalAnswer:
    """The response of an agent server."""

    status = 200

    def __init__(self, body) -> None:
        self.pieces = iter([json.dumps(body).encode()])

    def __iter__(self):
        return self.pieces

    def close(self) -> None: ...


class TerminalSandbox:
    """Forwards to an agent server that gives these answers in turn."""

    def __init__(self, *answers) -> None:
        self.answers, self.queries = list(answers), []

    def own_sandbox(self, *_) -> str:
        return "box"

    def open(self, _sandbox_id, call) -> TerminalAnswer:
        self.queries.append(call.query.decode())
        return TerminalAnswer(self.answers.pop(0))


class TerminalLog:
    """Forwards to an agent server that has these outputs, and gives as many of them as a page may have."""

    def __init__(self, outputs) -> None:
        self.outputs, self.limits = outputs, []

    def own_sandbox(self, *_) -> str:
        return "box"

    def open(self, _sandbox_id, call) -> TerminalAnswer:
        if call.method == "POST":
            return TerminalAnswer(COMMAND)
        query = dict(parse_qsl(call.query.decode()))
        self.limits.append(int(query["limit"]))
        first = int(query.get("page_id") or int(query.get("order__gt", -1)) + 1)
        following = first + self.limits[-1]
        more = str(following) if following < len(self.outputs) else None
        return TerminalAnswer({"items": self.outputs[first:following], "next_page_id": more})


class TerminalClient:
    """A socket whose client leaves at once, and what it was sent before."""

    def __init__(self) -> None:
        self.sent = []

    def send(self, frame: bytes) -> None:
        self.sent.append(json.loads(frame[frame.index(b"{") :]))

    def receive(self) -> bytes:
        raise SocketClosed


@pytest.fixture
def told(monkeypatch):
    """What a client is told whose agent server gives these answers: to a command, or to what was before."""

    def make(*answers, resends=False):
        client, sandbox = (
            TerminalClient(),
            answers[0] if isinstance(answers[0], TerminalLog) else TerminalSandbox(*answers),
        )
        commands = CommandSocket(None, sandbox, "owner", client)
        if resends:
            with suppress(SocketClosed):
                commands.serve(resends=True)
        else:
            commands._room.acquire()
            commands._run({"command": "ls", "cwd": None, "timeout": 1})
        return client.sent, getattr(sandbox, "queries", None)

    monkeypatch.setattr(ConversationFolder, "in_sandbox", lambda *_: ConversationFolder())
    return make


def test_a_command_is_followed_to_its_end(told):
    outputs = {"items": [OUTPUT, END], "next_page_id": None}

    assert told(COMMAND, outputs)[0] == [COMMAND, OUTPUT, END]


@pytest.mark.parametrize(
    "answers",
    [
        ({},),
        ({"id": 7},),
        (COMMAND, {}),
        (COMMAND, {"items": None}),
        (COMMAND, {"items": ["text"]}),
        (COMMAND, {"items": [{"exit_code": 0}]}),
        (COMMAND, {"items": [{**END, "order": "1"}]}),
    ],
    ids=repr,
)
def test_a_client_hears_of_its_command_whatever_the_agent_server_answers(told, answers):
    last = told(*answers)[0][-1]

    assert (last["kind"], last["code"]) == ("BashError", "AgentUnreachable")


@pytest.mark.parametrize(
    "page",
    [{}, {"items": {}}, {"items": [None], "next_page_id": None}, {"items": [COMMAND], "next_page_id": 7}],
    ids=repr,
)
def test_a_page_of_another_shape_ends_what_is_sent_again_and_not_the_socket(told, page):
    last = told(page, resends=True)[0][-1]

    assert (last["kind"], last["code"]) == ("BashError", "AgentUnreachable")


def printed(order, size, code=None):
    return {"id": str(order), "kind": "BashOutput", "order": order, "stdout": "x" * size, "exit_code": code}


@pytest.mark.parametrize("resends", [True, False])
def test_a_page_that_is_too_long_is_halved_until_it_fits(told, resends):
    log = TerminalLog([*(printed(order, MOST_BYTES // 3) for order in range(6)), printed(6, 0, code=3)])

    events = told(log, resends=resends)[0]

    assert [event["order"] for event in events if event["kind"] == "BashOutput"] == list(range(7))
    assert events[-1]["exit_code"] == 3
    assert log.limits[:7] == [100, 50, 25, 12, 6, 3, 1]


def test_an_output_that_is_too_long_alone_is_left_out_in_words_and_the_exit_code_comes(told):
    log = TerminalLog([printed(0, 1), printed(1, MOST_BYTES), printed(2, 0, code=3)])

    events = told(log)[0]

    assert [event.get("order", event.get("code")) for event in events[1:]] == [0, "ResponseTooLong", 2]
    assert "Output 1 of this command is left out" in events[2]["detail"]
    assert events[-1]["exit_code"] == 3
    assert log.limits[-1] == 100


def test_a_command_whose_end_is_not_told_ends_in_words(told, monkeypatch):
    monkeypatch.setattr("blueprints.terminals._GRACE", -1.0)  # with the second of the command: its time is over

    last = told(TerminalLog([printed(0, 1)]))[0][-1]

    assert (last["kind"], last["code"]) == ("BashError", "CommandNotEnded")


def test_an_id_of_any_text_stays_one_member_of_the_query(told):
    ended = {"items": [END]}
    assert "command_id__eq=x%26order__gt%3D9%EF%BF%BD&" in told({**COMMAND, "id": "x&order__gt=9\ud800"}, ended)[1][1]

    pages = {"items": [COMMAND], "next_page_id": "a&limit=0"}, {"items": [], "next_page_id": None}
    assert told(*pages, resends=True)[1][1] == "limit=100&page_id=a%26limit%3D0"


class OpenedTerminal:
    """A socket that a request has opened, and the code with which it ends."""

    def __init__(self, is_accepted: bool) -> None:
        self.is_accepted, self.code = is_accepted, 0

    def close(self, code: int, _reason: str) -> None:
        self.code = code


def test_a_bug_closes_an_open_socket_with_1011_and_is_logged(app, monkeypatch, caplog):
    opened = OpenedTerminal(is_accepted=True)
    monkeypatch.setattr(websocket, "WebSocket", lambda **_: opened)

    with app.test_request_context("/sockets/bash-events"), served():
        raise KeyError("items")

    assert opened.code == 1011
    assert "socket /sockets/bash-events" in caplog.text


def test_a_bug_before_the_handshake_is_a_plain_500(app, monkeypatch):
    monkeypatch.setattr(websocket, "WebSocket", lambda **_: OpenedTerminal(is_accepted=False))

    with app.test_request_context("/sockets/bash-events"), pytest.raises(KeyError), served():
        raise KeyError("items")

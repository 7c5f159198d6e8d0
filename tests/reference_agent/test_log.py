"""What a reference agent keeps of a conversation: torn ends, damage, a kill between any two lines; what it prints."""

import json
import re
from uuid import UUID, uuid4

import pytest

from reference_agent import events
from reference_agent.api import ReferenceServer
from reference_agent.events import event
from reference_agent.log import MOST_LOG_LINE, AgentWebhooks, DiskError, Hidden, Journal, Log, log_line, moved
from reference_agent.shell import seen
from tests.reference_agent.program import reference_agent
from tests.servers import wait_until

START = {"id": str(uuid4()), "confirmation_policy": {"kind": "NeverConfirm"}, "initial_message": None}
STATE = {"status": "idle"}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "conversations" / "one"


@pytest.fixture
def journal(folder):
    """A journal with two steps: one of two events and one of none."""
    journal = Journal(folder)
    journal.create(START)
    journal.load()
    journal.append([event("PauseEvent", "user"), event("PauseEvent", "user")], STATE)
    journal.append([], {"status": "paused"})
    return journal


def kept(folder):
    found = Journal(folder).load()
    return [one["id"] for one in found.events], found.state


def test_a_journal_gives_back_what_was_written(journal, folder):
    found = Journal(folder).load()
    assert found.start == START
    assert len(found.events) == 2
    assert found.state == {"status": "paused"}


def test_a_journal_that_begins_with_the_events_of_another_has_them_or_does_not_exist(folder, monkeypatch):
    # Given what a fork begins with: an answered message, and one that nobody has answered
    said = [events.message(source, events.parts(source)) for source in ("user", "agent", "user")]
    journal = Journal(folder)

    # When the process ends before the whole is written, then there is no conversation
    monkeypatch.setattr("pathlib.Path.rename", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(DiskError):
        journal.create(START, said)
    assert Journal(folder).load() is None
    monkeypatch.undo()

    # And else it has all events, and is idle with the message that is still to be answered
    journal.create(START, said)
    found = Journal(folder).load()
    assert found.events == said
    assert (found.state["status"], found.state["unanswered"], found.state["open"]) == ("idle", [said[2]["id"]], [])


class Posted:
    """Webhooks that keep what they are given: path and body."""

    def __init__(self):
        self.bodies = []

    def put(self, path, body):
        self.bodies.append((path, body))


def test_each_message_of_a_user_is_reported_as_the_last_one_also_after_a_restart(folder):
    Journal(folder).create({**START, "agent": {}, "workspace": None, "title": None, "tags": {}, "created_at": "x"})

    def begin():
        journal, posted = Journal(folder), Posted()
        return Log(journal.load(), journal, posted), posted.bodies

    log, bodies = begin()
    assert log.info()["last_user_message_id"] is None
    said = [events.message("user", events.parts(text)) for text in ("one", "two")]
    for one in said:
        log.step(log.state, [one])
        assert bodies[-1][0] == "/conversations"
        assert bodies[-1][1]["last_user_message_id"] == one["id"]

    log.step(log.state, [events.message("agent", events.parts("three"))])
    assert bodies[-1][0] != "/conversations"
    assert begin()[0].info()["last_user_message_id"] == said[1]["id"]


def test_the_newest_event_is_reported_as_the_head_of_the_log_also_after_a_restart(folder):
    Journal(folder).create({**START, "agent": {}, "workspace": None, "title": None, "tags": {}, "created_at": "x"})
    journal, posted = Journal(folder), Posted()
    log = Log(journal.load(), journal, posted)
    assert log.info()["leaf_event_id"] is None

    step = [events.message("user", events.parts("one"))]
    log.step(moved(log.state, "running", step), step)
    assert posted.bodies[-1][1]["leaf_event_id"] == step[-1]["id"]
    answer = events.message("agent", events.parts("two"))
    log.step(log.state, [answer])
    assert log.info()["leaf_event_id"] == answer["id"]

    again = Journal(folder)
    assert Log(again.load(), again, Posted()).info()["leaf_event_id"] == answer["id"]


def test_a_folder_without_a_start_request_holds_no_conversation(folder):
    assert Journal(folder).load() is None
    folder.mkdir(parents=True)
    (folder / "start.new").write_text('{"id"')
    assert Journal(folder).load() is None


def test_a_conversation_without_a_step_has_no_state(folder):
    Journal(folder).create(START)
    assert kept(folder) == ([], None)


@pytest.mark.parametrize(
    "torn",
    [
        b"{",
        b'{"id": "a", "kind": "PauseEvent"}',
        b'{"id": "a", "kind": "PauseEvent"}\n',
        b'{"id": "a", "kind": "PauseEvent"}\n{"state": {"status": "ru',
        b'{"id": "a", "kind": "PauseEvent"}\n{"state": {"status": "running"}}',
        b"\0" * 5000,
        b"\0\n\xff\n7\n",
    ],
)
def test_a_torn_step_is_dropped_and_cut_off(journal, folder, torn):
    file = folder / "events.jsonl"
    whole, before = file.read_bytes(), kept(folder)
    file.write_bytes(whole + torn)

    assert kept(folder) == before
    assert file.read_bytes() == whole


def test_a_step_that_was_torn_at_any_byte_is_dropped_whole(journal, folder):
    file = folder / "events.jsonl"
    whole, before = file.read_bytes(), kept(folder)
    journal.append([event("PauseEvent", "user")], {"status": "running"})
    step = file.read_bytes()[len(whole) :]

    for length in range(len(step)):
        file.write_bytes(whole + step[:length])
        assert kept(folder) == before


def test_a_step_replaces_all_that_a_refused_one_left(journal, folder):
    with (folder / "events.jsonl").open("ab") as file:
        file.write(b'{"id": "refused"' + b" " * 500 + b'}\n{"state": {"status": "refused"}}\n')
    journal.append([], {"status": "running"})
    assert kept(folder)[1] == {"status": "running"}


def test_damage_before_a_whole_step_is_an_error_that_names_the_line_and_changes_nothing(journal, folder):
    file = folder / "events.jsonl"
    damaged = b"\0" * 10 + file.read_bytes()[10:]
    file.write_bytes(damaged)

    with pytest.raises(DiskError, match=rf"cannot read {folder}: line 1 of events.jsonl is damaged"):
        Journal(folder).load()
    assert file.read_bytes() == damaged


def test_a_folder_that_was_deleted_takes_no_step(journal, folder):
    (folder / "events.jsonl").unlink()
    with pytest.raises(DiskError, match=rf"cannot write to {folder}: No such file or directory"):
        journal.append([], STATE)
    with pytest.raises(DiskError, match="cannot read"):
        Journal(folder).load()


def test_a_removal_that_was_cut_short_leaves_no_conversation_and_no_events_for_the_next_one(journal, folder):
    (folder / "start.json").unlink()
    assert Journal(folder).load() is None

    Journal(folder).create(START)

    assert kept(folder) == ([], None)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DiskError, match="Not a directory"):
        Journal(tmp_path / "file" / "one").create(START)


NEVER, ALWAYS = {"kind": "NeverConfirm"}, {"kind": "AlwaysConfirm"}


def text(words):
    return [{"type": "text", "text": words}]


def run_to_the_end(conversation):
    """Run a conversation, and accept what waits, until it is finished."""
    while (status := conversation.log.state.status) != "finished":
        if status == "waiting_for_confirmation":
            conversation.decide(True, "")
        else:
            conversation.run()
        wait_until(lambda: not conversation.is_running, "the end of the run")


@pytest.fixture
def played(tmp_path):
    """The steps and the start request of a conversation with six commands, and the file that these append to."""
    effects = tmp_path / "effects"
    effects.touch()
    identity = uuid4()
    given = {"confirmation_policy": ALWAYS, "agent": None, "workspace": None, "title": None, "tags": {}}
    given["initial_message"] = {"content": text(f"run: echo a >> {effects}\nrun: echo b >> {effects}"), "run": True}
    conversation, _ = ReferenceServer("", tmp_path / "played", AgentWebhooks("", {})).start(identity, given, {})
    wait_until(lambda: not conversation.is_running, "the first actions")
    run_to_the_end(conversation)
    conversation.send(text(f"run: echo c >> {effects}"), True)
    wait_until(lambda: conversation.log.state.status == "waiting_for_confirmation", "the next action")
    conversation.send(text("hello"), True)
    wait_until(lambda: not conversation.is_running, "the reply")
    conversation.set_policy(NEVER)
    conversation.send(text(f"run: echo d >> {effects}\nrun: echo e >> {effects}"), False)
    conversation.send(text(f"run: echo f >> {effects}"), False)
    run_to_the_end(conversation)
    assert effects.read_text().split() == list("abdef")
    conversation.end()
    folder = tmp_path / "played" / identity.hex
    return (folder / "events.jsonl").read_bytes().splitlines(keepends=True), folder / "start.json", effects


@pytest.mark.process("starts an agent after each line of its file")
def test_a_conversation_whose_file_ends_after_any_line_runs_to_its_end(played, tmp_path):
    lines, start, effects = played
    for number in range(len(lines) + 1):
        folder = tmp_path / f"cut-{number}"
        cut = folder / start.parent.name
        cut.mkdir(parents=True)
        (cut / "start.json").write_bytes(start.read_bytes())
        (cut / "events.jsonl").write_bytes(b"".join(lines[:number]))
        effects.write_text("")

        conversation = ReferenceServer("", folder, AgentWebhooks("", {})).find(UUID(start.parent.name))
        wait_until(lambda found=conversation: not found.is_running, "the first message")
        check(conversation, [json.loads(line) for line in lines[:number]], effects)
        conversation.end()


def check(conversation, before, effects):
    """The conversation runs to its end from the lines that a kill left, and starts no command a second time."""
    whole = max((index + 1 for index, line in enumerate(before) if "state" in line), default=0)
    told = [line for line in before[:whole] if "kind" in line]
    started = {line["state"]["open"][0] for line in before[:whole] if "state" in line and line["state"]["started"]}
    closed = {event.get("action_id") for event in told}

    run_to_the_end(conversation)

    events = conversation.log.events
    assert events[: len(told)] == told
    actions = [event for event in events if event["kind"] == "ActionEvent"]
    for action in actions:
        name = action["summary"].split()[1]
        kinds = [one["kind"] for one in events if one.get("tool_call_id") == action["tool_call_id"]]
        executions = effects.read_text().split().count(name)
        if action["id"] in closed:
            assert executions == 0
        elif action["id"] in started:
            assert (executions, kinds) == (0, ["ActionEvent", "AgentErrorEvent"])
        else:
            assert (executions, kinds) in ((1, ["ActionEvent", "ObservationEvent"]), (0, ["ActionEvent"]))
        assert len(kinds) == 2
    assert conversation.log.state.open == conversation.log.state.unanswered == []


def _call(tool: str) -> events.Event:
    return {"id": "c", "name": tool, "arguments": "{}"}


def test_what_the_agent_does_is_told_in_a_line_each():
    said = events.message("user", events.parts("run:  make\ntest"))
    action = events.action(_call("terminal"), {"kind": "TerminalAction", "command": "make test"}, "r")
    seen = events.observation(action, {"kind": "TerminalObservation", "exit_code": 2})

    assert [log_line(event) for event in (said, action, seen)] == [
        "user: run: make test",
        "$ make test",
        "terminal ended: 2",
    ]
    assert log_line(events.change("execution_status", "idle")) == ""
    assert log_line(action, is_begun=False) == "waits for a decision: make test"


def test_a_line_shows_no_secret_of_the_conversation_or_of_the_environment(monkeypatch):
    monkeypatch.setenv("EXAMPLE_API_KEY", "sk-of-the-environment")
    text = "first-secret, two\nlines, sk-of-the-environment, plain"
    said = events.message("user", events.parts(text))
    action = events.action(_call("terminal"), {"kind": "TerminalAction", "command": "echo first-secret"}, "r")

    hidden = Hidden()
    hidden.put("a conversation", ["first-secret", "two\nlines"])
    line = "user: <secret-hidden>, <secret-hidden>, <secret-hidden>, plain"
    assert (log_line(said, hidden.mask), log_line(action, hidden.mask)) == (line, "$ echo <secret-hidden>")


@pytest.fixture
def cautious(tmp_path, monkeypatch):
    """A conversation with a secret, whose agent asks before each action."""
    monkeypatch.chdir(tmp_path)
    server = ReferenceServer("", tmp_path / "conversations", AgentWebhooks("", {}))
    given = {"confirmation_policy": {"kind": "AlwaysConfirm"}, "tags": {}}
    given |= dict.fromkeys(("workspace", "agent", "title", "initial_message"))
    conversation, _ = server.start(uuid4(), given, {"A": "first-secret"})
    yield conversation
    conversation.end()


def test_a_line_looks_like_a_command_that_ran_only_once_it_begins_and_as_a_person_edited_it(capfd, cautious):
    printed = []

    def prints(words: str) -> bool:
        printed.append(capfd.readouterr().out)  # the agent's thread prints a line after its event
        return words in "".join(printed)

    cautious.send(events.parts("run: echo asked\nrun: echo never"), run=True)
    wait_until(lambda: prints("waits for a decision: echo never"), "two actions that wait")
    first, second = cautious.log.state.open
    assert "waits for a decision: echo asked" in "".join(printed)
    assert "$ echo" not in "".join(printed)
    printed.clear()

    edit = {"action_id": first, "decision": "edit", "arguments": {"command": "echo edited"}}
    cautious.decide_each([edit, {"action_id": second, "decision": "reject", "reason": "No."}])
    wait_until(lambda: cautious.log.state.status == "finished", "the end")

    wait_until(lambda: prints("echo edited"), "the command")
    lines = [line.partition(" ")[2] for line in "".join(printed).splitlines()]
    assert [line for line in lines if "echo" in line] == ["$ echo edited"]


def test_a_conversation_tells_none_of_its_secrets(capfd, cautious):
    conversation = cautious
    conversation.keep({"B": "later-secret"})

    conversation.send(events.parts("first-secret and later-secret"), run=False)

    assert "user: <secret-hidden> and <secret-hidden>" in capfd.readouterr().out


def test_a_result_that_holds_a_secret_is_written_without_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EXAMPLE_API_KEY", "sk-of-the-environment")
    server = ReferenceServer("", tmp_path / "conversations", AgentWebhooks("", {}))
    given = {"confirmation_policy": {"kind": "AlwaysConfirm"}, "tags": {}}
    given |= dict.fromkeys(("workspace", "agent", "title", "initial_message"))
    conversation, _ = server.start(uuid4(), given, {"A": "first-secret"})
    conversation.keep({"B": "later-secret"})
    action = events.action(_call("terminal"), {"kind": "TerminalAction", "command": "echo first-secret"}, "r")
    printed = "t-secret\nfirst-secret, later-secret, sk-of-the-environment\nlater-se"  # cut at both ends

    results = [
        events.observation(action, seen("echo first-secret", printed, 0)),
        events.failure(action, "later-secret"),
    ]
    conversation.log.step(conversation.log.state, [action, *results])

    ran, observed, failed = conversation.log.events
    assert ran["action"]["command"] == "echo first-secret"  # it is executed as the model has it
    hidden = "<secret-hidden>"
    assert events.text_of(observed["observation"]["content"]) == f"{hidden}\n{hidden}, {hidden}, {hidden}\n{hidden}"
    assert (observed["observation"]["command"], failed["error"]) == (f"echo {hidden}", hidden)
    [journal] = (tmp_path / "conversations").glob("*/events.jsonl")
    assert "later-secret" not in journal.read_text()


def test_a_line_is_short_and_moves_no_cursor():
    line = log_line(events.message("user", events.parts("\x1b[2J" + "x" * 5000)))
    assert "\x1b" not in line
    assert len(line) == MOST_LOG_LINE
    assert line.endswith("…")


def test_a_result_shows_no_secret_of_another_conversation_of_the_agent_server(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server = ReferenceServer("", tmp_path / "conversations", AgentWebhooks("", {}))
    given = {"confirmation_policy": {"kind": "AlwaysConfirm"}, "tags": {}}
    given |= dict.fromkeys(("workspace", "agent", "title", "initial_message"))
    one, _ = server.start(uuid4(), given, {"A": "first-secret"})
    other_id = uuid4()
    server.start(other_id, given, {"B": "other-secret"})
    action = events.action(_call("terminal"), {"kind": "TerminalAction", "command": "cat"}, "r")

    def printed():
        one.log.step(one.log.state, [events.observation(action, seen("cat", "first-secret, other-secret", 0))])
        return events.text_of(one.log.events[-1]["observation"]["content"])

    assert printed() == "<secret-hidden>, <secret-hidden>"
    server.delete(other_id)
    assert printed() == "<secret-hidden>, other-secret"  # nobody's any more


@pytest.mark.process("starts a command")
def test_what_a_client_s_command_prints_is_kept_without_secrets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server = ReferenceServer("", tmp_path / "conversations", AgentWebhooks("", {}))
    given = {"confirmation_policy": {"kind": "AlwaysConfirm"}, "tags": {}}
    given |= dict.fromkeys(("workspace", "agent", "title", "initial_message"))
    server.start(uuid4(), given, {"A": "first-secret"})

    command = server.commands.start(
        "printf 'it is fir'; sleep 0.1; printf st-secret; echo first-secret >&2", tmp_path, 9
    )
    command.has_ended.wait()

    told = {name: "".join(one[name] or "" for one in command.events[1:]) for name in ("stdout", "stderr")}
    assert told == {"stdout": "it is <secret-hidden>", "stderr": "<secret-hidden>\n"}


@pytest.mark.process("starts an agent server")
def test_an_agent_server_prints_the_work_of_its_agent_and_no_request(tmp_path):
    with reference_agent(tmp_path, output=tmp_path / "output") as agent:
        conversation = agent.begin()
        agent.send(conversation, "run: echo hello")
        agent.until(conversation, "finished")
        assert agent.client.get("/nowhere").status_code == 404
        agent.process.terminate()
        errors = agent.process.stderr.read()

    printed = (tmp_path / "output").read_text() + errors.decode()
    assert "echo hello" in printed
    assert not re.search(r"(GET|POST) /|HTTP/1", printed)

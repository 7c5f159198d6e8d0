"""Published agents in terminals, with the hook of `agentctl`: who answers first decides, and the audit says who.

docs/hooks.md, "Measured with", installs them; those that are not installed are skipped. LONG=1: both at once a hundred
times.
"""

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from agentctl.hooks.install import FORMS

from tests.chance import often
from tests.interop.hooks.terminals import (
    PUBLISHED,
    UNATTENDED,
    allow_all,
    environment_of,
    kill,
    opened,
    program,
    proof,
    unattended,
    until,
)
from tests.interop.published_agents import scripted
from tests.servers import agent_server, free_port, store_server

pytestmark = [pytest.mark.interop("runs published agents in terminals"), pytest.mark.usefixtures("table")]

KEY = "an-admin-key-of-the-tests"
REASON = "the moon is in the wrong house"

#: how often both answer at once
TIMES = often(5, 100)

RACING = [name for name, one in PUBLISHED.items() if one.races]


@pytest.fixture(scope="session", autouse=True)
def openhands():
    """These tests need no published agent server, as the others of this folder do."""


class HookInbox:
    """A server that can be restarted on its store, and what people do in its inbox."""

    def __init__(self, folder, stack_url):
        self._folder, self._store, self.port = folder, stack_url, str(free_port())
        self._context = None
        self.start()

    def start(self, **more):
        settings = {"REDIS_URL": self._store, "PORT": self.port, "SESSION_API_KEY": KEY, "WEB_CONCURRENCY": "1"} | more
        self._context = agent_server(self._folder / "log", **settings)
        self.client, _ = self._context.__enter__()
        self.client.headers["Authorization"] = f"Bearer {KEY}"

    def stop(self):
        self._context.__exit__(None, None, None)

    def call(self, method, path, **options):
        response = self.client.request(method, f"/api/v1/{path}", **options)
        assert response.is_success, response.text
        return response.json() if response.content else None

    def waiting(self, name):
        """The actions that wait whose arguments name a file."""
        return [one for one in self.call("GET", "pending-actions")["items"] if name in str(one["arguments"])]

    def asked(self, name, terminal):
        """The action that waits for a decision about a file."""
        [found] = until(lambda: self.waiting(name), lambda: f"{name} in the inbox\n{terminal.screen()}")
        return found

    def decide(self, action, decision, **members):
        """Decide an action. Return whether this decision was the first."""
        wanted = {"action_id": action["action_id"], "digest": action["digest"], "decision": decision, **members}
        path = f"/api/v1/conversation/{action['conversation_id']}/pending-actions/decisions"
        response = self.client.post(path, json={"decisions": [wanted]})
        assert response.status_code in (200, 409), response.text
        return response.status_code == 200

    def audit(self, action):
        """What the audit says of an action: (kind of actor, name, decision, reason)."""
        return [
            (one["actor"]["kind"], one["actor"]["name"], one["decision"], one["reason"] or "")
            for one in self.audited()
            if action["action_id"] in one["action_ids"]
        ]

    def audited(self):
        """All entries of the audit."""
        return [json.loads(line) for line in self.client.get("/api/v1/audit?format=jsonl").text.splitlines()]

    def has_run_refused(self, name):
        """Whether the audit says that a call ran although it was refused."""
        said = [one for one in self.audited() if one["decision"] == "unapproved" and name in str(one["shown"])]
        return "It ran, although it was refused." in [one["reason"] for one in said]

    def settled(self, action):
        """What the audit says, as soon as it says something."""
        return until(lambda: self.audit(action), lambda: f"an entry of the audit for {action}")


@pytest.fixture(scope="module")
def inbox(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inbox")
    with store_server(folder) as (url, _):
        found = HookInbox(folder, url)
        yield found
        found.stop()


@pytest.fixture(scope="module")
def model():
    with scripted() as url:
        yield url


@pytest.fixture(scope="module")
def homes(tmp_path_factory, inbox, model):
    """Makes the home folder of an agent, with its hook."""
    made = {}

    def make(name, *options):
        if program(name) is None:
            pytest.skip(f"{name} is not installed: tests/interop/hooks/packages")
        if (name, options) not in made:
            home = tmp_path_factory.mktemp(name)
            (home / "work").mkdir()
            environment = environment_of(name, home, model)
            environment |= {"AGENT_SERVER_URL": f"http://127.0.0.1:{inbox.port}", "AGENT_SERVER_KEY": KEY}
            command = [str(home / "bin/agentctl"), "hook", "install", name, *options]
            place = {"cwd": home / "work", "env": environment}
            ran = subprocess.run(command, **place, capture_output=True, text=True, timeout=120)
            assert ran.returncode == 0, ran.stderr
            made[name, options] = home
        return made[name, options]

    return make


@pytest.fixture
def absent(inbox):
    """Stops the server, and starts it again after the test."""
    yield inbox.stop
    inbox.start()


@pytest.fixture
def terminal(request, homes, model):
    """The terminal of the agent of a test."""
    name = request.param
    with opened(name, homes(name), model) as found:
        yield found


every = pytest.mark.parametrize("terminal", PUBLISHED, indirect=True)
each_by_name = pytest.mark.parametrize("name", PUBLISHED)
racing = pytest.mark.parametrize("terminal", RACING, indirect=True)


def ran(terminal, name):
    return until((terminal.work / name).exists, lambda: f"{name} is made\n{terminal.screen()}")


@every
def test_an_approval_of_the_inbox_closes_the_question_and_the_call_runs(terminal, inbox):
    name = proof()
    terminal.say(f"run: touch {name}")
    action = inbox.asked(name, terminal)
    if terminal.agent.races:
        terminal.wait_for_question()

    assert inbox.decide(action, "approve")

    ran(terminal, name)
    terminal.wait_without(terminal.agent.question)
    assert [(kind, decision) for kind, _, decision, _ in inbox.audit(action)] == [("key", "approve")]
    assert action["asked_from"]["person"] == "ada"
    assert action["asked_from"]["folder"] == str(terminal.work)


@every
def test_a_refusal_of_the_inbox_reaches_the_agent_with_its_reason(terminal, inbox):
    name = proof()
    terminal.say(f"run: touch {name}")
    action = inbox.asked(name, terminal)

    assert inbox.decide(action, "reject", reason=REASON)

    terminal.wait_for(REASON)
    assert not (terminal.work / name).exists()
    assert [entry[2:] for entry in inbox.audit(action)] == [("reject", REASON)]


@racing
def test_a_yes_of_the_terminal_is_the_answer_and_leaves_the_inbox(terminal, inbox):
    name = proof()
    terminal.say(f"run: touch {name}")
    action = inbox.asked(name, terminal)
    terminal.wait_for_question()

    terminal.press(*terminal.agent.yes)

    ran(terminal, name)
    [(kind, who, decision, _)] = inbox.settled(action)
    assert (kind, decision) == ("terminal", "approve")
    assert who.startswith("ada@")
    assert inbox.waiting(name) == []
    assert not inbox.decide(action, "reject")


@racing
def test_a_no_of_the_terminal_is_the_answer_and_leaves_the_inbox(terminal, inbox):
    name = proof()
    terminal.say(f"run: touch {name}")
    action = inbox.asked(name, terminal)
    terminal.wait_for_question()

    terminal.press(*terminal.agent.no)

    [(kind, _, decision, _)] = inbox.settled(action)
    assert (kind, decision) == ("terminal", "reject")
    assert inbox.waiting(name) == []
    assert not (terminal.work / name).exists()


@pytest.mark.timeout(3600)
@racing
def test_of_two_answers_at_once_one_is_the_record_and_what_ran_is_known(terminal, inbox):
    """The terminal says yes and the inbox no. What ran although the inbox refused it is marked in the log."""
    for turn in range(TIMES):
        name = proof()
        terminal.say(f"run: touch {name}")
        action = inbox.asked(name, terminal)
        terminal.wait_for_question()
        with ThreadPoolExecutor(2) as both:
            pause = (turn % 10) * 0.01
            both.submit(lambda pause=pause: (time.sleep(pause), terminal.press(*terminal.agent.yes)))
            is_first = both.submit(inbox.decide, action, "reject", reason=REASON).result()
        terminal.wait_without(terminal.agent.question)
        terminal.settle()

        entries = inbox.settled(action)

        assert len([one for one in entries if one[2] in ("approve", "reject")]) == 1, entries
        assert (entries[-1][0] == "key") == is_first
        assert inbox.waiting(name) == []
        # It ran where the terminal was first. Where the inbox was, the log says so of what ran all the same.
        until(
            lambda name=name, is_first=is_first: (
                (terminal.work / name).exists() == (not is_first or inbox.has_run_refused(name))
            ),
            lambda entries=entries: f"{entries}, and what ran, agree\n{terminal.screen()}",
        )


@racing
def test_the_question_of_a_killed_agent_leaves_the_inbox(terminal, inbox):
    name = proof()
    terminal.say(f"run: touch {name}")
    action = inbox.asked(name, terminal)

    kill(terminal.home, spares_hooks=True)

    until(lambda: not inbox.waiting(name), lambda: "its end", seconds=40)
    assert not inbox.decide(action, "approve")
    assert not (terminal.work / name).exists()


@racing
def test_a_question_outlives_a_restart_of_the_server(terminal, inbox):
    name = proof()
    terminal.say(f"run: touch {name}")
    inbox.asked(name, terminal)

    inbox.stop()
    time.sleep(2)
    inbox.start()

    # The hook asks again where its lease ended meanwhile.
    until(lambda: inbox.decide(inbox.asked(name, terminal), "approve"), terminal.screen)
    ran(terminal, name)


@every
def test_a_rule_answers_before_anybody_is_asked(terminal, inbox):
    name = proof()
    tool = {"claude": "Bash", "codex": "Bash", "opencode": "bash", "copilot": "bash", "qwen": "run_shell_command"}
    agent = next(key for key, one in PUBLISHED.items() if one is terminal.agent)
    rule = {"decision": "approve", "tool_name": tool[agent], "arguments": {"command": {"equals": f"touch {name}"}}}
    made = inbox.call("POST", "approval-rules", json=rule)

    terminal.say(f"run: touch {name}")

    ran(terminal, name)
    inbox.call("DELETE", f"approval-rules/{made['id']}")
    entries = [one for one in inbox.call("GET", "audit")["items"] if name in str(one.get("shown"))]
    assert [(one["actor"]["kind"], one["decision"]) for one in entries] == [("rule", "approve")]


@every
def test_a_deadline_of_the_inbox_refuses(terminal, inbox):
    inbox.stop()
    inbox.start(CONFIRMATION_SECONDS="5")
    try:
        name = proof()
        terminal.say(f"run: touch {name}")
        action = inbox.asked(name, terminal)

        [(kind, _, decision, _)] = inbox.settled(action)

        assert (kind, decision) == ("expiry", "reject")
        terminal.wait_without(terminal.agent.question)
        assert not (terminal.work / name).exists()
    finally:
        inbox.stop()
        inbox.start()


@pytest.mark.parametrize("name", [name for name, one in PUBLISHED.items() if not one.races])
def test_after_the_patience_the_terminal_asks_and_the_audit_has_its_answer(name, homes, model, inbox):
    with opened(name, homes(name, "--patience", "3"), model) as terminal:
        file = proof()
        terminal.say(f"run: touch {file}")
        action = inbox.asked(file, terminal)
        terminal.wait_for_question()
        assert not inbox.decide(action, "approve")

        terminal.press(*terminal.agent.yes)

        ran(terminal, file)
        [(kind, _, decision, _)] = inbox.settled(action)
        assert (kind, decision) == ("terminal", "approve")
        assert inbox.waiting(file) == []


@each_by_name
def test_while_the_server_is_away_the_terminal_alone_asks(name, homes, model, inbox, absent):
    with opened(name, homes(name, "--no-require"), model) as terminal:
        absent()
        file = proof()
        terminal.say(f"run: touch {file}")
        terminal.wait_for_question()

        terminal.press(*terminal.agent.yes)

        ran(terminal, file)


@each_by_name
def test_a_required_inbox_that_is_away_refuses(name, homes, model, inbox, absent):
    with opened(name, homes(name, "--require"), model) as terminal:
        absent()
        file = proof()
        terminal.say(f"run: touch {file}")

        terminal.wait_for("inbox is required")

        assert not (terminal.work / file).exists()


@pytest.mark.parametrize("name", [name for name in PUBLISHED if FORMS[name].project])
def test_the_hook_of_a_project_asks_in_the_inbox(name, homes, model, inbox):
    home = homes(name, "--project")
    assert (home / "work" / FORMS[name].project).exists()
    assert not (home / FORMS[name].user).exists() or "agentctl hook" not in (home / FORMS[name].user).read_text()
    with opened(name, home, model) as terminal:
        file = proof()
        terminal.say(f"run: touch {file}")
        action = inbox.asked(file, terminal)

        assert inbox.decide(action, "approve")

        ran(terminal, file)


@pytest.mark.parametrize("name", UNATTENDED)
@pytest.mark.parametrize("answer", ["approve", "reject", "away"])
def test_a_gate_holds_what_a_run_without_a_person_does_not_ask_for(name, answer, homes, model, inbox, request):
    home = homes(name, "--gate")
    allow_all(name, home, model)
    file = proof()
    if answer == "away":
        request.getfixturevalue("absent")()
    # Codex refuses by itself what is to leave its sandbox where nobody can be asked: the scripted model's commands do.
    with unattended(name, home, model, f"write: {file} x" if name == "codex" else f"run: touch {file}") as run:
        if answer != "away":
            action = inbox.asked(file, run)
            assert action["asked_from"]["kind"] == "gate"
            assert inbox.decide(action, answer)

        run.wait()

    assert (home / "work" / file).exists() == (answer == "approve")

"""The commands against a server that needs a key. test_terminal.py has what a person does at a terminal."""

import json
from datetime import datetime
from socket import socket
from uuid import uuid4

import httpx
import pytest
from agent_server_client import AgentServerError
from agent_server_client.cli import agentctl
from agent_server_client.cli.program import CommandSession
from click.testing import CliRunner

from core.prices import ModelBudget
from store.approvals.audit import DecisionActor
from tests.client.responses import responding
from tests.conftest import action, limits_of, message, store_of
from tests.servers import free_port
from tests.shared import ADMIN, shared_server

pytestmark = pytest.mark.process("runs the command against a real server")


@pytest.fixture(scope="module")
def server():
    return shared_server(ADMIN).client


@pytest.fixture
def ctl(server):
    """Runs agentctl."""

    def run(*words: str, code: int = 0, url: str = "", key: str = ADMIN):
        environment = {"AGENT_SERVER_URL": url or str(server.base_url).rstrip("/"), "AGENT_SERVER_KEY": key}
        result = CliRunner().invoke(agentctl, words, env=environment, prog_name="agentctl")
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return run


@pytest.fixture
def waiting(server):
    """Starts a conversation with an action that waits, and returns its id and the action's."""

    def start(command: str = "ls", **members) -> tuple[str, str]:
        conversation, one = str(uuid4()), action(command, **members)
        body = {"conversation_id": conversation, "title": "A deploy", "confirmation_policy": {"kind": "AlwaysConfirm"}}
        server.post("/api/conversations", json=body).raise_for_status()
        server.post(f"/api/v1/webhooks/events/{conversation}", json=[message("hello"), one]).raise_for_status()
        return conversation, one["id"]

    return start


def test_conversations_are_listed_for_people_and_for_programs(ctl, waiting):
    conversation, _ = waiting()

    [line] = [line for line in ctl("ls").stdout.splitlines() if line.startswith(conversation)]
    found = json.loads(ctl("ls", "--json", "--status", "waiting_for_confirmation").stdout)

    assert line.split("\t")[1:5] == ["A deploy", "waiting_for_confirmation", "1", "3"]
    assert datetime.fromisoformat(line.split("\t")[5]).tzinfo
    assert conversation in {one["id"] for one in found}


def test_a_log_is_shown_and_a_part_of_an_id_is_enough(ctl, waiting):
    conversation, _ = waiting("make build")

    shown = ctl("logs", conversation[:13]).stdout
    lines = [json.loads(line) for line in ctl("logs", conversation, "--json", "--after", "1").stdout.splitlines()]

    assert "user      hello" in shown
    assert "action    terminal  make build" in shown
    assert [line["seq"] for line in lines] == [2, 3]


def test_what_is_approved_is_shown_whole_and_with_nothing_hidden(ctl, waiting):
    conversation, _ = waiting("echo \x1b[2Ja\u202eb\n" + "x" * 300 + " end", security_risk="HIGH")

    shown = ctl("inbox", "--text", "echo").stdout

    assert "High risk" in shown
    assert "echo \\u{1b}[2Ja\\u{202e}b" in shown
    assert shown.count("x") >= 300
    assert " end" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    ctl("reject", conversation)


def test_an_approval_is_bound_to_the_digest_that_a_program_looked_at(ctl, waiting):
    _, one = waiting()
    [item] = [item for item in json.loads(ctl("inbox", "--json").stdout) if item.get("action_id") == one]

    assert "not the one that was shown" in ctl("approve", one, "--digest", "0" * 64, code=6).stderr
    ctl("approve", one, "--digest", item["digest"][:11], code=2)
    decided = json.loads(ctl("approve", one, "--digest", item["digest"], "--json").stdout)

    assert decided == [{"action_id": one, "digest": item["digest"], "decision": "approve"}]
    assert "decided already" in ctl("approve", one, "--yes", code=6).stderr


def test_an_approval_that_is_not_the_last_one_says_that_it_counts(ctl, server, waiting):
    conversation, one = waiting("terraform apply")
    wanted = {"decision": "ask", "tool_name": "terminal", "quorum": 2, "conversation_ids": [conversation]}
    rule = server.post("/api/v1/approval-rules", json=wanted).json()["id"]

    before = ctl("inbox", "--text", "terraform apply").stdout
    said = ctl("approve", one, "--yes").stderr
    again = ctl("approve", one, "--yes", code=6).stderr

    assert "0 of 2 approved" in before
    assert "Your approval counts: 1 of 2. It waits for others: terminal  terraform apply" in said
    assert "You have approved it already" in again
    server.delete(f"/api/v1/approval-rules/{rule}")
    ctl("reject", conversation)


def test_in_a_pipe_what_waits_has_whole_ids_and_times_of_the_wire(ctl, waiting):
    conversation, one = waiting("make deploy " + "x" * 200)
    [item] = [item for item in json.loads(ctl("inbox", "--json").stdout) if item["action_id"] == one]

    shown = ctl("inbox", "--text", "make deploy").stdout

    for whole in (one, conversation, item["digest"], item["since"], "make deploy " + "x" * 200):
        assert whole in shown
    assert "│" not in shown
    times = [line.split()[1] for line in ctl("logs", conversation).stdout.splitlines()]
    assert all(datetime.fromisoformat(time) for time in times)
    ctl("reject", conversation)


def test_a_resume_and_a_pause_say_where_nothing_goes_on_or_stops(ctl, waiting):
    conversation, _ = waiting()
    ctl("reject", conversation)
    assert "Nothing stops, because the agent is idle" in ctl("pause", conversation).stderr
    ctl("resume", conversation)
    assert "Asked to stop" in ctl("pause", conversation).stderr


def test_nobody_approves_unasked(ctl, waiting):
    conversation, one = waiting()
    assert "give --digest, or --yes" in ctl("approve", one, code=2).stderr
    ctl("reject", conversation, "--reason", "No.")
    assert "rejected  No." in ctl("logs", conversation).stdout


def test_a_resume_approves_nothing(ctl, waiting):
    conversation, _ = waiting()
    assert "an action waits for a decision" in ctl("resume", conversation, code=1).stderr
    ctl("reject", conversation)
    ctl("resume", conversation)


def test_the_help_of_run_says_what_each_value_of_approve_does(ctl):
    shown = " ".join(ctl("run", "--help").stdout.split())
    for words in ("`ask` asks you here", "`rules` leaves", "`never` rejects it", "`all` lets the agent do everything"):
        assert words in shown
    assert "`all`" not in ctl("send", "--help").stdout


@pytest.fixture
def box():
    """A sandbox of the shared server that runs, and a way to start more of them by their ids."""
    store = store_of(shared_server(ADMIN).url, limits_of(100, pause_idlest=False, host_seconds=60, start_seconds=120))
    store.sandboxes.beat("h", "supervisor")
    started = []

    def start(identity: str) -> str:
        started.append(store.sandboxes.start("spec", identity).id)
        return started[-1]

    yield store, start
    for one in started:
        store.sandboxes.report(one, "h", "supervisor", "GONE")


def test_a_sandbox_is_paused_and_resumed_by_the_beginning_of_its_id(ctl, box):
    store, start = box
    sandbox = start(f"zz{uuid4().hex[:12]}")
    while store.sandboxes.get(sandbox).host != "h":
        store.sandboxes.claim("h")
    for status in ("RUNNING", "PAUSED"):
        store.sandboxes.report(sandbox, "h", "supervisor", status, urls=[], handle={"pid": 1}, agent_url="http://a")
        store.sandboxes._redis.hset(f"{{sandboxes}}:box:{sandbox}", "wanted", "paused")

    assert f"Paused: sandbox {sandbox}" in ctl("pause", sandbox[:8]).stderr
    assert f"Resumes: sandbox {sandbox}" in ctl("resume", sandbox[:8]).stderr
    assert store.sandboxes.get(sandbox).wanted == "running"


def test_a_beginning_of_several_ids_is_an_error_that_lists_them(ctl, box, waiting):
    _, start = box
    conversation, _ = waiting()
    sandbox = start(f"{conversation[:8]}zzzz")

    told = ctl("pause", conversation[:8], code=2).stderr
    assert f"conversation {conversation}" in told
    assert f"sandbox {sandbox}" in told
    assert "No conversation and no sandbox begins with zzzzzzzz" in ctl("resume", "zzzzzzzz", code=4).stderr


def test_a_message_is_sent_and_a_conversation_is_deleted(ctl, waiting):
    conversation, _ = waiting()
    ctl("send", "--yes", conversation, "go on")
    assert "user      go on" in ctl("logs", conversation).stdout
    ctl("rm", conversation, "--yes")
    assert "Conversation not found" in ctl("logs", conversation, code=4).stderr


def test_the_agents_of_the_server_are_listed_with_what_asking_holds(ctl):
    lines = [line.split("\t") for line in ctl("agents").stdout.splitlines()]
    [spec, *_] = json.loads(ctl("agents", "--json").stdout)

    assert lines[0] == ["reference-agent", "Bundled agent", "–", "every action", "nothing by itself"]
    assert spec["agent"]["name"] == "reference-agent"
    assert spec["agent"]["asks"]


def test_keys_are_made_listed_and_revoked(ctl):
    made = json.loads(ctl("keys", "new", "a program", "--scope", "read", "--json").stdout)

    assert "a program" in ctl("keys").stdout
    assert json.loads(ctl("ls", "--json", key=made["key"]).stdout) is not None
    assert json.loads(ctl("keys", "--json", key=made["key"], code=5).stderr)["status"] == 403
    ctl("keys", "revoke", made["id"])
    assert made["id"] not in {one["id"] for one in json.loads(ctl("keys", "--json").stdout)}


def test_exit_codes_say_what_is_wrong(ctl, monkeypatch):
    monkeypatch.setattr("agent_server_client.cli.program._FIRST", 0.1)
    assert "does not answer" in ctl("ls", url=f"http://127.0.0.1:{free_port()}", code=3).stderr
    assert "No conversation begins with 0000" in ctl("logs", "0000", code=4).stderr
    ctl("ls", key="a-wrong-key-of-some-length", code=5)
    ctl("ls", "--no-such-option", code=2)
    ctl("run", "x", "--approve", "ask", code=2)
    assert (
        "There is no folder ./no-such-folder here, and it is no URL"
        in ctl("run", "x", "--repo", "./no-such-folder", code=2).stderr
    )
    assert "TEXT is empty" in ctl("run", " \n", code=2).stderr
    assert "TEXT is empty: nothing came on the standard input" in ctl("send", str(uuid4()), "-", code=2).stderr
    ctl("files", str(uuid4()), code=4)


def test_a_wait_for_a_server_that_has_answered_is_told_once(capsys, monkeypatch):
    monkeypatch.setattr("agent_server_client.cli.program._FIRST", 0.1)
    session, refusal = CommandSession(), AgentServerError(None, "http://server does not answer: refused")
    for spent in (0.0, 0.2, 0.7, 0.0, 0.2):
        session._tell_retry(refusal, spent, 300 - spent)
    told = capsys.readouterr().err.splitlines()
    assert told == ["http://server does not answer: refused. Trying again for 4 min 59 s; Ctrl-C ends this"] * 2


def test_the_status_says_who_one_is(ctl):
    shown = ctl("status").stdout
    assert "read, write, approve, admin" in shown
    server = json.loads(ctl("status", "--json").stdout)["server"]
    assert server["workers"] == 2
    places = server["sandboxes"]
    assert f"sandboxes {places['running']} of {places['most']} run (MAX_SANDBOXES)" in shown


@pytest.mark.parametrize(
    ("number", "more"), [(1, ""), (2, ", 1 more is paused or stopped"), (5, ", 4 more are paused or stopped")]
)
def test_the_status_tells_sandboxes_that_run_from_those_that_are_kept(ctl, monkeypatch, number, more):
    info = json.loads(ctl("status", "--json").stdout)["server"]
    hosts = [{"id": "one", "seen_at": "2026-11-28T00:00:00Z", "sandboxes": number, "version": None}]
    kept = {**info, "hosts": hosts, "sandboxes": {"running": 1, "most": 20}}
    monkeypatch.setattr("agent_server_client._sync.Client.server_info", lambda _: kept)

    shown = ctl("status").stdout

    assert f"sandboxes 1 of 20 run (MAX_SANDBOXES){more}\n" in shown
    assert f"one: {number} sandbox{'' if number == 1 else 'es'} of any status, seen" in shown


def test_the_status_of_a_server_that_does_not_answer_is_told_at_the_first_silence(ctl, monkeypatch):
    monkeypatch.setattr("agent_server_client.cli.program._SILENCE", 0.2)
    url = f"http://127.0.0.1:{free_port()}"
    assert f"{url} does not answer" in ctl("status", url=url, code=3).stderr
    with socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert json.loads(ctl("status", "--json", url=url, code=3).stderr)["exit_code"] == 3


def test_profiles_are_listed_without_their_keys(ctl, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert "No profiles" in ctl("profiles").stderr
    path = tmp_path / "agentctl/config.toml"
    path.parent.mkdir()
    path.write_text('[default]\nurl = "http://home"\n[work]\nurl = "http://work"\nkey = "of-work"\n')

    shown = ctl("--profile", "work", "profiles")

    assert [line.split("\t") for line in shown.stdout.splitlines()] == [
        ["default", "http://home", "no", "–"],
        ["work", "http://work", "yes", "yes"],
    ]
    assert "chmod 600" in shown.stderr
    path.chmod(0o600)
    listed = ctl("profiles", "--json")
    assert "chmod 600" not in listed.stderr
    assert "AGENT_SERVER_URL comes first" in listed.stderr
    assert [one["has_key"] for one in json.loads(listed.stdout)] == [False, True]
    assert "of-work" not in listed.output


def test_every_command_helps_and_the_exit_codes_are_in_the_help(ctl):
    assert "6    the decision was not taken" in ctl("--help").stdout
    for name in agentctl.commands:
        assert "Usage: agentctl" in ctl(name, "--help").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_ids(ctl, waiting, monkeypatch, shell):
    conversation, _ = waiting()
    assert "_AGENTCTL_COMPLETE" in ctl("completion", shell).stdout

    words = {
        "COMP_WORDS": f"agentctl logs {conversation[:6]}",
        "COMP_CWORD": "2" if shell != "fish" else conversation[:6],
    }
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("_AGENTCTL_COMPLETE", f"{shell}_complete")
    assert conversation in ctl().stdout


@pytest.fixture
def served(ctl, monkeypatch):
    """Runs agentctl against an agent server that gives some responses, as the published one would."""

    def run(*words: str, responses: list, code: int = 0):
        client, requests = responding(*(httpx.Response(200, json=one) for one in responses))
        monkeypatch.setattr(CommandSession, "client", lambda *_, **__: client)
        return ctl(*words, code=code), requests

    return run


def test_what_an_agent_changed_is_a_diff_without_its_own_records(served):
    changes = [
        {"status": "UPDATED", "path": "a.txt"},
        {"status": "ADDED", "path": "new\u202etxt"},
        {"status": "ADDED", "path": ".agent-server/events"},
    ]
    diffs = [{"original": "one\ntwo", "modified": "one\n2"}, {"original": "", "modified": "\x1b[2J"}]

    shown, requests = served("diff", str(uuid4()), responses=[changes, *diffs])

    assert shown.stdout.splitlines() == [
        *("--- a/a.txt", "+++ b/a.txt", "@@ -1,2 +1,2 @@", " one", "-two", "+2"),
        *("--- /dev/null", "+++ b/new\\u{202e}txt", "@@ -0,0 +1 @@", "+\\u{1b}[2J"),
    ]
    assert len(requests) == 3
    assert [dict(request.url.params) for request in requests] == [
        {"path": ".", "since": "start"},
        {"path": "a.txt", "since": "start"},
        {"path": "new\u202etxt", "since": "start"},
    ]


def test_a_diff_is_between_two_moments_or_against_a_commit(served, ctl):
    _, requests = served("diff", str(uuid4()), "src", "--since", "3", "--until", "9", responses=[[]])
    assert dict(requests[0].url.params) == {"path": "src", "since": "3", "until": "9"}

    _, requests = served("diff", str(uuid4()), "--repository", responses=[[]])
    assert dict(requests[0].url.params) == {"path": "."}
    assert "goes with neither" in ctl("diff", str(uuid4()), "--repository", "--since", "start", code=2).stderr


REMOTE = {
    **{"path": "app", "url": "https://git.example.org/team/app", "branch": "main", "base": "main", "lacks": None},
    **{"proposed_branch": "agent/mend", "proposed_title": "Mend"},
}
PUSHED = {
    **{"branch": "agent/mend", "commit": "f" * 40, "url": REMOTE["url"], "offered_url": None},
    "pull_request": "https://git.example.org/team/app/pulls/1",
}


def test_work_is_pushed_as_it_is_proposed_and_the_pull_request_is_printed(served):
    shown, requests = served("push", str(uuid4()), "--pull-request", "--yes", responses=[REMOTE, PUSHED])

    assert shown.stdout.splitlines() == [
        "agent/mend is ffffffffff at https://git.example.org/team/app",
        "https://git.example.org/team/app/pulls/1",
    ]
    assert json.loads(requests[1].content) == {
        **{"branch": "agent/mend", "title": "Mend", "description": "", "path": "app", "url": REMOTE["url"]},
        **{"base": None, "pull_request": True},
    }


def test_a_pull_request_that_cannot_be_opened_pushes_nothing(served):
    shown, requests = served(
        *("push", str(uuid4()), "--pull-request", "--yes"), responses=[{**REMOTE, "lacks": "No credential"}], code=1
    )
    assert "No credential" in shown.stderr
    assert len(requests) == 1


def test_a_push_that_nobody_can_be_asked_about_is_not_made(ctl):
    assert "Nobody can be asked here: give --yes" in ctl("push", str(uuid4()), code=2).stderr


def test_a_command_in_a_sandbox_ends_with_its_own_exit_code(served):
    output = {"items": [{"order": 0, "stdout": "out\n", "stderr": "err\n", "exit_code": 3}]}

    shown, requests = served("sh", str(uuid4()), "--", "ls", "a b", code=3, responses=[{"id": "c"}, output])

    assert (shown.stdout, shown.stderr) == ("out\n", "err\n")
    assert json.loads(requests[0].content)["command"] == "ls 'a b'"


def test_a_preview_is_opened_by_the_sandbox_of_its_conversation(served):
    address = {
        "url": "http://8123-abc.preview.localhost/_preview?ticket=one",
        "expires_at": "2026-11-26T00:00:00Z",
    }
    found = [{"sandbox_id": "the-sandbox"}]

    shown, requests = served("open", str(uuid4()), "--preview", "8123", "--json", responses=[found, address])

    assert json.loads(shown.stdout) == {"url": address["url"]}
    assert requests[1].url.path == "/api/v1/sandboxes/the-sandbox/previews"
    assert json.loads(requests[1].content) == {"port": 8123}


def test_a_conversation_without_a_sandbox_has_no_preview(ctl, waiting):
    conversation, _ = waiting()

    assert "sandbox" in ctl("open", conversation, "--preview", "8123", "--json", code=4).stderr


def test_what_an_agent_server_does_not_serve_is_refused_in_its_words(ctl, waiting):
    conversation, _ = waiting()
    assert "The conversation has no sandbox" in ctl("sh", conversation, "ls", code=1).stderr
    ctl("diff", conversation, code=4)


@pytest.fixture
def asks():
    """Has a sandbox of the shared server ask for a name; what waits of it then ends with the test."""
    store = store_of(shared_server(ADMIN).url, limits_of(100, pause_idlest=False, host_seconds=60, start_seconds=120))
    store.sandboxes.beat("h", "supervisor")
    sandbox = store.sandboxes.start("spec").id

    def ask(name: str, program: str = "curl"):
        return store.destinations.verdict(sandbox, name, 443, program)

    yield ask
    for one in store.destinations.waiting(sandbox):
        store.destinations.decide(one, "reject", "conversation", DecisionActor("key", "me"))
    store.sandboxes.ask(sandbox, "delete")


def test_what_a_sandbox_asks_to_reach_is_listed_and_decided(ctl, asks):
    asks("ctl.example.org", "pip \u202egnp")
    shown = ctl("inbox", "--text", "ctl.example").stdout
    assert "ctl.example.org:443" in shown
    assert "pip \\u{202e}gnp" in shown
    [item] = json.loads(ctl("inbox", "--text", "ctl.example", "--json").stdout)

    assert "give --digest, or --yes" in ctl("approve", "ctl.example.org:443", code=2).stderr
    assert "not the one that was shown" in ctl("approve", "ctl.example.org:443", "--digest", 64 * "0", code=6).stderr
    [decided] = json.loads(ctl("approve", "ctl.example.org:443", "--digest", item["digest"][:12], "--json").stdout)
    assert (decided["subject"], decided["decision"], decided["scope"]) == ("destination", "approve", "once")
    assert [asks("ctl.example.org").is_allowed for _ in range(2)] == [True, False]

    ctl("reject", "ctl.example.org:443", "--reason", "No.")
    assert asks("ctl.example.org").reason.endswith("a person rejected it")
    assert "decided already" in ctl("reject", "ctl.example.org:443", code=6).stderr


def test_a_scope_is_of_destinations_alone(ctl, waiting):
    conversation, one = waiting()
    assert "--scope is of destinations alone" in ctl("approve", one, "--yes", "--scope", "always", code=2).stderr
    ctl("reject", conversation)


def test_a_budget_that_is_used_up_is_listed_and_allowed_once_more(ctl):
    store = store_of(shared_server(ADMIN).url, limits_of(100, pause_idlest=False, host_seconds=60, start_seconds=120))
    store.sandboxes.beat("h", "supervisor")
    sandbox = store.sandboxes.start("spec").id
    words = {"more": ModelBudget(5_000_000_000, 2_000_000), "day": store.spending.so_far(sandbox).today}
    store.spending.refuse(sandbox, "", "MODEL_BUDGET_CONVERSATION", "127.0.0.1", 80, "Used up", **words)
    listed = ctl("inbox", "--text", "budget:conversation")
    assert all(words in listed.stdout for words in ("MODEL_BUDGET_CONVERSATION: an approval adds $5", "2,000,000"))
    assert "agentctl approve budget:conversation" in listed.stderr
    [item] = json.loads(ctl("inbox", "--text", "budget:conversation", "--json").stdout)

    bound = ("budget:conversation", "--digest", item["digest"][:12])
    assert "always is not offered" in ctl("approve", *bound, "--scope", "always", code=1).stderr
    [decided] = json.loads(ctl("approve", *bound, "--json").stdout)
    assert (decided["subject"], decided["budget"]["tokens"], decided["scope"]) == ("budget", 2_000_000, "once")
    assert store.spending.of_sandbox(sandbox).allowed_tokens == 2_000_000
    assert "decided already" in ctl("reject", "budget:conversation", code=6).stderr
    store.sandboxes.ask(sandbox, "delete")

"""agentctl as a person uses it, in a terminal, against whole servers."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest
from agent_server_client import Client

from tests.client.terminal import terminal
from tests.conftest import message
from tests.servers import PROJECT, agent_server, free_port, store_server, supervised_server, wait_until

pytestmark = pytest.mark.process("starts whole servers, sandboxes and terminals")


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """The address of a server with a supervisor."""
    with supervised_server(tmp_path_factory.mktemp("agentctl")) as (client, _):
        yield str(client.base_url).rstrip("/")


def test_a_person_runs_approves_rejects_sends_downloads_and_looks_at_what_changed(url, tmp_path):
    (tmp_path / "begin.txt").write_text("from here\n")
    words = (
        "run",
        "run: cat begin.txt > seen.txt; cat seen.txt",
        "--repo",
        str(tmp_path),
        "--pull",
        str(tmp_path / "out"),
    )
    with terminal(*words, AGENT_SERVER_URL=url) as shown:
        shown.wait_for("Low risk")
        shown.wait_for("cat begin.txt > seen.txt; cat seen.txt")
        shown.wait_for("[l]eave [?]")
        shown.press("a\n")
        shown.wait_for("Approved: terminal  cat begin.txt")
        shown.wait_for("result    from here")
        shown.wait_for("finished")
        assert shown.end() == 0
        [identity] = re.findall(r"Conversation ([0-9a-f]{8})", shown.shown)
    assert (tmp_path / "out/seen.txt").read_text() == "from here\n"

    with terminal("send", "-f", identity, "run: rm seen.txt", AGENT_SERVER_URL=url) as shown:
        shown.wait_for("rm seen.txt")
        shown.wait_for("[l]eave [?]")
        shown.press("r\n")
        shown.wait_for("Reason")
        shown.press("Keep it.\n")
        shown.wait_for("Rejected: terminal  rm seen.txt")
        assert shown.end() == 7
        assert f"agentctl send -f {identity}" in " ".join(shown.shown.split())

    target = tmp_path / "one.txt"
    with terminal("download", identity, "seen.txt", str(target), AGENT_SERVER_URL=url) as shown:
        assert shown.end() == 0
    assert target.read_text() == "from here\n"

    with terminal("diff", identity, AGENT_SERVER_URL=url) as shown:
        assert shown.end() == 0
        assert "+from here" in shown.shown

    with terminal("sh", identity, "cat seen.txt; exit 3", AGENT_SERVER_URL=url) as shown:
        assert shown.end() == 3
        assert shown.shown == "from here\n"


def test_a_person_decides_from_the_inbox_and_a_key_that_was_pressed_before_decides_nothing(url):
    with Client(url) as server:
        conversation = server.start("run: true")
        wait_until(conversation.pending_actions, "an action that waits")
        [waiting] = conversation.pending_actions()

        with terminal("approve", waiting.id[:8], AGENT_SERVER_URL=url) as shown:
            shown.press("y\n")  # before anything was shown
            shown.wait_for("Approve this?")
            assert len(conversation.pending_actions()) == 1
            shown.press("y\n")
            shown.wait_for("Approved: terminal")
            assert shown.end() == 0

        with terminal("ls", AGENT_SERVER_URL=url) as shown:
            assert shown.end() == 0
            assert shown.shown.splitlines()[0].split() == ["ID", "TITLE", "STATUS", "WAITING", "EVENTS", "CHANGED"]


def test_a_destination_is_asked_about_in_its_place_and_the_agent_is_told_to_try_again(url):
    fetch = "run: python3 -c 'import urllib.request as u; u.urlopen(\"https://cli.example.org\")' || true"
    with terminal("run", fetch, AGENT_SERVER_URL=url) as shown:
        shown.wait_for("[l]eave [?]")
        shown.press("a\n")
        shown.wait_for("A sandbox asks to reach")
        shown.wait_for("cli.example.org:443")
        shown.wait_for("[a]llow once [c]onversation [A]lways [r]efuse [l]eave [?]")
        shown.press("c\n")
        shown.wait_for("Allowed for the conversation: cli.example.org:443")
        shown.wait_for("The server tells the agent, which goes on.")
        shown.wait_for("server    Somebody has allowed cli.example.org:443. Try again.")
        shown.wait_for("[l]eave [?]")  # without a model the message repeats the command, which is asked about again
        shown.press("a\n")
        assert shown.end() == 0


def test_a_start_with_no_go_on_asks_the_person_to_continue(url):
    fetch = "run: python3 -c 'import urllib.request as u; u.urlopen(\"https://no.example.org\")' || true"
    with terminal("run", "--no-go-on", fetch, AGENT_SERVER_URL=url) as shown:
        shown.wait_for("[l]eave [?]")
        shown.press("a\n")
        shown.wait_for("[a]llow once [c]onversation [A]lways [r]efuse [l]eave [?]")
        shown.press("c\n")
        shown.wait_for("Send the agent “no.example.org:443 is allowed now, try again.”? [Y/n]")
        shown.press("\n")
        shown.wait_for("user      no.example.org:443 is allowed now, try again.")
        assert shown.end() == 7  # without a model the agent does nothing with that sentence


def test_a_question_of_chat_about_a_message_ends_when_somebody_else_decides(url):
    with Client(url) as server:
        conversation = server.start("run: true")
        wait_until(conversation.pending_actions, "an action that waits")
        [waiting] = conversation.pending_actions()
        with terminal("chat", conversation.id, "--approve", "rules", AGENT_SERVER_URL=url) as shown:
            shown.wait_for("It waits for a decision")
            shown.press("run: echo later\r")
            shown.wait_for("This message rejects 1 action. Send it? [y/N]")
            waiting.approve()
            shown.wait_for("It was approved by")
            shown.wait_for("> run: echo later")
            shown.press("\x04")
            shown.end()


def test_the_example_of_the_page_runs_an_agent_to_its_end(url):
    [example] = re.findall(
        r"<!-- example -->\n```python\n(.*?)```", (PROJECT / "docs/client.md").read_text(), re.DOTALL
    )
    environment = {**os.environ, "AGENT_SERVER_URL": url, "PYTHONPATH": str(PROJECT / "client/src")}

    ran = subprocess.run([sys.executable, "-c", example], env=environment, capture_output=True, text=True, check=True)

    assert example in (PROJECT / "README.md").read_text()
    assert [line.split()[1] for line in ran.stdout.splitlines() if line[:1].isdigit()][-2:] == [
        "ObservationEvent",
        "ConversationStateUpdateEvent",
    ]


def test_a_run_that_nobody_watches_approves_nothing(url):
    environment = {**os.environ, "AGENT_SERVER_URL": url, "PYTHONPATH": str(PROJECT / "client/src")}
    words = [sys.executable, "-m", "agentctl", "run", "run: touch never", "--json", "--approve", "never"]

    ran = subprocess.run(words, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)

    assert ran.returncode == 7
    error = json.loads(ran.stderr.splitlines()[-1])["error"]
    assert "because an action was rejected: Nothing is approved in this run" in error
    with Client(url) as server:
        conversation = server.conversation(json.loads(ran.stdout.splitlines()[0])["conversation_id"])
        assert conversation.files.list() == []
        assert [one.event["kind"] for one in conversation.log()].count("ObservationEvent") == 0
        conversation.delete()


def test_a_run_with_approve_all_asks_about_no_action_and_says_so_once(url):
    environment = {**os.environ, "AGENT_SERVER_URL": url, "PYTHONPATH": str(PROJECT / "client/src")}
    words = [sys.executable, "-m", "agentctl", "run", "run: echo unasked", "--approve", "all"]

    ran = subprocess.run(words, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)

    assert ran.returncode == 0, ran.stderr
    assert "result    unasked" in ran.stdout
    assert ran.stderr.count("The agent does everything inside this sandbox unasked") == 1
    assert "waits for you" not in ran.stdout


def test_a_run_continues_after_its_follower_leaves(url):
    with terminal("run", "run: true", AGENT_SERVER_URL=url) as shown:
        shown.wait_for("[l]eave [?]")
        shown.press("\x03")
        shown.wait_for("It still waits. Decide it later: agentctl approve")
        assert shown.end() == 130
        [identity] = re.findall(r"Conversation ([0-9a-f]{8})", shown.shown)
    with terminal("rm", identity, AGENT_SERVER_URL=url) as shown:
        shown.wait_for("and the files of its sandbox? [y/N]")
        shown.press("y\n")
        assert shown.end() == 0


def test_logs_f_prints_each_event_once_through_a_killed_worker_and_a_restart(tmp_path):
    with store_server(tmp_path) as (redis_url, _):
        settings = {"REDIS_URL": redis_url, "PORT": str(free_port())}
        log = tmp_path / "lines"
        with agent_server(tmp_path / "log", **settings) as (client, master):
            url = str(client.base_url).rstrip("/")
            identity = client.post("/api/conversations", json={}).json()["id"]
            path = f"/api/v1/webhooks/events/{identity}"
            client.post(path, json=[message("1", "agent")]).raise_for_status()
            words = [sys.executable, "-m", "agentctl", "logs", "-f", identity, "--json"]
            environment = {**os.environ, "AGENT_SERVER_URL": url, "PYTHONPATH": str(PROJECT / "client/src")}
            with log.open("wb") as output:
                followed = subprocess.Popen(words, stdout=output, env=environment)
            try:
                wait_until(lambda: len(lines_of(log)) == 1, "the first event")
                for worker in psutil.Process(master.pid).children():
                    if "gunicorn" in " ".join(worker.cmdline()):
                        worker.send_signal(signal.SIGKILL)
                wait_until(lambda: client.post(path, json=[message("2", "agent")]).is_success, "another worker")
                wait_until(lambda: "2" in texts(log), "the event after the kill")
            except BaseException:
                followed.kill()
                raise
        try:
            time.sleep(0.5)  # the follower meets a server that is away
            with agent_server(tmp_path / "log", **settings) as (client, _):
                client.post(path, json=[message("3", "agent")]).raise_for_status()
                wait_until(lambda: "3" in texts(log), "the event after the restart")
                entries = lines_of(log)
        finally:
            followed.kill()
            followed.wait()
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    assert len({entry["event"]["id"] for entry in entries}) == len(entries)


def lines_of(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def texts(path) -> list[str]:
    return [entry["event"]["llm_message"]["content"][0]["text"] for entry in lines_of(path)]


def test_a_question_of_approve_send_and_rm_ends_when_others_decide_or_delete(url):
    with Client(url) as server:
        first = server.start("run: echo first")
        wait_until(first.pending_actions, "an action that waits")
        with terminal("approve", first.id[:8], AGENT_SERVER_URL=url) as shown:
            shown.wait_for("Approve this?")
            first.pending_actions()[0].reject("Not today")
            shown.wait_for("It was rejected by anyone: Not today. Nothing was approved here")
            assert shown.end() == 6

        second = server.start("run: echo second")
        wait_until(second.pending_actions, "an action that waits")
        with terminal("send", second.id[:8], "more", AGENT_SERVER_URL=url) as shown:
            shown.wait_for("This message rejects 1 action. Send it?")
            second.pending_actions()[0].approve()
            shown.wait_for("It was approved by anyone. Nothing was sent.")
            assert shown.end() == 1

        with terminal("rm", second.id[:8], AGENT_SERVER_URL=url) as shown:
            shown.wait_for("and the files of its sandbox? [y/N]")
            second.delete()
            shown.wait_for("Somebody has deleted it meanwhile. Nothing was deleted here")
            assert shown.end() == 4
        first.delete()


def test_an_answer_to_a_server_that_refuses_connections_is_told_within_seconds(tmp_path):
    with contextlib.ExitStack() as stack:
        client, _ = stack.enter_context(supervised_server(tmp_path))
        url = str(client.base_url).rstrip("/")
        with terminal("run", "run: true", AGENT_SERVER_URL=url) as shown:
            shown.wait_for("[l]eave [?]")
            stack.close()
            shown.press("a\n")
            shown.wait_for("Your answer is sent again")
            shown.press("\x03")
            shown.wait_for("It is not known whether your answer arrived. What still waits: agentctl inbox")
            assert shown.end() == 130

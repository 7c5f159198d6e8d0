"""The recipes of docs/client.md, each run from the text of the page."""

import os
import re
import signal
import subprocess
import sys

import pytest
from agent_server_client import Client

from tests.servers import PROJECT, supervised_server, wait_until

pytestmark = pytest.mark.process("starts whole servers, sandboxes and programs")

RULE, BATCH, BOT, FILES, MANY, CURSOR = re.findall(
    r"<!-- recipe -->\n```python\n(.*?)```", (PROJECT / "docs/client.md").read_text(), re.DOTALL
)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """The address of a server with a supervisor."""
    with supervised_server(tmp_path_factory.mktemp("recipes")) as (client, _):
        yield str(client.base_url).rstrip("/")


def begun(recipe: str, url: str, folder, *arguments: str) -> subprocess.Popen:
    environment = {**os.environ, "AGENT_SERVER_URL": url, "PYTHONPATH": str(PROJECT / "client/src")}
    words = [sys.executable, "-c", recipe, *arguments]
    return subprocess.Popen(words, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True)


def printed(recipe: str, url: str, folder, *arguments: str) -> list[str]:
    program = begun(recipe, url, folder, *arguments)
    output, _ = program.communicate(timeout=300)
    assert program.returncode == 0
    return output.splitlines()


def test_a_task_comes_to_its_end_by_a_rule(url, tmp_path):
    lines = printed(RULE, url, tmp_path)

    assert "ActionEvent uname -a" in lines
    assert any(line.startswith("ObservationEvent Linux") for line in lines)
    assert lines[-1].split() == ["finished"]


def test_a_batch_that_was_killed_goes_on_and_begins_no_task_twice(url, tmp_path):
    first = begun(BATCH, url, tmp_path)
    assert first.stdout.readline().startswith("Say something about the number 0. finished: ")
    first.kill()
    first.communicate()

    lines = printed(BATCH, url, tmp_path)

    assert [line.partition(". ")[0].rpartition(" ")[2] for line in lines] == [str(number) for number in range(20)]
    assert all(" finished: " in line and not line.endswith("finished: ") for line in lines)
    with Client(url) as server:
        titles = [one.listed.title for one in server.conversations(text="Say something about")]
    assert len(titles) == len(set(titles)) == 20


def test_a_bot_approves_what_its_rule_names_until_it_is_interrupted(url, tmp_path):
    bot = begun(BOT, url, tmp_path)
    try:
        with Client(url) as server:
            known = server.start("run: true", title="For the bot")
            unknown = server.start("run: false")
            assert bot.stdout.readline() == "approved true in For the bot\n"
            wait_until(lambda: known.status() == "finished", "the end of what was approved")
            assert unknown.wait().status == "waiting_for_confirmation"
            known.delete()
            unknown.delete()
    finally:
        bot.send_signal(signal.SIGINT)
        bot.communicate()


def test_files_are_brought_and_taken(url, tmp_path):
    assert printed(FILES, url, tmp_path) == ["0 3", " ", "1", "2", "3", ""]
    assert (tmp_path / "sorted.txt").read_text() == "1\n2\n3\n"


def test_many_agents_are_followed_at_once(url, tmp_path):
    lines = printed(MANY, url, tmp_path)

    for number in range(5):
        assert [line for line in lines if line.endswith(f"ObservationEvent {number}")]


def test_a_program_goes_on_where_its_saved_cursor_is(url, tmp_path):
    with Client(url) as server:
        conversation = server.start("run: echo one")
        conversation.wait(lambda action: action.approve(), seconds=120)
        first = printed(CURSOR, url, tmp_path, conversation.id)
        conversation.send("run: echo two").wait(lambda action: action.approve(), seconds=120)
        second = printed(CURSOR, url, tmp_path, conversation.id)
        last = conversation.count()
    assert [int(line.split()[0]) for line in first + second] == list(range(1, last + 1))
    assert second

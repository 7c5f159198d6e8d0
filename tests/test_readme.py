"""The commands of the README and the tour print the transcripts that the pages show."""

import json
import os
import re
import runpy
import subprocess
import sys

import pytest

from tests.servers import PROJECT, program, supervised_server
from tests.shared import ADMIN, shared_server

README, TOUR = (PROJECT / "README.md").read_text(), (PROJECT / "docs" / "tour.md").read_text()


@pytest.fixture(scope="module", params=["", pytest.param(ADMIN, marks=pytest.mark.process("the same with a key"))])
def key(request):
    """The key of the server, empty where none is needed."""
    return request.param


@pytest.fixture(scope="module")
def server(key):
    return shared_server(key).client


def keyed(script: str, key: str) -> dict:
    """How to run a script of the page for a server that needs a key; the words of `subprocess.run`."""
    [first] = re.findall(r"<!-- key -->\n```sh\n(.*?)```", TOUR, re.DOTALL)
    return {"args": ["bash", "-ec", (first if key else "") + script], "env": {**os.environ, "SESSION_API_KEY": key}}


@pytest.mark.process("asks a real server")
def test_the_demo_prints_the_transcript_of_the_page(server, key):
    [shown] = re.findall(r"<!-- demo -->\n```console\n\$ make demo\n(.*?)```", TOUR, re.DOTALL)

    ran = subprocess.run(
        [sys.executable, "docs/examples/demo.py", str(server.base_url).rstrip("/")],
        cwd=PROJECT,
        env={**os.environ, "SESSION_API_KEY": key},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert timeless(ran.stdout) == timeless(shown)


def timeless(text: str) -> str:
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text)
    return re.sub(r"127\.0\.0\.1:\d+", "SERVER", re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+", "TIME", text))


@pytest.mark.parametrize("name", ["demo", "echo_agent", "aais_envelopes"])
def test_an_example_without_a_url_calls_the_server_of_the_environment(name, monkeypatch):
    monkeypatch.setattr(sys, "argv", [name])
    monkeypatch.delenv("AGENT_SERVER_URL", raising=False)
    monkeypatch.delenv("PORT", raising=False)
    found = []
    for variable, value in (("", ""), ("PORT", "8123"), ("AGENT_SERVER_URL", "http://agents.test")):
        if variable:
            monkeypatch.setenv(variable, value)
        found.append(runpy.run_path(str(PROJECT / "docs/examples" / f"{name}.py"))["HERE"])

    assert found == ["http://127.0.0.1:8000", "http://127.0.0.1:8123", "http://agents.test"]


@pytest.mark.process("starts a program")
def test_the_demo_reports_that_no_server_responds():
    ran = subprocess.run(
        [sys.executable, "docs/examples/demo.py", "http://127.0.0.1:1"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ran.returncode != 0
    assert "No server answers at http://127.0.0.1:1" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.process("starts programs against a real server")
@pytest.mark.parametrize("key", ["", "no-key-of-this-server"])
@pytest.mark.parametrize("words", [["demo.py"], ["echo_agent.py", "5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0009"]])
def test_an_example_whose_key_is_refused_says_where_to_put_one(words, key, tmp_path):
    url = str(shared_server(ADMIN).client.base_url).rstrip("/")

    ran = subprocess.run(
        [sys.executable, f"docs/examples/{words[0]}", *words[1:], url],
        cwd=PROJECT,
        env={**os.environ, "SESSION_API_KEY": key, "DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (ran.returncode, ran.stderr) == (1, f"{url} refuses the key: put a valid one into SESSION_API_KEY.\n")


@pytest.mark.process("asks a real server")
def test_the_commands_of_the_page_return_the_documented_responses(server, key):
    program("curl")
    [script] = re.findall(r"The same with curl:\n\n```sh\n(.*?)```", TOUR, re.DOTALL)
    script = script.replace("http://127.0.0.1:${PORT:-8000}", str(server.base_url).rstrip("/"))
    script = script.replace("curl -s", "curl -sS --fail-with-body -w '\\n'")

    ran = subprocess.run(**keyed(script, key), capture_output=True, text=True, timeout=60, check=True)

    responses = [json.loads(line) for line in ran.stdout.splitlines() if line.strip()]
    started, sent, appended, pending, decided, actions, bodies, page = responses
    assert (started["title"], started["execution_status"]) == ("First steps", "idle")
    assert sent == {"success": True}
    assert appended == {"success": True, "appended": 1, "seq": 4}
    assert [(action["id"], action["arguments"]) for action in pending] == [("a1", {"command": "deploy"})]
    assert decided == {"success": True}
    assert (actions, bodies) == (1, 1)
    assert [event["value"] for event in page["items"]] == ["running", "waiting_for_confirmation"]


@pytest.mark.process("runs an agent and follows it for seconds")
def test_the_agent_prints_the_transcript_of_the_page(server, key):
    program("curl")
    [script] = re.findall(r"## An agent, live\n.*?```sh\n(.*?)```", TOUR, re.DOTALL)
    url = str(server.base_url).rstrip("/")
    script = re.sub(r"curl -sN --max-time 5 (\S+).*", r"curl -sN --max-time 1 \1 || true", script)
    script = script.replace("http://127.0.0.1:${PORT:-8000}", url).replace("curl -s ", "curl -sS -w '\\n' ")
    script = script.replace("make agent ID=$ID &", f"{sys.executable} docs/examples/echo_agent.py $ID {url} &")

    ran = subprocess.run(**keyed(script, key), cwd=PROJECT, capture_output=True, text=True, timeout=90)

    responses = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    _started, sent, proposed, accepted, observed = responses
    assert sent == accepted == {"success": True}
    assert [event["kind"] for event in proposed["items"]][:1] == ["ActionEvent"]
    [observation] = observed["items"]
    assert observation["observation"]["command"] == "uname -a"
    assert observation["observation"]["exit_code"] == 0


@pytest.mark.process("starts a server with a supervisor and a sandbox")
def test_an_agent_in_a_sandbox_prints_the_transcript_of_the_page(tmp_path):
    with supervised_server(tmp_path) as (client, _):
        check_the_sandbox_lines(str(client.base_url))


def check_the_sandbox_lines(url: str, key: str = "") -> None:
    """Run the commands against a server, and compare their output with the page."""
    program("curl")
    [script] = re.findall(r"## Run an agent in a sandbox\n.*?```sh\n(.*?)```", TOUR, re.DOTALL)
    [shown] = re.findall(r"<!-- sandbox -->\n```\n(.*?)```", TOUR, re.DOTALL)
    script = script.replace("http://127.0.0.1:${PORT:-8000}", url.rstrip("/"))

    ran = subprocess.run(**keyed(script, key), capture_output=True, text=True, timeout=90, check=True)

    assert lasting(ran.stdout) == lasting(shown)


def lasting(text: str) -> list[str]:
    """The part of a transcript that is the same in every run. A start may pass some states too fast to be seen."""
    text = re.sub(r'"disk_bytes":\d+', '"disk_bytes":BYTES', re.sub(r'"Linux [^"]*"', '"KERNEL"', timeless(text)))
    text = re.sub(r'"host":"[^"]*"', '"host":"HOST"', text)
    text = re.sub(r'"isolation":\{[^}]*\}', '"isolation":ISOLATION', text)  # what this host has
    text = re.sub(r'"stray_conversations":(null|\{[^}]*\})', '"stray_conversations":STRAYS', text)  # asked by now?
    text = re.sub(r'"call_\w+"', '"CALL"', re.sub(r'"id":"[A-Za-z0-9]{22}"', '"id":"SANDBOX"', text))
    ends = ('"status": "WORKING"', '"status": "READY"')
    return [line for line in text.splitlines() if not line.startswith('"status"') or line in ends]


PAGES = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *(PROJECT / "docs").glob("*.md")]


def test_every_file_that_a_page_names_exists():
    faults = []
    for page in PAGES:
        text = page.read_text()
        links = [page.parent / name for name in re.findall(r"\]\(([\w./-]+)\)", text)]
        paths = [PROJECT / name for name in re.findall(r"`([\w/]+/[\w/]+\.(?:py|md|yaml|toml|lua))`", text)]
        faults += [f"{page.name}: {path}" for path in (*links, *paths) if not path.exists()]
    assert faults == []


def test_no_line_of_a_page_is_longer_than_160_characters_outside_tables_and_code():
    faults = []
    for page in (*PAGES, PROJECT / "CHANGELOG.md"):
        in_code = False
        for number, line in enumerate(page.read_text().splitlines(), 1):
            in_code ^= line.lstrip().startswith("```")
            if len(line) > 160 and not in_code and not line.lstrip().startswith("|"):
                faults.append(f"{page.name}:{number}: {len(line)} characters")
    assert faults == []


def test_the_first_screen_of_the_readme_shows_both_commands():
    first_screen = README.splitlines()[:25]

    assert [line.split("#")[0].strip() for line in first_screen if line.startswith("make ")] == [
        "make run",
        "make test",
    ]


@pytest.mark.process("starts a server with a supervisor and a sandbox")
def test_the_command_in_the_readme_starts_an_app_conversation(tmp_path):
    program("curl")
    [command] = re.findall(r"^curl .*stream-start$", README, re.MULTILINE)

    with supervised_server(tmp_path) as (client, _):
        command = command.replace("http://127.0.0.1:8000", str(client.base_url).rstrip("/"))
        ran = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, timeout=90, check=True)

    assert json.loads(ran.stdout)[-1]["status"] == "READY"


def test_every_target_of_make_is_described():
    makefile = (PROJECT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    described = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))

    assert targets == described

"""Forks of the bundled agent's conversations: in a sandbox of their own, with the files as they were at an event."""

import re
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from settings.specs import BUNDLED
from store.errors import IdInUse
from tests.agents.scripted_model import calls, edit, finish, run, scripted_model
from tests.folders import fill, seen
from tests.servers import supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.processes import in_sandboxes

pytestmark = pytest.mark.process("starts a sandbox for each fork")

PATH = "/v1/app-conversations"


@pytest.fixture(scope="module")
def model():
    with scripted_model() as model:
        yield model


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("forks")


@pytest.fixture(scope="module")
def forking(home, model):
    """A server with the bundled specs, not isolated: an isolated sandbox reaches no model on the host's loopback."""
    specs = home / "specs.toml"
    specs.write_text(re.sub(r'\negress = "named"\n(#.*\n)hosts = .*\n', '\nisolation = "none"\n', BUNDLED.read_text()))
    variables = {"LLM_MODEL": "openai/scripted", "LLM_API_KEY": "key", "LLM_BASE_URL": model.url}
    with supervised_server(home, SANDBOX_SPECS=str(specs), **variables) as (client, _):
        yield client
    assert not in_sandboxes(home)


def work_of(folder: Path, conversation) -> Path:
    [work] = (folder / "sandboxes").glob(f"*/{conversation['sandbox_id']}/work")
    return work


def files_of(work: Path):
    return seen(work, ".agent-server")


def records(api, conversation):
    return api.call("GET", f"{PATH}/{conversation['id']}/records")["records"]


def recorded(api, conversation):
    """Wait until the folder is recorded beside the last event; the record."""

    def is_recorded() -> bool:  # the last event of now: the turn of a message that was just sent may not have begun
        last = api.events(conversation["id"], sort_order="TIMESTAMP_DESC", limit="1")[0]["id"]
        return any(last in one["event_ids"] for one in records(api, conversation))

    wait_until(is_recorded, "the record")
    return records(api, conversation)[-1]


def forked(api, conversation, event_id=None, *, status=201, **members):
    """The response to a fork, of an app conversation."""
    body = members | ({"from_event_id": event_id} if event_id else {})
    made = api.call("POST", f"/conversations/{UUID(conversation['id'])}/fork", status=status, json=body)
    return api.conversation(UUID(made["id"]).hex) if status == 201 else made


def ids(api, conversation):
    return [event["id"] for event in api.events(conversation["id"])]


def changed_by_steps(api, home, model):
    """A conversation whose agent changed files by commands and by its tool, its folder, and each record with its files.

    Each action waited; the last one ended the run.
    """
    model.script += [
        calls(run("mkdir -p a/b && printf 1 > a/b/x && chmod 711 a && rm plain.txt")),
        calls(edit("create", "plan.txt", file_text="one\ntwo\n")),
        calls(
            run("ln -s a link; mv run.sh \"$(printf 'odd\\nname')\"; mkdir void; chmod 700 void; echo y > .gitignore")
        ),
        calls(edit("str_replace", "plan.txt", old_str="two", new_str="2")),
        calls(run("git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one")),
        calls(finish("done")),
    ]
    message = {"content": [{"type": "text", "text": "begin"}], "run": False}
    conversation = api.app_conversation(initial_message=message)
    work = work_of(home, conversation)
    fill(work)
    api.call("POST", f"/conversations/{UUID(conversation['id'])}/run")
    moments = []
    for number in range(1, 7):
        status = "finished" if number == 6 else "waiting_for_confirmation"
        wait_until(lambda count=number: api.count(conversation["id"], kind="ActionEvent") == count, "the next action")
        api.until(conversation["id"], status)
        moments.append((recorded(api, conversation), files_of(work)))
        if status != "finished":
            api.decide(conversation["id"], True)
    assert len({str(files) for _, files in moments}) == 6, "each step changes files"
    return conversation, work, moments


def test_a_fork_from_any_event_has_the_files_of_then_and_goes_on_beside_the_untouched_original(forking, home, model):
    # Given a conversation whose agent changes files by commands and by its tool, each of which waits
    api = WireApi(forking)
    conversation, work, moments = changed_by_steps(api, home, model)
    log, end = ids(api, conversation), files_of(work)

    # When it is forked from the first and from the last event of each record
    forks = []
    for record, files in moments:
        for event_id in dict.fromkeys([record["event_ids"][0], record["event_ids"][-1]]):
            fork = forked(api, conversation, event_id)
            # Then the fork has the log up to the event, and the files of then, in a sandbox of its own
            assert files_of(work_of(home, fork)) == files
            upto = log[: log.index(event_id) + 1]
            assert ids(api, fork)[: len(upto)] == upto
            assert fork["sandbox_id"] != conversation["sandbox_id"]
            assert fork["execution_status"] == "idle"
            assert api.call("GET", f"/conversations/{UUID(fork['id'])}/pending_actions") == []
            forks.append(fork)

    # And the original is as it was
    assert (ids(api, conversation), files_of(work)) == (log, end)

    # And a fork from an action that waited goes on with its own files; the agent knows that it was not executed
    fork = next(
        one
        for one in reversed(forks)  # of a record the last event is the action
        if (work_of(home, one) / "plan.txt").exists() and not (work_of(home, one) / "void").exists()
    )
    model.script += [calls(run("cat plan.txt > copy.txt")), calls(finish("copied"))]
    api.send(fork["id"], "Copy the plan.", run=True)
    api.until(fork["id"], "waiting_for_confirmation")
    api.decide(fork["id"], True)
    api.until(fork["id"], "finished")
    assert (work_of(home, fork) / "copy.txt").read_text() == "one\ntwo\n"
    assert any("not executed in this fork" in told for told in model.told("tool"))
    assert not (work / "copy.txt").exists()
    assert (ids(api, conversation), files_of(work)) == (log, end)
    api.clean()


@pytest.fixture
def talked(api, folder):
    """A conversation that ran two commands in one turn, which nothing held back, and its folder."""
    message = {"content": [{"type": "text", "text": "run: echo 1 > a\nrun: echo 2 > a"}], "run": True}
    conversation = api.app_conversation(sandbox_spec_id="free", initial_message=message)
    api.until(conversation["id"], "finished")
    recorded(api, conversation)
    return conversation


def test_a_fork_from_an_event_without_a_record_is_refused_with_the_nearest_that_has_one(api, talked, folder):
    first, _ = api.events(talked["id"], kind__eq="ObservationEvent")
    sandboxes = api.call("GET", "/v1/sandboxes/search")["items"]

    refusal = forked(api, talked, first["id"], status=409)["detail"]

    [record] = records(api, talked)
    assert first["id"] not in record["event_ids"]
    assert record["event_ids"][-1] in refusal
    assert "were not recorded at this event" in refusal
    assert len(api.call("GET", "/v1/sandboxes/search")["items"]) == len(sandboxes)
    assert (work_of(folder, forked(api, talked, record["event_ids"][-1])) / "a").read_text() == "2\n"


def test_a_fork_of_the_whole_conversation_has_its_files_also_when_the_sandbox_is_paused(api, talked, folder):
    api.call("POST", f"/v1/sandboxes/{talked['sandbox_id']}/pause")
    api.wait_for(talked["sandbox_id"], "PAUSED")

    fork = forked(api, talked, title="Other")

    assert fork["title"] == "Other"
    assert ids(api, fork) == ids(api, talked)
    assert files_of(work_of(folder, fork)) == files_of(work_of(folder, talked))
    assert api.sandbox(talked["sandbox_id"])["status"] == "PAUSED"


def test_a_fork_that_is_asked_for_twice_by_one_id_is_one(api, talked):
    identity = str(uuid4())

    made = forked(api, talked, id=identity)

    assert UUID(made["id"]) == UUID(identity)
    assert forked(api, talked, id=identity, status=409)["detail"] == IdInUse.words
    assert len(api.call("GET", "/v1/sandboxes/search")["items"]) == 2


def test_a_fork_of_a_fork_has_the_files_of_the_fork(api, talked, folder):
    fork = forked(api, talked)
    api.send(fork["id"], "run: echo 3 > a", run=True)
    api.until(fork["id"], "finished")
    recorded(api, fork)

    again = forked(api, fork)

    assert (work_of(folder, again) / "a").read_text() == "3\n"
    assert (work_of(folder, talked) / "a").read_text() == "2\n"

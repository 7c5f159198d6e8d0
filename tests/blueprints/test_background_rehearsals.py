"""Rehearsals in the background over HTTP: a process runs each, any worker shows it, and a killed one is taken up."""

import os
import signal
import time
from dataclasses import replace

import pytest

from app import create_app
from boot.rehearsing import Runners
from settings.config import Config
from store.approvals import background as module
from tests.blueprints.decided import GIT_STATUS, RULES

REHEARSALS = f"{RULES}/rehearsals"


class StartedRehearsals(list):
    """Notes the runners that the server starts, (rehearsal, runner), in the place of processes."""

    def start(self, *one):
        self.append(one)


@pytest.fixture
def started(client, monkeypatch):
    """The runners that the server has started."""
    runners = StartedRehearsals()
    server = replace(client.application.extensions["server"], runners=runners)
    monkeypatch.setitem(client.application.extensions, "server", server)
    return runners


def begin(here, rule=GIT_STATUS) -> str:
    response = here.client.post(REHEARSALS, json=rule)
    assert response.status_code == 202, response.text
    assert response.headers["Location"].endswith(f"{REHEARSALS}/{response.get_json()['id']}")
    return response.get_json()["id"]


def get(here, rehearsal_id) -> dict:
    response = here.client.get(f"{REHEARSALS}/{rehearsal_id}")
    assert response.status_code == 200, response.text
    return response.get_json()


def run(store, started, reads: int | None = None) -> None:
    """Run the runner that was started last, for so many reads."""
    left = iter(range(reads)) if reads is not None else None
    store.approvals.background.run(*started[-1], lambda: left is None or next(left, None) is not None)


def test_a_rehearsal_in_the_background_tries_a_rule_on_all_decisions(here, store, started):
    here.decide("approve", "git status", "git status -s", "ls", *(["git status"] * 3))
    [rejected] = here.decide("reject", "git status --long")
    rehearsal_id = begin(here)
    assert get(here, rehearsal_id)["state"] == "running"

    run(store, started)

    found = get(here, rehearsal_id)
    examples = found.pop("examples")
    assert found == {
        "id": rehearsal_id,
        **{"state": "done", "detail": "", "read": 7, "of": 7},
        **{"decided": 7, "answered": 6, "rejected": 1, "unread": 0},
    }
    assert examples[0] == here.rehearse()["examples"][0]
    assert examples[0]["action_id"] == rejected
    assert here.client.get(RULES).get_json() == []


def test_a_rehearsal_in_the_background_says_what_its_pages_say(here, store, started, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 3)
    for number in range(4):
        here.decide("approve", f"git status {number}", "git status", "ls")
        here.decide("reject", "git status && ls", "git status -z")
    here.client.post(RULES, json={**GIT_STATUS, "arguments": {"command": {"command": "ls *"}}})
    rehearsal_id = begin(here)
    run(store, started)
    background, page = get(here, rehearsal_id), here.rehearse()
    for name in ("decided", "answered", "rejected", "unread", "examples"):
        assert background[name] == page[name], name
    assert (page["answered"], page["rejected"]) == (16, 8)


def test_a_running_rehearsal_shows_its_results_so_far(here, store, started, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 2)
    monkeypatch.setattr(module, "_REPORT_SECONDS", 0)
    here.decide("approve", *(["git status"] * 5))
    rehearsal_id = begin(here)
    run(store, started, reads=2)
    found = get(here, rehearsal_id)
    assert (found["state"], found["read"], found["of"], found["answered"]) == ("running", 2, 5, 2)


def test_a_get_resumes_a_rehearsal_whose_runner_has_died(here, store, started, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 2)
    monkeypatch.setattr(module, "_REPORT_SECONDS", 0)
    monkeypatch.setattr(module, "LEASE", 0)
    here.decide("approve", *(["git status"] * 4))
    here.decide("reject", "git status")
    rehearsal_id = begin(here)
    run(store, started, reads=2)

    get(here, rehearsal_id)

    assert len(started) == 2
    run(store, started)
    found = get(here, rehearsal_id)
    assert (found["state"], found["read"], found["decided"], found["answered"], found["rejected"]) == (
        "done",
        5,
        5,
        5,
        1,
    )
    assert [one["decision"] for one in found["examples"]] == ["reject", "approve", "approve", "approve"]


def test_a_runner_that_lost_its_rehearsal_reports_no_more(here, store, started, monkeypatch):
    here.decide("approve", "git status")
    rehearsal_id = begin(here)
    monkeypatch.setattr(module, "LEASE", 0)
    store.approvals.background._report(*started[0], "running", {})
    get(here, rehearsal_id)
    store.approvals.background.run(*started[0], lambda: True)
    assert get(here, rehearsal_id)["state"] == "running"


def test_a_rehearsal_with_a_live_runner_is_not_resumed(here, started):
    rehearsal_id = begin(here)
    get(here, rehearsal_id)
    assert len(started) == 1


def test_a_rehearsal_whose_runners_keep_dying_ends_and_says_why(here, started, monkeypatch):
    monkeypatch.setattr(module, "LEASE", 0)
    rehearsal_id = begin(here)
    for _ in range(module.MOST_TRIES):
        get(here, rehearsal_id)
    found = get(here, rehearsal_id)
    assert (found["state"], len(started)) == ("failed", module.MOST_TRIES)
    assert found["detail"] == "The rehearsal was interrupted too often. Start another one"


def test_more_rehearsals_than_may_run_at_once_are_429_until_one_has_ended(here, store, started):
    for _ in range(module.MOST_AT_ONCE):
        begin(here)
    refused = here.client.post(REHEARSALS, json=GIT_STATUS)
    assert refused.status_code == 429
    assert refused.get_json()["detail"] == "2 rehearsals are running, the most at once. Try again when one has ended"
    assert refused.headers["Retry-After"]
    run(store, started)
    begin(here)


def test_a_rehearsal_that_takes_too_long_ends_with_what_it_has(here, store, started, monkeypatch):
    monkeypatch.setattr(module, "MOST_SECONDS", -1)
    here.decide("approve", "git status")
    rehearsal_id = begin(here)
    run(store, started)
    found = get(here, rehearsal_id)
    assert (found["state"], found["read"]) == ("done", 0)
    assert "0 of 1 entries" in found["detail"]


def test_a_rehearsal_expires(here, store, started):
    rehearsal_id = begin(here)
    redis = store.approvals.background._redis
    assert 0 < redis.pttl(f"{{rules}}:rehearsal:{rehearsal_id}") <= module.KEPT
    run(store, started)
    assert 0 < redis.pttl(f"{{rules}}:rehearsal:{rehearsal_id}") <= module.KEPT
    assert redis.zcard("{rules}:rehearsals") == 0
    redis.delete(f"{{rules}}:rehearsal:{rehearsal_id}")
    response = here.client.get(f"{REHEARSALS}/{rehearsal_id}")
    assert response.status_code == 404
    assert response.get_json()["detail"].startswith("Rehearsal not found")


def test_a_repeat_of_the_request_starts_no_other(here, started):
    headers = {"Idempotency-Key": "once"}
    first = here.client.post(REHEARSALS, json=GIT_STATUS, headers=headers).get_json()
    assert here.client.post(REHEARSALS, json=GIT_STATUS, headers=headers).get_json()["id"] == first["id"]
    assert len(started) == 1


@pytest.mark.process("starts the process of a rehearsal, and kills one")
def test_the_process_of_a_rehearsal_is_taken_up_by_another_server_after_it_was_killed(here, redis_url, monkeypatch):
    monkeypatch.setattr(module, "LEASE", 500)
    here.decide("approve", *(["git status"] * 3))
    monkeypatch.setattr(Runners, "_command", ("sh", "-c", "sleep 60"))
    rehearsal_id = begin(here)
    [process] = here.client.application.extensions["server"].runners._processes
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    monkeypatch.undo()
    here.client = create_app(Config.of(redis_url=redis_url)).test_client()
    while (found := get(here, rehearsal_id))["state"] == "running":
        time.sleep(0.05)
    assert (found["state"], found["answered"]) == ("done", 3)

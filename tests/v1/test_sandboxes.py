"""Sandboxes over HTTP: every path, status, field and default. Source: docs/wire.md; the app-server wire."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import httpx
import pytest

from tests.servers import wait_until

pytestmark = pytest.mark.process("starts a sandbox for each test")

UNKNOWN = "5f1c8a527d0e4c399a41"

#: what a supervisor may measure between two reads of a sandbox
MEASURED = {"disk_bytes": None, "memory_bytes": None, "cpu_cores": None, "stray_conversations": None}


def test_a_new_sandbox_starts_and_runs(api):
    started = api.start_sandbox()

    assert set(started) == {
        "id",
        "created_by_user_id",
        "sandbox_spec_id",
        "status",
        "session_api_key",
        "exposed_urls",
        "created_at",
        "status_detail",
        "status_since",
        "host",
        "disk_bytes",
        "memory_bytes",
        "cpu_cores",
        "isolation",
        "stray_conversations",
    }
    assert started["status"] == "STARTING"
    assert started["sandbox_spec_id"] == "asks"  # the first spec
    assert started["session_api_key"] is None
    assert started["exposed_urls"] is None
    assert started["created_by_user_id"] is None
    assert (started["memory_bytes"], started["cpu_cores"]) == (None, None)
    assert re.fullmatch(r"[A-Za-z0-9]{22}", started["id"])
    assert started["created_at"].endswith("Z")
    datetime.fromisoformat(started["created_at"])

    running = api.wait_for(started["id"], "RUNNING")
    assert started["created_at"] < running["status_since"]
    assert running["host"]
    assert len(running["session_api_key"]) == 43
    [url] = running["exposed_urls"]
    assert set(url) == {"name", "url", "port"}
    assert url["name"] == "AGENT_SERVER"
    assert httpx.get(f"{url['url']}/alive").status_code == 200
    assert httpx.get(f"{url['url']}/api/conversations/{UNKNOWN}").status_code == 401


def test_a_running_sandbox_shows_what_its_processes_use_and_a_paused_one_does_not(api):
    sandbox = api.running_sandbox()

    wait_until(lambda: api.sandbox(sandbox["id"])["memory_bytes"], "the first measurement")
    assert 1 << 20 < api.sandbox(sandbox["id"])["memory_bytes"] < 1 << 30
    wait_until(lambda: api.sandbox(sandbox["id"])["cpu_cores"] is not None, "the second measurement")
    assert 0 <= api.sandbox(sandbox["id"])["cpu_cores"] <= 64

    api.call("POST", f"/v1/sandboxes/{sandbox['id']}/pause")
    paused = api.sandbox(sandbox["id"])
    assert (paused["memory_bytes"], paused["cpu_cores"], paused["host"]) == (None, None, sandbox["host"])


def test_a_start_request_can_name_the_spec(api):
    assert api.start_sandbox("free")["sandbox_spec_id"] == "free"


def test_a_sandbox_pauses_and_resumes(api):
    sandbox = api.running_sandbox()

    assert api.call("POST", f"/v1/sandboxes/{sandbox['id']}/pause") == {"success": True}

    paused = api.sandbox(sandbox["id"])
    assert paused["status"] == "PAUSED"
    assert paused["session_api_key"] is None
    assert paused["exposed_urls"] is None
    with pytest.raises(httpx.TimeoutException):
        httpx.get(f"{sandbox['exposed_urls'][0]['url']}/alive", timeout=0.5)

    assert api.call("POST", f"/v1/sandboxes/{sandbox['id']}/pause") == {"success": True}
    assert api.sandbox(sandbox["id"]) | MEASURED == paused | MEASURED

    assert api.call("POST", f"/v1/sandboxes/{sandbox['id']}/resume", json={}) == {"success": True}
    resumed = api.wait_for(sandbox["id"], "RUNNING")
    assert resumed.pop("status_since") > paused["status_since"] > sandbox.pop("status_since")
    assert resumed | MEASURED == sandbox | MEASURED
    assert api.call("POST", f"/v1/sandboxes/{sandbox['id']}/resume") == {"success": True}


def test_an_operation_that_the_status_forbids_is_409_and_names_the_status(api):
    broken = api.start_sandbox("broken")
    api.wait_for(broken["id"], "ERROR")
    silent = api.start_sandbox("silent")

    assert "ERROR" in api.call("POST", f"/v1/sandboxes/{broken['id']}/pause", status=409)["detail"]
    assert "STARTING" in api.call("POST", f"/v1/sandboxes/{silent['id']}/pause", status=409)["detail"]


def test_a_deletion_ends_a_sandbox_and_forgets_it(api):
    sandbox = api.running_sandbox()

    assert api.call("DELETE", f"/v1/sandboxes/{sandbox['id']}", params={"sandbox_id": sandbox["id"]}) == {
        "success": True
    }

    assert api.sandbox(sandbox["id"]) is None
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{sandbox['exposed_urls'][0]['url']}/alive")
    api.call("DELETE", f"/v1/sandboxes/{sandbox['id']}", status=404)


def test_a_deletion_with_two_different_ids_is_refused(api):
    sandbox = api.start_sandbox("silent")
    fault = api.call("DELETE", f"/v1/sandboxes/{sandbox['id']}", params={"sandbox_id": "other"}, status=422)["detail"][
        0
    ]
    assert fault["loc"] == ["query", "sandbox_id"]
    assert sandbox["id"] in fault["msg"]


@pytest.mark.parametrize("spec", ["silent", "asks"])
def test_a_sandbox_can_be_deleted_in_every_status(api, spec):
    starting = api.start_sandbox(spec)
    api.call("DELETE", f"/v1/sandboxes/{starting['id']}")
    assert api.sandbox(starting["id"]) is None

    if spec == "asks":
        paused = api.running_sandbox()
        api.call("POST", f"/v1/sandboxes/{paused['id']}/pause")
        api.call("DELETE", f"/v1/sandboxes/{paused['id']}")
        assert api.sandbox(paused["id"]) is None


def test_a_failed_start_reports_its_reason_and_its_last_lines(api):
    broken, absent = (api.start_sandbox(spec)["id"] for spec in ("broken", "absent"))

    detail = api.wait_for(broken, "ERROR")["status_detail"]
    assert "exit code 3" in detail
    assert detail.endswith("no key given")
    assert "no key given" in api.call("GET", f"/v1/sandboxes/{broken}/logs")["log"]

    assert "/no/such/program" in api.wait_for(absent, "ERROR")["status_detail"]

    api.call("DELETE", f"/v1/sandboxes/{broken}")
    assert api.sandbox(broken) is None


def test_a_sandbox_that_misses_the_start_timeout_fails_with_its_last_lines(brief_api):
    detail = brief_api.wait_for(brief_api.start_sandbox("silent")["id"], "ERROR")["status_detail"]
    assert "did not answer within 5 s" in detail
    assert detail.endswith("begins")


def test_a_start_task_whose_sandbox_misses_the_start_timeout_is_an_error_with_the_reason(brief_api):
    task = brief_api.finished(brief_api.start_task(sandbox_spec_id="silent")["id"])
    assert task["status"] == "ERROR"
    assert "did not answer" in task["detail"]


def test_a_batch_keeps_the_order_and_has_null_for_an_unknown_sandbox(api):
    one, two = api.start_sandbox("silent")["id"], api.start_sandbox("silent")["id"]

    found = api.call("GET", "/v1/sandboxes", params={"id": [two, UNKNOWN, one, "../..", two]})

    assert [item and item["id"] for item in found] == [two, None, one, None, two]


def test_a_search_pages_from_the_newest_sandbox(api):
    ids = [api.start_sandbox("silent")["id"] for _ in range(5)]
    seen, cursor = [], None
    for _ in range(3):
        page = api.call("GET", "/v1/sandboxes/search", params={"limit": 2} | ({"page_id": cursor} if cursor else {}))
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_page_id"]

    assert seen == ids[::-1]
    assert cursor is None


def test_a_search_filters_by_status_and_spec(api):
    silent, running = api.start_sandbox("silent")["id"], api.running_sandbox("free")["id"]

    def found(**filters):
        return [item["id"] for item in api.call("GET", "/v1/sandboxes/search", params=filters)["items"]]

    assert found(status__eq="STARTING") == [silent]
    assert found(status__eq="RUNNING") == [running]
    assert found(status__eq="PAUSED") == []
    assert found(sandbox_spec_id__eq="free") == [running]
    assert found(sandbox_spec_id__eq="free", status__eq="STARTING") == []


def test_a_log_holds_the_last_lines(api):
    sandbox = api.running_sandbox()
    log = api.call("GET", f"/v1/sandboxes/{sandbox['id']}/logs")["log"]
    assert "serving on 127.0.0.1" in log
    *above, _ = api.call("GET", f"/v1/sandboxes/{sandbox['id']}/logs", params={"tail": 1})["log"].splitlines()
    assert all(re.fullmatch("… [0-9,]+ earlier lines? (is|are) not shown", line) for line in above)
    assert len(above) <= 1
    api.call("POST", f"/v1/sandboxes/{sandbox['id']}/pause")
    assert "serving on" in api.call("GET", f"/v1/sandboxes/{sandbox['id']}/logs")["log"]
    for tail in ("0", "10001", "x"):
        api.call("GET", f"/v1/sandboxes/{sandbox['id']}/logs", params={"tail": tail}, status=422)


def test_an_idle_sandbox_is_paused(api):
    api.wait_for(api.start_sandbox("idle")["id"], "PAUSED")


def test_an_agent_at_work_is_not_idle(api):
    sleep = {"content": [{"type": "text", "text": "run: sleep 3; echo woke"}]}
    conversation = api.app_conversation(sandbox_spec_id="idle", initial_message=sleep)
    wait_until(lambda: api.count(conversation["id"], kind="ObservationEvent") == 1, "the observation")
    [seen] = api.events(conversation["id"], kind__eq="ObservationEvent")
    assert seen["observation"]["content"][0]["text"] == "woke\n"
    api.wait_for(conversation["sandbox_id"], "PAUSED")


def test_failed_sandboxes_do_not_delay_the_start_of_another_one(api):
    for failed in [api.start_sandbox("absent")["id"] for _ in range(5)]:  # more than a host starts at once
        api.wait_for(failed, "ERROR")

    api.running_sandbox()


def test_a_sandbox_rests_when_its_time_is_over(api):
    assert "1.5 s are over" in api.wait_for(api.start_sandbox("brief")["id"], "PAUSED")["status_detail"]


def test_a_race_of_pause_and_resume_ends_in_one_of_both(api):
    sandbox = api.running_sandbox()

    def ask(verb):
        return api.client.post(f"/api/v1/sandboxes/{sandbox['id']}/{verb}").status_code

    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            assert set(pool.map(ask, ("pause", "resume"))) <= {200, 409}
    if api.sandbox(sandbox["id"])["status"] == "PAUSED":
        ask("resume")
    else:
        time.sleep(0.2)
        if api.sandbox(sandbox["id"])["status"] == "PAUSED":
            ask("resume")
    api.wait_for(sandbox["id"], "RUNNING")
    assert httpx.get(f"{sandbox['exposed_urls'][0]['url']}/alive", timeout=5).status_code == 200


def test_specs_are_listed_and_fetched(api):
    page = api.call("GET", "/v1/sandbox-specs/search", params={"limit": 2})
    assert [spec["id"] for spec in page["items"]] == ["asks", "free"]
    spec = page["items"][0]
    assert set(spec) == {
        "id",
        "command",
        "created_at",
        "initial_env",
        "working_dir",
        "agent",
        "approval_mode",
        "missing",
    }
    assert spec["created_at"] == "2026-11-21T00:00:00.000000Z"
    assert spec["initial_env"]["LANG"] == "C.UTF-8"
    assert spec["working_dir"] == "."
    assert spec["agent"] is None, "this spec does not name its agent"

    rest = api.call("GET", "/v1/sandbox-specs/search", params={"page_id": page["next_page_id"]})
    assert [spec["id"] for spec in rest["items"]] == ["idle", "brief", "silent", "broken", "absent", "tough", "thinks"]
    assert rest["next_page_id"] is None

    found = api.call("GET", "/v1/sandbox-specs", params={"id": ["free", "nope", "asks"]})
    assert [spec and spec["id"] for spec in found] == ["free", None, "asks"]
    api.call("GET", "/v1/sandbox-specs", status=422)
    api.call("GET", "/v1/sandbox-specs/search", params={"limit": 0}, status=422)
    api.call("GET", "/v1/sandbox-specs/search", params={"page_id": "nope"}, status=422)

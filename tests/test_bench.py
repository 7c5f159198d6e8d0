"""What the bench makes of its figures: a page with a table, and a file with every one of them."""

import json
import os
import re
import subprocess
import sys

import httpx
import pytest

from bench import measure, servers
from bench.measure import FigureRow
from tests.conftest import event
from tests.servers import PROJECT, redis_program, store_server

MACHINE = {"date": "2026-11-22T10:00+00:00", "cores": 2}
ROW = FigureRow("count: against a bare view", 0.97, " ×", "3/s against 4/s", least=0.95, raw={"ours": [1.0, 3.0, 2.0]})


def test_a_missed_target_is_called_so():
    missed = FigureRow("count: against a bare view", 0.5, " ×", "1/s against 2/s", least=0.7)

    assert measure.table([ROW, missed]).splitlines()[2:] == [
        "| count: against a bare view | 0.97 × | ≥ 0.95 × | ok | 3/s against 4/s |",
        "| count: against a bare view | 0.50 × | ≥ 0.7 × | MISSED | 1/s against 2/s |",
    ]


def test_the_page_has_the_rows_and_keeps_what_is_around_them(tmp_path):
    page = tmp_path / "docs" / "performance.md"
    page.parent.mkdir()
    page.write_text("# Kept\n\n<!-- measured -->\nwhat a run before wrote\n<!-- /measured -->\n\n## Tails\n\nkept\n")

    measure.write([ROW], MACHINE, tmp_path)

    text = page.read_text()
    assert "| count: against a bare view | 0.97 × | ≥ 0.95 × | ok | 3/s against 4/s |" in text
    assert text.startswith("# Kept\n\n<!-- measured -->\ndate 2026-11-22T10:00+00:00, cores 2\n\n| what |")
    assert text.endswith("|\n<!-- /measured -->\n\n## Tails\n\nkept\n")
    assert "what a run before wrote" not in text
    [raw] = (tmp_path / "bench" / "results").iterdir()
    assert raw.name == "2026-11-22T1000.json"

    later = MACHINE | {"date": "2026-11-23T10:00+00:00"}
    measure.write([ROW], later, tmp_path)
    assert page.read_text() == text.replace(MACHINE["date"], later["date"])
    assert [one.name for one in raw.parent.iterdir()] == ["2026-11-23T1000.json"]


def test_the_line_about_the_machine_is_wrapped(tmp_path):
    page = tmp_path / "docs" / "performance.md"
    page.parent.mkdir()
    page.write_text("<!-- measured -->\n<!-- /measured -->\n")

    measure.write([ROW], MACHINE | {f"package {number}": "1.2.3" for number in range(20)}, tmp_path)

    lines = [line for line in page.read_text().splitlines() if not line.startswith("|")]
    assert [line for line in lines if len(line) > 160] == []
    assert "package 19 1.2.3" in " ".join(lines)


def test_the_page_of_the_project_has_one_table_that_a_run_writes_and_its_costs_behind_it():
    _, start, rest = (PROJECT / "docs" / "performance.md").read_text().partition("<!-- measured -->\n")
    written, end, kept = rest.partition("<!-- /measured -->\n")

    assert start
    assert end
    assert "<!-- measured -->" not in rest
    assert written.count("\n| what | measured | target | | figures |\n") == 1
    assert kept.count("<!-- costs -->") == 1


def test_figures_are_told_with_their_median_and_their_spread():
    assert measure.spread([1.0, 3.0, 2.0]) == {
        "median": 2.0,
        "least": 1.0,
        "greatest": 3.0,
        "quartiles": [1.5, 2.5],
        "figures": [1.0, 3.0, 2.0],
    }
    assert measure.spread("ms") == "ms"


@pytest.mark.process("measures on a redis-server and servers of its own")
def test_a_quick_run_writes_every_figure_with_its_unit_and_its_machine(tmp_path):
    redis_program()
    file = tmp_path / "figures.json"
    words = [sys.executable, "-m", "bench", "--quick", "--json", str(file), "memory", "cold"]
    subprocess.run(words, cwd=PROJECT, check=True, capture_output=True)

    found = json.loads(file.read_text())
    assert {"cores", "memory", "load before", "load after", "python", "redis", "gunicorn"} <= found[
        "measured_on"
    ].keys()
    assert [(row["unit"], row["figures"]["unit"]) for row in found["rows"]] == [
        *[("×", "bytes an event")] * 2,
        *[("×", "bytes")] * 2,
        ("s", "s"),
    ]
    assert all(row["value"] > 0 and row["mark"] in ("ok", "MISSED") for row in found["rows"])
    assert len(found["rows"][-1]["figures"]["seconds"]["figures"]) == 2


@pytest.mark.process("starts sandboxes of the bench's own server")
def test_a_quick_run_measures_each_agent_in_its_sandbox_and_says_that_no_other_is_installed(tmp_path):
    redis_program()
    file = tmp_path / "figures.json"
    words = [sys.executable, "-m", "bench", "--quick", "--json", str(file), "agents"]
    environment = os.environ | {"AGENTS_DIR": str(tmp_path / "none")}
    ran = subprocess.run(words, cwd=PROJECT, env=environment, check=True, capture_output=True, text=True)

    rows = json.loads(file.read_text())["rows"]
    assert [row["what"].partition(": ")[::2] for row in rows] == [
        (agent, figure)
        for agent in ("the bundled agent", "a scripted ACP agent")
        for figure in (
            "private memory at rest, after two turns",
            "request to READY, median",
            "message to the first update, median",
        )
    ]
    memory, scripted = rows[0], rows[3]
    assert (memory["unit"], memory["most"], memory["value"] > 10) == ("MB", 80, True)
    assert re.match(r"largest \d+ MB of 1; agent server \d+, python\S* \d+; ", scripted["detail"])
    assert "agents: no other is installed. make agent NAME=… installs one." in ran.stderr


@pytest.mark.faults("measures on servers of its own, while others besiege them")
def test_a_quick_run_of_tails_and_sieges_shows_p50_p99_and_the_longest_beside_a_bare_view():
    redis_program()
    words = [sys.executable, "-m", "bench", "--quick", "tails", "besieged"]
    printed = subprocess.run(words, cwd=PROJECT, check=True, capture_output=True, text=True).stdout.splitlines()

    figures = r"p50 [\d.]+, p99 [\d.]+, longest \d+ ms"
    for number in ("1 connection", "4 connections", "16 connections", "64 connections"):
        for what in ("a count", "a page of 100 events", "an append"):
            [_, longest] = [line for line in printed if line.startswith(f"| {what}, {number}: ") and "longest" in line]
            assert re.search(rf"the longest against .*\| {figures}; bare {figures} \|$", longest)
        assert [line for line in printed if line.startswith(f"| a count, {number}: throughput against")]
    sieges = [line for line in printed if "besieged by" in line]
    assert len([line for line in sieges if "p99 against p99 alone" in line]) == 5
    assert len([line for line in sieges if "growth of the workers' memory" in line]) == 5
    assert len([line for line in sieges if "growth of the store's memory" in line]) == 5


@pytest.mark.faults("measures servers of its own under a mixed load")
def test_a_quick_soak_shows_the_growth_of_memory_files_threads_connections_and_keys(tmp_path):
    redis_program()
    file = tmp_path / "figures.json"
    page = (PROJECT / "docs" / "performance.md").read_text()
    words = [sys.executable, "-m", "bench", "--quick", "--json", str(file), "soak"]
    subprocess.run(words, cwd=PROJECT, check=True, capture_output=True)

    rows = json.loads(file.read_text())["rows"]
    assert [row["what"].partition("growth of the ")[2].partition(" after")[0] for row in rows] == [
        "memory of the larger worker",
        "files of a worker",
        "threads of a worker",
        "connections of a worker",
        "keys without an expiry",
    ]
    assert all(len(row["figures"]["minutes"]["figures"]) == 3 for row in rows)
    assert (PROJECT / "docs" / "performance.md").read_text() == page


@pytest.mark.process("starts a server of the bench")
def test_the_bare_views_append_count_and_page(tmp_path):
    events = [event(), event()]

    with store_server(tmp_path) as (url, _), servers.bare(url) as port:
        server = f"http://127.0.0.1:{port}/api"
        appended = httpx.post(f"{server}/v1/webhooks/events/one", json=events)
        counted = httpx.get(f"{server}/conversations/one/events/count")
        page = httpx.get(f"{server}/conversations/one/events/search?limit=1")

    assert (appended.status_code, counted.json(), page.json()) == (200, 2, {"items": events[:1]})


@pytest.mark.process("starts the bench")
def test_a_subject_that_there_is_not_is_refused_with_those_that_there_are():
    done = subprocess.run(
        [sys.executable, "-m", "bench", "counts", "--quick"], cwd=PROJECT, capture_output=True, text=True
    )

    assert done.returncode == 2
    assert "unknown subject: counts" in done.stderr

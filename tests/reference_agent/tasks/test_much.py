"""Tasks with much to read: a large log, an output that floods, an overflow of the context, a model that loops."""

import json
import re

import psutil
import pytest

from tests.reference_agent.tasks.vocabulary import Unexpected, call, edit, run

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.process("starts an agent")]


def test_a_log_of_two_megabytes_is_searched_without_reading_it(play, folder):
    lines = [
        f"10:{n // 600:02}:{n // 10 % 60:02} INFO request {n:05} took {n % 90} ms and was fine" for n in range(40_000)
    ]
    for number in range(7, 40_000, 50):
        lines[number] = lines[number].replace("INFO", "ERROR").replace("was fine", "was retried")
    lines[23_456] = "10:39:05 ERROR request 23456 failed for good"
    lines[23_401] = "10:39:00 WARN request 23456 waits: the disk /data is full"
    (folder / "app.log").write_text("\n".join(lines))

    def search(told, pattern):
        return (
            call("grep", pattern=pattern, path="app.log")
            if "grep" in told.tools
            else run(f"grep -nE '{pattern}' app.log")
        )

    def model(told):
        told = yield edit("view", "app.log")
        told.find("is larger than")
        told = yield search(told, "ERROR")
        told.find("was retried")
        told.find(r"there is more|not shown")
        told = yield search(told, "ERROR.*failed for good")
        request = told.find(r"request (\d+) failed")[1]
        told = yield search(told, f"request {request}")
        cause = told.find(r"waits: (.*)$")[1]
        return f"Request {request} failed: {cause}."

    end = play("Which request failed for good, and why? See app.log.", model)

    assert (end.status, end.words) == ("finished", "Request 23456 failed: the disk /data is full.")
    assert (folder / "app.log").stat().st_size > 2_000_000
    assert end.read[-1].size < 100_000


def test_a_huge_output_is_shown_by_its_head_and_tail(play, agent, folder):
    memory = psutil.Process(agent.process.pid).memory_info
    before = memory().rss

    def model(told):
        told = yield run("echo the head; yes a line that says nothing | head -c 100000000; echo; echo the tail")
        told.ended(0).find(r"^the head$")
        told.find(r"^the tail$")
        file = told.find(r"The first [\d,]+ bytes are in (\S+); a file keeps [\d,]+ bytes")[1]
        told = yield run(f"head -n 1 {file}; wc -c <{file}")
        kept = told.ended(0).find(r"the head\n(\d+)")[1]
        return f"100,000,000 bytes were printed, and {kept} are kept."

    end = play("Print very much.", model)

    assert end.status == "finished"
    assert int(re.findall(r"\d+", end.words)[-1]) <= 8 << 20
    assert end.read[-1].size < 100_000
    assert memory().rss - before < 48 << 20


def test_a_task_survives_the_overflow_of_the_context(play, folder):
    """The model knows only what it is told: the numbers that it has read earlier are in the summary or nowhere."""
    parts = 24
    for part in range(1, parts + 1):
        (folder / f"part-{part}.txt").write_text(f"part {part} has the number {part * 37}\n" + "and a tale\n" * 500)

    def model(told):
        while True:
            everything = json.dumps(told.messages)
            sum_file = told.find(r"into the file (\w+\.txt)", "\n".join(told.texts("user")))[1]
            numbers = {int(n): int(of) for n, of in re.findall(r"[Pp]art (\d+) has the number (\d+)", everything)}
            following = max(numbers, default=0) + 1
            if missing := {*range(1, following)} - {*numbers}:
                raise Unexpected(f"I have forgotten the numbers of the parts {sorted(missing)}")
            if following > parts:
                break
            told = yield run(f"cat part-{following}.txt")
        told = yield run(f"echo {sum(numbers.values())} >{sum_file}")
        return "The sum is written."

    task = f"Read part-1.txt to part-{parts}.txt one by one, and write the sum of their numbers into the file sum.txt."
    end = play(task, model, most=60_000)

    assert (end.status, end.detail) == ("finished", "")
    assert (folder / "sum.txt").read_text() == f"{sum(part * 37 for part in range(1, parts + 1))}\n"
    assert any(event["kind"] == "Condensation" for event in end.events)
    commands = [
        event["action"]["command"] for event in end.events if event.get("tool_name") == "terminal" and "action" in event
    ]
    assert len(commands) == parts + 1


def test_a_model_that_repeats_itself_is_stopped_with_the_right_reason(play, folder):
    (folder / "door").write_text("closed\n")

    def model(_told):
        while True:
            yield run("cat door")

    end = play("Wait until the door is open.", model, max_iterations=20)

    assert end.status == "stuck"
    assert "the same call had the same result 4 times in a row" in end.detail
    assert len(end.read) <= 6

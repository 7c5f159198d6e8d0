"""Tasks with tools beside the terminal: an MCP server, a sub-task, a list of tasks."""

import sys

import pytest

from tests.reference_agent.tasks.vocabulary import call, run

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.process("starts an agent")]

#: an MCP server over stdio that knows the price of everything
PRICES = """\
import json, sys
schema = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
tool = {"name": "price", "description": "The price of an item.", "inputSchema": schema}
for line in sys.stdin:
    asked = json.loads(line)
    match asked["method"]:
        case "initialize":
            server = {"name": "prices", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server}
        case "tools/list":
            result = {"tools": [tool]}
        case "tools/call":
            item = asked["params"]["arguments"]["item"]
            known = item in ("tea", "bread")
            text = f"{item} costs {len(item)}" if known else f"no {item} here"
            result = {"content": [{"type": "text", "text": text}], "isError": not known}
        case _:
            continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def test_a_tool_of_an_mcp_server_is_used(play, folder):
    (folder / "prices.py").write_text(PRICES)
    servers = {"prices": {"command": sys.executable, "args": [str(folder / "prices.py")]}}

    def model(told):
        told.needs("price")
        told = yield call("price", item="wine")
        told.find("no wine here")
        told = yield call("price", item="tea")
        tea = int(told.find(r"tea costs (\d+)")[1])
        told = yield call("price", item="bread")
        bread = int(told.find(r"bread costs (\d+)")[1])
        told = yield run(f"echo {tea + bread} >bill.txt")
        return f"Tea and bread cost {tea + bread}. There is no wine."

    end = play("What do tea, bread and wine cost?", model, agent={"mcp_config": {"mcpServers": servers}})

    assert (end.status, end.words) == ("finished", "Tea and bread cost 8. There is no wine.")
    assert (folder / "bill.txt").read_text() == "8\n"


def test_a_list_of_tasks_is_kept_over_ten_steps(play, folder):
    titles = [f"Write chapter {number}" for number in range(1, 11)]

    def plan(done):
        status = ["done"] * done + ["in_progress"] + ["todo"] * 9
        tasks = [{"title": title, "status": one} for title, one in zip(titles, status, strict=False)]
        return call("task_tracker", command="plan", task_list=tasks)

    def model(told):
        told.needs("task_tracker")
        told = yield plan(0)
        for step in range(1, 11):
            told.find(f"{step - 1} of 10 tasks are done")
            told = yield call("task_tracker", command="view")
            title = told.find(r"\[in_progress\] (.*)$")[1]
            told = yield run(f"echo {title.removeprefix('Write ')} >>book.txt")
            told.ended(0)
            told = yield plan(step)
        told.find("10 of 10 tasks are done")
        return "The book is written."

    end = play("Write a book of ten chapters.", model)

    assert end.status == "finished"
    assert (folder / "book.txt").read_text().splitlines() == [f"chapter {number}" for number in range(1, 11)]


def test_a_sub_task_is_delegated_and_its_result_used(play, folder):
    (folder / "north.txt").write_text("17\n")

    def sub_model(told):
        told = yield run("cat north.txt")
        number = told.ended(0).find(r"^\d+$")[0]
        return f"The north has {number}."

    def model(told):
        told.needs("delegate")
        told = yield call("delegate", task="Count the north: the number in north.txt.")
        north = told.find(r"The north has (\d+)\.")[1]
        told = yield run(f"echo {north} >sum.txt")
        return "The count is in sum.txt."

    end = play("Have somebody count.", model, sub_tasks={"Count the north": sub_model})

    assert (end.status, (folder / "sum.txt").read_text()) == ("finished", "17\n")

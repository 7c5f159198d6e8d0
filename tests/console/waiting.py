"""What waits in an inbox on a busy day: actions of six kinds from many conversations, some of them the same command."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from tests.console.pictured import MIGRATION, TITLES

PYTEST = "pytest -q tests/jobs"

#: an action of each kind: (tool, risk, summary, arguments)
KINDS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("terminal", "LOW", "Run the tests of the job", {"command": PYTEST, "is_input": False, "reset": False}),
    (
        "file_editor",
        "MEDIUM",
        "Read the limit from the settings",
        {
            "command": "str_replace",
            "path": "/workspace/jobs/nightly.py",
            "old_str": "LIMIT = 500\n\n\ndef run(project):\n    for row in rows(project, LIMIT):",
            "new_str": "\ndef run(project, settings):\n    for row in rows(project, settings.limit):",
        },
    ),
    (
        "github_create_issue",
        "UNKNOWN",
        "Report the flaky test",
        {
            "title": "test_checkout_with_coupon fails one time in nine",
            "repository": "shop/checkout",
            "labels": ["flaky", "tests"],
            "body": "It waits 2 s for the coupon service, which answers within 3 s.",
        },
    ),
    (
        "browser_navigate",
        "LOW",
        "Look at the login page in dark mode",
        {"url": "https://staging.example.org/login?theme=dark", "wait_until": "load", "new_tab": False},
    ),
    (
        "terminal",
        "HIGH",
        "Remove the old releases of the staging cluster",
        {
            "command": "kubectl delete deployment --selector release=4.1 --wait && rm -rf /srv/releases/4.1",
        },
    ),
    (
        "file_editor",
        "LOW",
        "Write the migration",
        {
            "command": "create",
            "path": "/workspace/migrations/0044_runs_index.py",
            "file_text": MIGRATION,
        },
    ),
)


def action_of(number: int) -> dict[str, Any]:
    """An action of the kind `number % 6`. Each second command is the same one; of all others each is its own."""
    tool, risk, summary, given = KINDS[number % len(KINDS)]
    arguments = dict(given)
    turn = number // len(KINDS)
    if "path" in arguments:
        arguments["path"] = arguments["path"].replace(".py", f"_{turn}.py")
    if tool == "terminal" and risk == "LOW" and turn % 2:
        arguments["command"] = f"{PYTEST}/test_part_{turn}.py"
    if risk == "HIGH":
        arguments["command"] = arguments["command"].replace("4.1", f"4.{turn}")
    if "title" in arguments:
        arguments["title"] = arguments["title"].replace("coupon", f"coupon_{turn}")
    if "url" in arguments:
        arguments["url"] += f"&page={turn}"
    thought = [{"type": "text", "text": "The nightly job is slow since migration 0041. I check one step at a time."}]
    return {
        "id": str(uuid4()),
        "kind": "ActionEvent",
        "source": "agent",
        "timestamp": "2026-11-20T10:00:00",
        "tool_name": tool,
        "tool_call_id": f"call-{number}",
        "security_risk": risk,
        "summary": summary,
        "thought": thought,
        "action": {"kind": "ActionOfATool", **arguments},
    }


def fill_inbox(waits: Callable[..., Any], number: int, **members: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """Have so many actions wait, one in each conversation; the conversations and the actions."""
    made, actions = [], []
    for place in range(number):
        title, team = TITLES[place % len(TITLES)]
        one = action_of(place)
        seconds = {"confirmation_seconds": 240} if place % 7 == 3 else {}
        made.append(waits(one, title=title, tags={"team": team}, **seconds, **members))
        actions.append(one)
    return made, actions

"""Conversations that look real, for the pictures of the console: what was asked, done and said in a day of a team."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx

from tests.console.logs import post

#: the answer of an agent, with all that Markdown is used for
ANSWER = """## The nightly job is slow because of one query

`runs_by_day` scans the whole table: the index on `(project, started_at)` was dropped by migration **0041**.

| step | before | after |
|---|---:|---:|
| `runs_by_day` | 41.2 s | 0.3 s |
| the whole job | 58 min | 9 min |

1. The migration creates the index `CONCURRENTLY`, so that nothing waits for it.
2. A test fails if the planner scans the table again.

```sql
CREATE INDEX CONCURRENTLY runs_project_started
    ON runs (project, started_at);
```

The plan before and after is in [the report](https://wiki.example.org/nightly). Shall I open a pull request?
"""

PLAN = """I look at the slowest query first:

* the plan of the query, with its real times
* the migrations of the last week
"""

EXPLAIN = """\x1b[1mQUERY PLAN\x1b[0m
Finalize GroupAggregate  (cost=1000.43..912044.12 rows=31 width=16) (actual time=41180.2..41203.9 rows=31 loops=1)
  Group Key: (date_trunc('day'::text, started_at))
  ->  Gather Merge  (actual time=41180.1..41203.8 rows=93 loops=1)
        Workers Planned: 2
        ->  Parallel Seq Scan on runs  (actual time=0.2..39871.5 rows=3,811,204 loops=3)
              Filter: (project = 'search'::text)
              Rows Removed by Filter: 12,400,112
Planning Time: 0.4 ms
\x1b[33mExecution Time: 41,204.1 ms\x1b[0m"""

PYTEST = "\n".join(
    [
        *(f"tests/jobs/test_nightly.py::test_part_{number} \x1b[32mPASSED\x1b[0m" for number in range(48)),
        "\x1b[32m48 passed\x1b[0m in 11.42s",
    ]
)

MIGRATION = """from alembic import op

revision = "0044"
down_revision = "0043"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.create_index(
            "runs_project_started",
            "runs",
            ["project", "started_at"],
            postgresql_concurrently=True,
        )
"""

#: titles of conversations, with the team whose they are
TITLES = (
    ("Why is the nightly job slow?", "data"),
    ("Upgrade the build image to Debian 13", "build"),
    ("Remove the flags nobody uses", "web"),
    ("Write release notes for 4.2", "docs"),
    ("The login page flickers in dark mode", "web"),
    ("Rotate the keys of the staging cluster", "ops"),
    ("Move the importer to the new queue", "data"),
    ("Find out who still calls /v1/search", "api"),
    ("Flaky test: test_checkout_with_coupon", "web"),
    ("Add an index for the audit export", "api"),
)

STATES = ("idle", "finished", "running", "paused", "finished", "error", "finished", "idle")


class Story:
    """A conversation that is written event by event, each some seconds after the one before."""

    def __init__(self, began: datetime) -> None:
        self.began = began
        self.events: list[dict[str, Any]] = []
        self._at = began
        self._tokens = 0

    def add(self, kind: str, source: str, seconds: float, **members: Any) -> str:
        """Append an event; its id."""
        self._at += timedelta(seconds=seconds)
        identity = str(uuid4())
        head = {"id": identity, "kind": kind, "source": source, "timestamp": self._at.isoformat()}
        self.events.append({**head, **members})
        return identity

    def says(self, text: str, source: str = "user", seconds: float = 1) -> None:
        content = [{"type": "text", "text": text}]
        role = "user" if source == "user" else "assistant"
        self.add("MessageEvent", source, seconds, llm_message={"role": role, "content": content})

    def repeat(self, other: "Story") -> None:
        """What another one tells, once more from here on."""
        ids = {event["id"]: str(uuid4()) for event in other.events}
        shift = self._at - other.began + timedelta(seconds=30)
        for event in other.events:
            at = datetime.fromisoformat(event["timestamp"]) + shift
            again = {**event, "id": ids[event["id"]], "timestamp": at.isoformat()}
            if "action_id" in event:
                again["action_id"] = ids[event["action_id"]]
            self.events.append(again)
            self._at = at

    def becomes(self, status: str, seconds: float = 0.1) -> None:
        self.add("ConversationStateUpdateEvent", "environment", seconds, key="execution_status", value=status)

    def acts(self, summary: str, arguments: dict[str, Any], *, thought: str = "", tool: str = "terminal") -> str:
        """An action; its id."""
        self._tokens += 2570
        usage = {"prompt_tokens": self._tokens, "completion_tokens": self._tokens // 12}
        metrics = {"main": {"accumulated_cost": self._tokens * 3e-6, "accumulated_token_usage": usage}}
        self.add("ConversationStateUpdateEvent", "environment", 1, key="stats", value={"usage_to_metrics": metrics})
        said = [{"type": "text", "text": thought}] if thought else []
        members = {"tool_name": tool, "tool_call_id": f"call-{len(self.events)}", "security_risk": "LOW"}
        kind = "FileEditorAction" if tool == "file_editor" else "TerminalAction"
        action = {"kind": kind, "is_input": False, "reset": False, **arguments}
        return self.add("ActionEvent", "agent", 1, thought=said, summary=summary, action=action, **members)

    def sees(self, action: str, text: str, exit_code: int | None = 0, seconds: float = 2) -> None:
        content = [{"type": "text", "text": text}]
        kind = "TerminalObservation" if exit_code is not None else "FileEditorObservation"
        seen = {"kind": kind, "content": content, "exit_code": exit_code, "is_error": bool(exit_code)}
        self.add("ObservationEvent", "environment", seconds, action_id=action, tool_name="terminal", observation=seen)


def nightly(ago: float = 400) -> Story:
    """The story of a slow job, until its answer."""
    story = Story(datetime.now(UTC) - timedelta(seconds=ago))
    story.add("SystemPromptEvent", "agent", 0, system_prompt={"type": "text", "text": "You are careful."}, tools=[])
    story.says("The nightly job takes an hour since Tuesday. Find out why, and mend it.")
    story.becomes("running")
    command = {"command": "psql -c \"explain analyze select * from runs_by_day('search')\""}
    story.sees(story.acts("Measure the slowest query", command, thought=PLAN), EXPLAIN, seconds=42)
    log = {"command": "git log --oneline --since '8 days' -- migrations/"}
    seen = "a41f02c 0041: drop indexes nobody uses\n77be190 0042: teams have a region\n0e3c1d5 0043: runs have a label"
    story.sees(story.acts("Look for what changed", log), seen)
    written = {"command": "create", "path": "migrations/0044_runs_index.py", "file_text": MIGRATION}
    made = story.acts("Create the index again", written, tool="file_editor", thought="The index of 0041 is missing.")
    story.sees(made, "File created: migrations/0044_runs_index.py", None)
    story.sees(story.acts("Run the tests of the job", {"command": "pytest tests/jobs"}), PYTEST, seconds=12)
    story.says(ANSWER, "agent", 4)
    story.becomes("finished")
    return story


def begin(
    client: httpx.Client, title: str, team: str, events: list[dict[str, Any]], policy: str = "NeverConfirm"
) -> str:
    """A conversation of an agent that posts its events itself; its id."""
    body = {"title": title, "tags": {"team": team}, "confirmation_policy": {"kind": policy}}
    identity = str(client.post("/api/conversations", json=body).raise_for_status().json()["id"])
    post(client, identity, *events)
    return identity


def waiting(client: httpx.Client, title: str, team: str, summary: str, command: str, risk: str = "MEDIUM") -> str:
    """A conversation whose agent waits for a decision about a command; its id."""
    story = nightly(500)
    story.says("Good. Now do it in staging too.", seconds=20)
    story.becomes("running")
    thought = "The index is created while others write, and a downgrade drops it again."
    story.acts(summary, {"command": command}, thought=thought)
    story.events[-1]["security_risk"] = risk
    story.becomes("waiting_for_confirmation")
    return begin(client, title, team, story.events, "AlwaysConfirm")


def script_of(lines: int) -> str:
    """A command of so many lines."""
    if lines == 1:
        return "alembic -x env=staging upgrade head"
    steps = (f'  bin/migrate --region "$region" --shard {number} --wait' for number in range(1, lines - 1))
    return "\n".join(["for region in eu us; do", *steps, "done"])


def fill(client: httpx.Client, number: int) -> None:
    """So many conversations of teams, in every state."""
    for place in range(number):
        title, team = TITLES[place % len(TITLES)]
        story = Story(datetime.now(UTC) - timedelta(minutes=7 * (number - place)))
        story.says(title)
        story.becomes(STATES[place % len(STATES)])
        begin(client, title if place < len(TITLES) else f"{title} ({place})", team, story.events)

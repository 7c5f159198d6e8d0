"""Questions that a person answers in a day of work, without rules and with the answers that the server proposes.

The person of tests/approvals/days.toml answers what waits, and never looks ahead: an action that they would refuse is
rejected; any other is approved with the answer `reads`, where the server proposes one, else with `like`, else with
`exactly`, in the scope that it proposes first: the folder. What rules and the approval mode decide is compared with
what the person thinks.

`python -m tests.approvals.test_days` prints the figures, and those of the recorded conversations.
"""

import functools
import json
import logging
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from app import create_app
from settings.config import Config
from tests.conftest import RECORDED, action
from tests.servers import store_server

DAYS = {day["name"]: day["actions"] for day in tomllib.loads(Path(__file__).with_name("days.toml").read_text())["days"]}

FOLDERS = dict(zip(DAYS, ("/workspace/shop", "/workspace/web", "/workspace/ops"), strict=True))

#: Folder of the recorded conversations.
RECORDED_FOLDER = "/workspace"

#: The mode of a person who starts the day with "ask what leaves the folder".
OUTSIDE = "outside"

#: Maximum share of the actions of a day that are asked about in the mode `outside`: on its first day, and later.
MOST_ASKED = 0.25

#: The same of all days, for a person with rules alone, and for one in the mode with the rules of the two other days.
MOST_WITH_RULES, MOST_AFTER_OTHERS = 0.33, 0.21


class AskedOnDay(NamedTuple):
    """One action of a day."""

    is_wanted: bool  #: whether the person would let it run
    tool_name: str
    arguments: dict[str, object]

    @property
    def words(self) -> str:
        return str(self.arguments.get("path") or self.arguments.get("command"))


def asked_on(text: str) -> Iterator[AskedOnDay]:
    """The actions of a day."""
    for number, line in enumerate(text.strip().splitlines()):
        sign, verb, words = line.split(" ", 2)
        assert sign in "+-", line
        if verb == "$":
            yield AskedOnDay(sign == "+", "terminal", {"command": words, "is_input": False, "kind": "TerminalAction"})
            continue
        contents = {
            "view": {},
            "create": {"file_text": f"text {number}"},
            "str_replace": {"old_str": f"a{number}", "new_str": f"b{number}"},
        }[verb]
        yield AskedOnDay(
            sign == "+", "file_editor", {"command": verb, "path": words, "kind": "FileEditorAction", **contents}
        )


class DayOutcome(NamedTuple):
    """What became of the actions of a day."""

    actions: int
    questions: int
    wrongly_run: list[str]  #: ran by a rule, and the person would have refused them
    by_answer: Counter[str]


class DecidingPerson:
    """Answers what waits in conversations of a folder.

    scope: of their rules; None is the one that the server proposes first.
    """

    def __init__(self, client, folder: str, mode: str | None = None, scope: str | None = None) -> None:
        self._client, self._folder, self._mode, self._scope = client, folder, mode, scope

    def forget(self) -> "DecidingPerson":
        """Revoke every rule."""
        for rule in self._client.get("/api/v1/approval-rules").get_json():
            self._client.delete(f"/api/v1/approval-rules/{rule['id']}")
        return self

    def work(self, actions: list[AskedOnDay]) -> DayOutcome:
        """Answer the actions of a day, in a conversation of its own."""
        conversation = self._start()
        questions, wrong, answers = 0, list[str](), Counter[str]()
        for one in actions:
            event = action("", tool_name=one.tool_name, action=one.arguments)
            posted = self._client.post(f"/api/v1/webhooks/events/{conversation}", json=[event])
            assert posted.status_code == 200, posted.text
            if not self._waits(conversation):
                wrong += [] if one.is_wanted else [one.words]
                continue
            questions += 1
            answers[self._answer(conversation, event["id"], one)] += 1
        return DayOutcome(len(actions), questions, wrong, answers)

    def _start(self) -> str:
        body = {
            "conversation_id": str(uuid4()),
            "confirmation_policy": {"kind": "AlwaysConfirm"},
            "workspace": {"working_dir": self._folder},
        }
        started = self._client.post("/api/conversations", json=body)
        assert started.status_code == 201, started.text
        if self._mode:
            url = f"/api/v1/conversation/{body['conversation_id']}/approval-mode"
            assert self._client.post(url, json={"mode": self._mode}).status_code == 200
        return body["conversation_id"]

    def _waits(self, conversation: str) -> list[dict]:
        return self._client.get("/api/v1/pending-actions", query_string={"conversation_id": conversation}).get_json()[
            "items"
        ]

    def _answer(self, conversation: str, action_id: str, one: AskedOnDay) -> str:
        """Answer as the person does, and return how."""
        decisions = f"/api/v1/conversation/{conversation}/pending-actions"
        decision, how = {"action_id": action_id, "decision": "approve" if one.is_wanted else "reject"}, "refused"
        if one.is_wanted:
            found = self._client.get(f"{decisions}/{action_id}/answers").get_json()["items"]
            ready = {answer["kind"]: answer for answer in found}
            how = next(kind for kind in ("reads", "like", "exactly") if kind in ready)
        taken = self._client.post(f"{decisions}/decisions", json={"decisions": [decision]})
        assert taken.status_code == 200, taken.text
        if one.is_wanted:
            scope = self._scope or ready[how]["proposed"]
            wanted = next(scoped["rule"] for scoped in ready[how]["scopes"] if scoped["scope"] == scope)
            rule = self._client.post("/api/v1/approval-rules", json=wanted)
            assert rule.status_code == 201, rule.text
        return how


def recorded() -> dict[str, list[AskedOnDay]]:
    """The actions of the recorded conversations, all of which the person of that day let run."""
    found = {}
    for file in sorted(RECORDED.glob("*.jsonl")):
        events = [json.loads(line) for line in file.read_text().splitlines()]
        found[file.name.partition(".")[0]] = [
            AskedOnDay(True, event["tool_name"], event["action"])
            for event in events
            if event["kind"] == "ActionEvent" and event["action"]["kind"] != "FinishAction"
        ]
    return found


class Figures(NamedTuple):
    """What becomes of a day for people who begin it differently."""

    rules: DayOutcome  #: without rules
    again: DayOutcome  #: the same work in another conversation of the folder, with the rules of the first
    in_mode: DayOutcome  #: in the mode `outside`, without rules
    in_mode_again: DayOutcome  #: the same work in another conversation of the folder, with the rules of the first
    after_others: DayOutcome | None = (
        None  #: in the mode `outside`, with the rules of the two other days for everywhere
    )


def figures(client, actions: list[AskedOnDay], folder: str) -> Figures:
    found = []
    for mode in (None, OUTSIDE):
        person = DecidingPerson(client, folder, mode).forget()
        found += [person.work(actions), person.work(actions)]
    return Figures(*found)


def after_others(client, name: str) -> DayOutcome:
    """What becomes of a day that begins with the rules of the two others, made for everywhere."""
    DecidingPerson(client, FOLDERS[name]).forget()
    others = [other for other in DAYS if other != name]
    for day in (*others, name):
        found = DecidingPerson(client, FOLDERS[day], OUTSIDE, "everywhere").work(list(asked_on(DAYS[day])))
    return found


@pytest.fixture(scope="module")
def outcome(app):
    """What becomes of a day, by its name and a member of `Figures`. A day is worked through when it is asked for.

    The rules of one day do not help another, unless the member says so.
    """
    client = app.test_client()

    @functools.cache
    def figures_of(name: str) -> Figures:
        return figures(client, list(asked_on(DAYS[name])), FOLDERS[name])

    @functools.cache
    def find(name: str, member: str) -> DayOutcome:
        return after_others(client, name) if member == "after_others" else getattr(figures_of(name), member)

    return find


every_day = pytest.mark.process("works through each day several times: 20,000 requests")

#: The quick tests work through the first day alone.
NAMES = [pytest.param(name, marks=[every_day] if place else []) for place, name in enumerate(DAYS)]

MEMBERS = [pytest.param(name, marks=[every_day] if name == "after_others" else []) for name in Figures._fields]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("member", ["again", "in_mode_again"])
def test_nothing_is_asked_twice_that_was_allowed(outcome, name, member):
    found = outcome(name, member)
    assert found.questions == found.by_answer["refused"] <= MOST_ASKED * found.actions


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("member", MEMBERS)
def test_nothing_runs_that_the_person_would_have_refused(outcome, name, member):
    assert outcome(name, member).wrongly_run == []


@pytest.mark.parametrize("name", NAMES)
def test_on_the_first_day_in_the_mode_a_person_is_asked_about_a_quarter_at_most(outcome, name):
    found = outcome(name, "in_mode")
    assert found.questions <= MOST_ASKED * found.actions, found


@pytest.mark.parametrize("name", NAMES)
def test_a_day_has_enough_actions_and_some_that_are_refused(outcome, name):
    found = outcome(name, "rules")
    assert found.actions >= 80
    assert found.by_answer["refused"] >= 9


@every_day
@pytest.mark.parametrize(("member", "most"), [("rules", MOST_WITH_RULES), ("after_others", MOST_AFTER_OTHERS)])
def test_a_person_is_asked_about_part_of_what_they_were_asked_without_rules(outcome, member, most):
    days = [outcome(name, member) for name in DAYS]
    assert sum(day.questions for day in days) / sum(day.actions for day in days) <= most, days


def main() -> int:
    """Print the figures of each day and of each recorded conversation, as rows of a table."""
    columns = ("rules", "second day", "mode + rules", "second day", "mode + rules of the other days")
    print("| what | before | of them refused |", " | ".join(columns), "|")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    days = {name: list(asked_on(text)) for name, text in DAYS.items()}
    wrong, totals = set(), Counter[str]()
    logging.disable(logging.INFO)  # a line for each request
    with store_server(Path(tempfile.mkdtemp())) as (url, _):
        client = create_app(Config.of(redis_url=url)).test_client()
        for name, actions in {**days, **recorded()}.items():
            found = figures(client, actions, FOLDERS.get(name, RECORDED_FOLDER))
            if name in days:
                found = found._replace(after_others=after_others(client, name))
            asked = {member: one.questions for member, one in found._asdict().items() if one}
            refused = sum(not one.is_wanted for one in actions)
            print(_row(name if name in days else f"recorded: {name}", len(actions), refused, asked))
            wrong |= {f"{name}: {words}" for one in found if one for words in one.wrongly_run}
            if name in days:
                totals.update(asked, actions=len(actions), refused=refused)
    print(_row("**all days**", totals["actions"], totals["refused"], totals))
    print("Run, and the person would have refused it:", *sorted(wrong) or ["nothing"], sep="\n")
    return 0


def _row(name: str, actions: int, refused: int, asked: Mapping[str, int]) -> str:
    shares = [
        f"{asked[member]} ({asked[member] / actions:.0%})" if member in asked else "–" for member in Figures._fields
    ]
    return f"| {' | '.join(map(str, (name, actions, refused, *shares)))} |"


if __name__ == "__main__":
    sys.exit(main())

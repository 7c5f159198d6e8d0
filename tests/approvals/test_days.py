"""Questions that a person answers in a day of work, without rules and with the answers that the server proposes.

The person of tests/approvals/days.toml answers what waits, and never looks ahead: an action that they would refuse is
rejected; any other is approved with the answer `like`, where the server proposes one, else with `exactly`. What rules
decide later is compared with what the person thinks of it.

`python -m tests.approvals.test_days` prints the figures, and those of the recorded conversations.
"""

import json
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from app import create_app
from settings.config import Config
from tests.conftest import RECORDED, action
from tests.servers import store_server

DAYS = {day["name"]: day["actions"] for day in tomllib.loads(Path(__file__).with_name("days.toml").read_text())["days"]}

#: Maximum share of the actions of all days that are asked about; the aim is a quarter.
MOST_ASKED = 0.55

#: The same of a day whose work has occurred before.
MOST_LATER = 0.25


class Asked(NamedTuple):
    """One action of a day."""

    is_wanted: bool  #: whether the person would let it run
    tool_name: str
    arguments: dict[str, object]

    @property
    def words(self) -> str:
        return str(self.arguments.get("path") or self.arguments.get("command"))


def asked_on(text: str) -> Iterator[Asked]:
    """The actions of a day."""
    for number, line in enumerate(text.strip().splitlines()):
        sign, verb, words = line.split(" ", 2)
        assert sign in "+-", line
        if verb == "$":
            yield Asked(sign == "+", "terminal", {"command": words, "is_input": False, "kind": "TerminalAction"})
            continue
        contents = {
            "view": {},
            "create": {"file_text": f"text {number}"},
            "str_replace": {"old_str": f"a{number}", "new_str": f"b{number}"},
        }[verb]
        yield Asked(
            sign == "+", "file_editor", {"command": verb, "path": words, "kind": "FileEditorAction", **contents}
        )


class Outcome(NamedTuple):
    """What became of the actions of a day."""

    actions: int
    questions: int
    wrongly_run: list[str]  #: ran by a rule, and the person would have refused them
    by_answer: Counter[str]


class Person:
    """Answers what waits in a conversation."""

    def __init__(self, client) -> None:
        self._client = client
        for rule in client.get("/api/v1/approval-rules").get_json():
            client.delete(f"/api/v1/approval-rules/{rule['id']}")
        self.id = str(uuid4())
        body = {"conversation_id": self.id, "confirmation_policy": {"kind": "AlwaysConfirm"}}
        assert client.post("/api/conversations", json=body).status_code == 201
        self._decisions = f"/api/v1/conversation/{self.id}/pending-actions"

    def work(self, actions: list[Asked]) -> Outcome:
        questions, wrong, answers = 0, list[str](), Counter[str]()
        for one in actions:
            event = action("", tool_name=one.tool_name, action=one.arguments)
            posted = self._client.post(f"/api/v1/webhooks/events/{self.id}", json=[event])
            assert posted.status_code == 200, posted.text
            if not self._waits():
                wrong += [] if one.is_wanted else [one.words]
                continue
            questions += 1
            answers[self._answer(event["id"], one)] += 1
        return Outcome(len(actions), questions, wrong, answers)

    def _waits(self) -> list[dict]:
        return self._client.get("/api/v1/pending-actions", query_string={"conversation_id": self.id}).get_json()[
            "items"
        ]

    def _answer(self, action_id: str, one: Asked) -> str:
        """Answer as the person does, and return how."""
        decision, how = {"action_id": action_id, "decision": "approve" if one.is_wanted else "reject"}, "refused"
        if one.is_wanted:
            found = self._client.get(f"{self._decisions}/{action_id}/answers").get_json()["items"]
            ready = {answer["kind"]: answer["rule"] for answer in found}
            how = next(kind for kind in ("like", "exactly") if kind in ready)
        taken = self._client.post(f"{self._decisions}/decisions", json={"decisions": [decision]})
        assert taken.status_code == 200, taken.text
        if one.is_wanted:
            rule = self._client.post("/api/v1/approval-rules", json=ready[how])
            assert rule.status_code == 201, rule.text
        return how


def recorded() -> dict[str, list[Asked]]:
    """The actions of the recorded conversations, all of which the person of that day let run."""
    found = {}
    for file in sorted(RECORDED.glob("*.jsonl")):
        events = [json.loads(line) for line in file.read_text().splitlines()]
        found[file.name.partition(".")[0]] = [
            Asked(True, event["tool_name"], event["action"])
            for event in events
            if event["kind"] == "ActionEvent" and event["action"]["kind"] != "FinishAction"
        ]
    return found


@pytest.fixture(scope="module")
def outcomes(app):
    """What became of each day; the rules of one do not help the next."""
    return {name: Person(app.test_client()).work(list(asked_on(text))) for name, text in DAYS.items()}


@pytest.fixture(scope="module")
def outcomes_of_another_day(app):
    """What becomes of the same actions where the rules of that day hold already."""
    found = {}
    for name, text in DAYS.items():
        person, actions = Person(app.test_client()), list(asked_on(text))
        person.work(actions)
        found[name] = person.work(actions)
    return found


@pytest.mark.parametrize("name", DAYS)
def test_nothing_is_asked_twice_that_was_allowed_and_nothing_refused_runs(outcomes_of_another_day, name):
    found = outcomes_of_another_day[name]
    assert found.wrongly_run == []
    assert found.questions == found.by_answer["refused"] <= MOST_LATER * found.actions


@pytest.mark.parametrize("name", DAYS)
def test_nothing_runs_that_the_person_would_have_refused(outcomes, name):
    assert outcomes[name].wrongly_run == []


@pytest.mark.parametrize("name", DAYS)
def test_a_day_has_enough_actions_and_some_that_are_refused(outcomes, name):
    assert outcomes[name].actions >= 80
    assert outcomes[name].by_answer["refused"] >= 9


def test_a_person_is_asked_about_part_of_what_they_were_asked_without_rules(outcomes):
    asked = sum(one.questions for one in outcomes.values())
    assert asked <= MOST_ASKED * sum(one.actions for one in outcomes.values()), outcomes


def main() -> int:
    """Print the figures of each day and of each recorded conversation, as rows of a table."""
    print("| what | questions without rules | questions | of them refused | the same once more | wrongly run |")
    print("|---|---:|---:|---:|---:|---:|")
    days = {name: list(asked_on(text)) for name, text in DAYS.items()}
    with store_server(Path(tempfile.mkdtemp())) as (url, _):
        client = create_app(Config.of(redis_url=url)).test_client()
        for name, actions in {**days, **recorded()}.items():
            person = Person(client)
            found, again = person.work(actions), person.work(actions)
            share = f"{found.questions} ({found.questions / found.actions:.0%})"
            wrong = len(found.wrongly_run) + len(again.wrongly_run)
            cells = (name, found.actions, share, found.by_answer["refused"], again.questions, wrong)
            print(f"| {' | '.join(map(str, cells))} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

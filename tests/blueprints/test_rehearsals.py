"""Rehearsals, proposals and ready answers over HTTP: what a rule would have done with what people decided."""

from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app import create_app
from core.wire import ConversationId
from settings.config import Config
from store.approvals import rehearsals as module
from store.approvals import trials
from tests.blueprints.decided import GIT_STATUS, PROPOSALS, REHEARSE, RULES, DecidedHere
from tests.blueprints.test_approval_rules import ADMIN
from tests.cold import ColdObjects, cold_client
from tests.conftest import observation, status


@pytest.fixture
def events_read(monkeypatch):
    """The ids of the actions whose events are read."""
    ids = []
    events = trials.Decisions.events

    def counted(self, conversation_id, some):
        ids.extend(some)
        return events(self, conversation_id, some)

    monkeypatch.setattr(trials.Decisions, "events", counted)
    return ids


# rehearsals


def test_a_rehearsal_says_how_many_decisions_a_rule_would_have_answered_and_shows_those_decided_otherwise(here):
    here.decide("approve", "git status", "git status -s", "ls")
    [rejected] = here.decide("reject", "git status --long")

    found = here.rehearse()

    numbers = {name: found[name] for name in ("decided", "answered", "rejected", "unread")}
    assert numbers == {"decided": 4, "answered": 3, "rejected": 1, "unread": 0}
    first, *others = found["examples"]
    assert first == {
        "conversation_id": here.id,
        "conversation_title": "Mend it",
        "action_id": rejected,
        "tool_name": "terminal",
        "text": "git status --long",
        "decision": "reject",
        "actor": {"kind": "key", "name": "anyone"},
        "time": first["time"],
    }
    assert [one["text"] for one in others] == ["git status -s", "git status"]
    assert found["next_page_id"] is None


def test_a_rehearsal_makes_no_rule_and_decides_nothing(here):
    waiting = here.act("git status")
    here.rehearse()
    assert here.client.get(RULES).get_json() == []
    assert here.waits() == [waiting]


def test_a_rule_that_rejects_is_rehearsed_too(here):
    here.decide("reject", "git push")
    here.decide("approve", "sh -c 'git push -f'")
    found = here.rehearse({**GIT_STATUS, "decision": "reject", "arguments": {"command": {"command": "git push *"}}})
    assert (found["answered"], found["rejected"]) == (2, 1)
    assert found["examples"][0]["text"] == "sh -c 'git push -f'"


def test_a_rehearsal_is_read_page_by_page_and_each_decision_comes_once(here):
    here.decide("approve", *(f"git status {number}" for number in range(7)))
    texts, page_id = [], None
    while True:
        found = here.rehearse(limit=2, **({"page_id": page_id} if page_id else {}))
        assert found["decided"] <= 2
        texts += [one["text"] for one in found["examples"]]
        page_id = found["next_page_id"]
        if page_id is None:
            break
    assert texts == [f"git status {number}" for number in reversed(range(7))]


def test_a_page_ends_early_when_its_bytes_are_spent_and_the_next_goes_on(here, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 1)
    monkeypatch.setattr(trials, "SLICE", 2)
    here.decide("approve", *(f"git status {number}" for number in range(5)))
    sizes, page_id = [], None
    while True:
        found = here.rehearse(**({"page_id": page_id} if page_id else {}))
        sizes.append(found["answered"])
        page_id = found["next_page_id"]
        if page_id is None:
            break
    assert sizes == [2, 2, 1]


def test_decisions_of_rules_and_by_messages_are_not_those_of_people(here):
    here.client.post(RULES, json={**GIT_STATUS, "arguments": {"command": {"equals": "git status -b"}}})
    here.act("git status -b")
    here.act("git status")
    message = {"role": "user", "content": [{"type": "text", "text": "Stop."}], "run": False}
    here.client.post(f"/api/conversations/{here.id}/events", json=message)
    assert here.rehearse()["decided"] == 0


def test_decisions_of_a_deleted_conversation_are_counted_as_unread(here):
    here.decide("approve", "git status")
    assert here.client.delete(f"/api/conversations/{here.id}").status_code == 200
    found = here.rehearse()
    assert (found["decided"], found["answered"], found["unread"], found["examples"]) == (1, 0, 1, [])


def test_decisions_whose_events_are_cold_are_counted_as_unread_and_left_where_they_are(cold_url, conversation):
    objects = ColdObjects()
    client = cold_client(cold_url, objects)
    here = DecidedHere(client, conversation)
    [action_id] = here.decide("approve", "git status")
    posted = client.post(
        f"/api/v1/webhooks/events/{here.id}", json=[observation({"id": action_id}), status("finished")]
    )
    assert posted.status_code == 200
    cold = client.application.extensions["server"].store.conversations.cold
    assert cold.freeze(ConversationId(here.id))
    found = here.rehearse()
    assert (found["decided"], found["answered"], found["unread"]) == (1, 0, 1)
    assert objects.gets == 0
    cold.thaw(ConversationId(here.id))
    assert here.rehearse()["answered"] == 1


def test_another_rule_that_rejects_wins_in_a_rehearsal_as_it_does_later(here):
    here.decide("approve", "git status -s")
    assert here.rehearse()["answered"] == 1
    here.client.post(RULES, json={**GIT_STATUS, "decision": "reject"})
    assert here.rehearse()["answered"] == 0


def test_a_line_that_the_draft_covers_together_with_another_rule_counts(here):
    here.decide("approve", "git status && ls -la")
    assert here.rehearse()["answered"] == 0
    here.client.post(RULES, json={**GIT_STATUS, "arguments": {"command": {"command": "ls *"}}})
    assert here.rehearse()["answered"] == 1


def test_a_draft_that_could_not_be_made_is_422_and_names_the_member(here):
    for members, place in (({"tool_name": None}, "tool_name"), ({"arguments": {"x": {"command": "*"}}}, "arguments")):
        response = here.client.post(REHEARSE, json={**GIT_STATUS, **members})
        assert response.status_code == 422
        assert response.get_json()["detail"][0]["loc"][:2] == ["body", place]
    for page_id in ("x", f"asc.1-{here.id}-1"):
        response = here.client.post(REHEARSE, json=GIT_STATUS, query_string={"page_id": page_id})
        assert response.get_json()["detail"][0]["loc"] == ["query", "page_id"]


def test_an_action_that_recurs_is_read_once(here, events_read):
    here.decide("approve", *(["git status"] * 4), "git status -s")
    here.decide("reject", "git status")
    events_read.clear()
    assert (here.rehearse()["answered"], here.rehearse()["rejected"]) == (6, 1)
    assert len(events_read) == 2 * 2


def test_an_action_whose_words_show_that_the_rule_does_not_match_is_not_read(here, events_read):
    here.decide("approve", "ls", "make test", "git status", "echo git", f"echo {'x' * 300}")
    events_read.clear()
    assert here.rehearse()["answered"] == 1
    assert len(events_read) == 2


def test_a_rule_about_the_risk_is_tried_on_each_event(here, events_read):
    for risk in ("LOW", "HIGH", "LOW"):
        action_id = here.act("git status", security_risk=risk)
        path = f"/api/v1/conversation/{here.id}/pending-actions/decisions"
        here.client.post(path, json={"decisions": [{"action_id": action_id, "decision": "approve"}]})
    events_read.clear()
    assert here.rehearse({**GIT_STATUS, "max_risk": "LOW"})["answered"] == 2
    assert len(events_read) == 3


def test_a_rule_about_conversations_is_tried_in_each(here, fresh):
    other = DecidedHere(fresh, str(uuid4()))
    for one in (here, other):
        one.decide("approve", "git status")
    assert here.rehearse({**GIT_STATUS, "conversation_ids": [other.id]})["answered"] == 1
    assert here.rehearse()["answered"] == 2


COMMANDS = [
    *("git status", "git status -s", "git status && git status -b", "git status > out", "sudo git status"),
    *("git status && ls", "sh -c 'git status'", "git push", "x=1 git status", "timeout 5 git status", "$x", "ls"),
]


@pytest.mark.parametrize("pattern", ["git status *", "git *", "ls *", "git push *"])
@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_a_rehearsal_answers_as_the_rule_then_does(here, pattern, decision):
    rule = {**GIT_STATUS, "decision": decision, "arguments": {"command": {"command": pattern}}}
    here.decide("approve", *COMMANDS)
    rehearsed = {one["text"] for one in _answered(here, rule)}
    made = here.client.post(RULES, json=rule).get_json()
    for command in COMMANDS:
        uses = here.client.get(f"{RULES}/{made['id']}").get_json()["uses"]
        waiting = here.act(command)
        after = here.client.get(f"{RULES}/{made['id']}").get_json()["uses"]
        assert (after == uses + 1) == (command in rehearsed) == (waiting not in here.waits()), command
        here.reject_all()


WORDS = ["git status", "git push", "ls", "rm x", "-s", "x=1", "sudo", "sh -c 'git push'", "$x", "> out", "git"]
LINES = st.builds(
    lambda words, joint: joint.join(words),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=3),
    st.sampled_from([" ", " && ", " | "]),
)
TESTS = st.one_of(
    st.sampled_from(["git status *", "git *", "ls *", "rm x", "git push *"]).map(lambda text: {"command": text}),
    st.sampled_from(["git*", "*status*"]).map(lambda text: {"pattern": text}),
    LINES.map(lambda line: {"equals": line}),
)
DRAFTS = st.builds(
    lambda decision, test, members: {**GIT_STATUS, "decision": decision, "arguments": {"command": test}, **members},
    st.sampled_from(["approve", "reject"]),
    TESTS,
    st.sampled_from([{}, {"max_risk": "LOW"}, {"tags": {"team": "web"}}, {"tags": {"team": "app"}}]),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LINES, DRAFTS, st.lists(DRAFTS, max_size=3), st.sampled_from(["LOW", "HIGH", "UNKNOWN"]))
def test_a_rehearsal_equals_what_the_rule_then_does_with_the_same_action(here, line, draft, others, risk):
    here.forget_rules()
    waiting = here.act(line, security_risk=risk)
    here.reject_all()
    for rule in others:
        assert here.client.post(RULES, json=rule).status_code == 201
    rehearsed = here.rehearse(draft, limit=1)
    assert rehearsed["decided"] == 1
    assert {one["action_id"] for one in rehearsed["examples"]} <= {waiting}
    here.forget_rules()
    made = here.client.post(RULES, json=draft)  # the oldest, as a rehearsal has it
    for rule in others:
        here.client.post(RULES, json=rule)
    here.act(line, security_risk=risk)
    uses = here.client.get(made.headers["Location"]).get_json()["uses"]
    here.reject_all()
    assert uses == rehearsed["answered"]


def _answered(here, rule):
    """Every answered decision: those of pages of one, whose examples are all there is."""
    page_id = None
    while True:
        found = here.rehearse(rule, limit=1, **({"page_id": page_id} if page_id else {}))
        yield from found["examples"]
        page_id = found["next_page_id"]
        if page_id is None:
            return


# proposals


def test_what_was_approved_again_and_again_is_proposed_with_its_evidence(here):
    here.decide("approve", "git status", "git status -s", "git status -b", "git log", "make")
    found = here.propose()
    [proposal] = found["items"]
    assert proposal["rule"] == GIT_STATUS
    assert proposal["sentence"] == "Allows `git status` with any words after it, in every conversation."
    assert proposal["approved"] == 3
    assert [one["text"] for one in proposal["examples"]] == ["git status -b", "git status -s", "git status"]
    assert proposal["last_at"] == proposal["examples"][0]["time"]
    assert (found["decided"], found["unread"]) == (5, 0)
    assert len(here.propose(least=1)["items"]) == 2
    assert here.client.post(RULES, json=proposal["rule"]).status_code == 201


def test_nothing_is_proposed_that_was_rejected_once(here):
    here.decide("approve", "git status", "git status -s", "git status -b")
    here.decide("reject", "git status --long")
    assert here.propose()["items"] == []


def test_nothing_is_proposed_for_which_there_is_a_rule_already(here):
    here.decide("approve", "git status", "git status -s", "git status -b")
    assert len(here.propose()["items"]) == 1
    here.client.post(RULES, json=GIT_STATUS)
    assert here.propose()["items"] == []


# ready answers


def test_an_action_that_waits_has_ready_answers_with_numbers(here):
    here.decide("approve", "git status", "git status -s", "ls", "ls")
    found = here.answers(here.act("git status -s"))
    shown = {
        kind: (one["sentence"], one["rule"].get("arguments"), one["answered"], one["of"]) for kind, one in found.items()
    }
    exactly, like = {"command": {"equals": "git status -s"}}, {"command": {"command": "git status *"}}
    reading = "Allows every command that only reads, inside the folder, and no file that usually holds secrets"
    assert shown == {
        "exactly": ("Allows `git status -s`, exactly as it is written, in this conversation.", exactly, 1, 4),
        "like": ("Allows `git status` with any words after it, in this conversation.", like, 2, 4),
        "reads": (f"{reading}, in this conversation.", {"command": {"any": True}}, 4, 4),
        "tool": ("Allows everything that `terminal` is asked to do, in this conversation.", None, 4, 4),
    }
    assert all(one["rule"]["conversation_ids"] == [here.id] for one in found.values())
    assert [kind for kind, one in found.items() if "effects" in one["rule"]] == ["reads"]


def test_the_rule_of_all_that_reads_decides_nothing_else(here):
    made = here.client.post(RULES, json=here.answers(here.act("git status"))["reads"]["rule"])
    for command, waits in (("ls | wc -l", False), ("cat ~/.ssh/id_rsa", True), ("ls /etc", True), ("rm a", True)):
        assert (here.act(command) in here.waits()) is waits, command
    here.client.delete(made.headers["Location"])


def test_each_ready_answer_makes_a_rule_that_decides_such_an_action(here):
    for number, kind in enumerate(("exactly", "like", "reads", "tool")):
        waiting = here.act(f"git status {number}")
        made = here.client.post(RULES, json=here.answers(waiting)[kind]["rule"])
        assert made.status_code == 201
        again = here.act(f"git status {number}")
        assert again not in here.waits(), kind
        assert here.client.delete(made.headers["Location"]).status_code == 200
        here.reject_all()


def test_what_cannot_be_proposed_safely_has_no_answer_like_it(here):
    for command in ("rm -rf build", "git status > out", "sudo git status", "eval $x"):
        assert set(here.answers(here.act(command))) == {"exactly", "tool"}, command
    assert set(here.answers(here.act("git status && ls"))) == {"exactly", "reads", "tool"}


def test_arguments_that_no_rule_can_hold_have_no_exact_answer(here):
    assert set(here.answers(here.act("x" * 20_000))) == {"tool"}


def test_the_last_twenty_decisions_about_the_tool_count(here):
    here.decide("approve", *(["git status"] * 25))
    assert here.answers(here.act("git status"))["like"]["of"] == 20


def test_an_action_that_does_not_wait_is_404(here):
    [decided] = here.decide("approve", "ls")
    for conversation_id, action_id in ((here.id, decided), (here.id, "none"), ("0" * 32, decided)):
        path = f"/api/v1/conversation/{conversation_id}/pending-actions/{action_id}/answers"
        assert here.client.get(path).status_code == 404


def test_a_read_key_rehearses(redis_url):
    config = Config.of(redis_url=redis_url, secret_key="a key for tests only", api_keys=(ADMIN,))
    client = create_app(config).test_client()
    admin = {"Authorization": f"Bearer {ADMIN}"}
    made = client.post("/api/v1/keys", json={"name": "A reader", "scopes": ["read"]}, headers=admin).get_json()
    reader = {"Authorization": f"Bearer {made['key']}"}
    assert client.post(REHEARSE, json=GIT_STATUS, headers=reader).status_code == 200
    assert client.get(PROPOSALS, headers=reader).status_code == 200
    assert client.post(REHEARSE, json=GIT_STATUS).status_code == 401

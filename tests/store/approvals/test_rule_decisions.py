"""What approval rules decide: once, as often as they may, and nothing that came after their revocation."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from core.approvals import Rule
from store.approvals.audit import DecisionActor
from store.link import attempts
from tests.agents import DUE, running_sandbox
from tests.conftest import action, as_events, status
from tests.store.conftest import expire, forget

ALWAYS = {"kind": "AlwaysConfirm"}
ALICE = DecisionActor("key", "alice")
GIT = {"command": {"pattern": "git *"}}
WAITS = "waiting_for_confirmation"


@pytest.fixture
def rules(store):
    """The rules of a store that has none."""
    forget(store.approvals.rules._redis, "{rules}*")
    yield store.approvals.rules
    for one in store.approvals.rules.all():
        store.approvals.rules.revoke(one.rule.id)


@pytest.fixture
def make(rules):
    """Make a rule about the terminal that approves, unless these members say otherwise."""
    return lambda **members: rules.make(Rule(**{"decision": "approve", "tool_name": "terminal", **members})).rule


@pytest.fixture
def begin(store):
    """Begin a conversation in which each action is held back, and append these; its id."""

    def do(*actions: dict, conversation_id: str = "", sandbox_id: str | None = None, **info) -> str:
        identity, events = conversation_id or str(uuid4()), list(actions)
        info |= {"sandbox_id": sandbox_id, "app": {}} if sandbox_id else {}
        assert store.conversations.create(identity, confirmation_policy=ALWAYS, **info)
        events += [status(WAITS)] if sandbox_id else []
        store.events.append(identity, as_events(events), sandbox_id=sandbox_id)
        return identity

    return do


@pytest.fixture
def box(store):
    """A sandbox that runs; nothing listens at its agent's URL."""
    with running_sandbox(store, "http://127.0.0.1:9") as sandbox:
        yield sandbox.id


@pytest.fixture
def between(rules, monkeypatch):
    """Have something happen once, between the next claim of a use and its decision."""

    def do(happen) -> None:
        claim = rules.claim

        def claimed(*words):
            monkeypatch.setattr(rules, "claim", claim)
            refused = claim(*words)
            happen()
            return refused

        monkeypatch.setattr(rules, "claim", claimed)

    return do


def group(*commands: str) -> list[dict]:
    """Actions of one response of the agent."""
    actions = [action(command) for command in commands]
    return [{**one, "llm_response_id": actions[0]["llm_response_id"]} for one in actions]


def waiting(store, conversation) -> list[str]:
    return [one["arguments"]["command"] for one in store.approvals.confirmations.pending(conversation)]


def deciders(store, conversation) -> list[tuple[str, str, str]]:
    """Decision, and kind and name of the actor, of each entry of an audit."""
    entries = map(json.loads, store.approvals.audit.of(conversation, limit=100))
    return [(one["decision"], one["actor"]["kind"], one["actor"]["name"]) for one in entries]


def uses(rules, rule) -> int:
    return rules.get(rule.id).uses


def end(rules, rule) -> None:
    """Have a rule be past its expiry."""
    stored = json.loads(rules._redis.hget("{rules}:uses", rule.id))
    rules._redis.hset("{rules}:uses", rule.id, json.dumps({**stored, "expires_at": "1"}))


def elsewhere(call):
    """The result of a call by another worker."""
    with ThreadPoolExecutor(1) as worker:
        return worker.submit(call).result()


# detached


def test_an_action_that_a_rule_approves_does_not_wait(store, rules, make, begin):
    rule = make(arguments=GIT, reason="Reads alone")
    one = action("git status")
    conversation = begin(one)

    assert waiting(store, conversation) == []
    assert store.conversations.get(conversation)["execution_status"] == "running"
    assert [one["id"] == decided["action_id"] for decided in store.approvals.confirmations.decided(conversation)] == [
        True
    ]
    assert deciders(store, conversation) == [("approve", "rule", rule.id)]
    [entry] = map(json.loads, store.approvals.audit.of(conversation, limit=9))
    assert entry["reason"] == f"Approval rule {rule.id}: Reads alone"
    used = rules.get(rule.id)
    assert used.uses == 1
    assert used.last_used_at


def test_an_action_that_a_rule_rejects_is_rejected_with_its_reason(store, make, begin):
    make(arguments=GIT)
    rule = make(decision="reject", arguments={"command": {"equals": "git push"}}, reason="Not from here")
    conversation = begin(action("git push"))

    events, _ = store.events.search(conversation, kind="UserRejectObservation")
    assert [json.loads(one)["rejection_reason"] for one in events] == [f"Approval rule {rule.id}: Not from here"]
    assert deciders(store, conversation) == [("reject", "rule", rule.id)]


NEVER_PUSH = {"decision": "reject", "arguments": {"command": {"pattern": "*git push*"}}}


def test_an_action_that_a_rule_may_reject_waits_for_a_person(store, rules, make, begin):
    made = [make(), make(**NEVER_PUSH)]
    conversation = begin(action("git push; true"), action("git $verb"), action("ls"))

    assert waiting(store, conversation) == ["git $verb"]
    assert deciders(store, conversation) == [("reject", "rule", made[1].id), ("approve", "rule", made[0].id)]
    assert [uses(rules, rule) for rule in made] == [1, 1]


def test_a_rule_that_is_no_longer_in_force_keeps_nothing_waiting(store, rules, make, begin):
    make()
    used, past, revoked = make(**NEVER_PUSH, max_uses=1), make(**NEVER_PUSH), make(**NEVER_PUSH)
    begin(action("git push"))
    assert uses(rules, used) == 1
    assert waiting(store, begin(action("git $verb"))) == ["git $verb"]

    end(rules, past)
    rules.revoke(revoked.id)
    assert waiting(store, begin(action("git $verb"))) == []


def test_a_doubt_about_one_action_leaves_a_group_to_people(store, rules, make, begin, box):
    approving, _ = make(), make(**NEVER_PUSH)
    conversation = begin(*group("ls", "git $verb"), sandbox_id=box)

    assert waiting(store, conversation) == ["ls", "git $verb"]
    assert uses(rules, approving) == 0


# several rules about the commands of one line


def about(command: str, **members) -> dict:
    return {"arguments": {"command": {"command": command}}, **members}


def test_two_rules_approve_a_line_together_and_each_counts_a_use_and_is_named(store, rules, make, begin):
    made = [make(**about("git status *", reason="Reads")), make(**about("ls *")), make(**about("cat *"))]
    conversation = begin(action("git status && ls -la | cat; git status -s"))

    assert waiting(store, conversation) == []
    assert deciders(store, conversation) == [("approve", "rule", " ".join(rule.id for rule in made))]
    [entry] = map(json.loads, store.approvals.audit.of(conversation, limit=9))
    assert entry["reason"] == f"Approval rule {made[0].id}: Reads; " + "; ".join(
        f"Approval rule {rule.id}" for rule in made[1:]
    )
    assert [uses(rules, rule) for rule in made] == [1, 1, 1]


def test_a_line_with_one_command_that_no_rule_approves_waits_and_uses_no_rule(store, rules, make, begin):
    rule = make(**about("git status *"))
    lines = ("git status; make", "git status > out", "git status $(make)", "sh -c 'git status; make'", "git status; $x")
    conversation = begin(*map(action, lines))

    assert waiting(store, conversation) == list(lines)
    assert uses(rules, rule) == 0


def test_a_rule_without_a_use_left_hands_its_command_to_the_next_rule_and_the_others_count_once(
    store, rules, make, begin
):
    made = [make(**about("ls *", max_uses=1)), make(**about("git *")), make(**about("ls *", max_uses=1))]
    conversation = begin(*(action(f"git status; ls {number}") for number in range(3)))

    assert waiting(store, conversation) == ["git status; ls 2"]
    assert [uses(rules, rule) for rule in made] == [1, 2, 1]


def test_a_rule_that_rejects_one_command_of_a_line_rejects_it_whatever_approves_the_others(store, make, begin):
    make(**about("git *"))
    never = make(decision="reject", **about("git push"))
    conversation = begin(action("git status && timeout 5 sh -c 'git push'"), action("git status; eval $x"))

    assert waiting(store, conversation) == ["git status; eval $x"]
    assert deciders(store, conversation) == [("reject", "rule", never.id)]


def test_uses_of_rules_that_decided_together_are_given_back_where_a_person_was_first(
    store, rules, make, begin, between
):
    made, conversation = [make(**about("git status *")), make(**about("ls *"))], str(uuid4())
    between(lambda: store.approvals.confirmations.decide(conversation, accept=True, reason="", actor=ALICE))
    begin(action("git status; ls"), conversation_id=conversation)

    assert deciders(store, conversation) == [("approve", "key", "alice")]
    assert [uses(rules, rule) for rule in made] == [0, 0]


def test_an_action_that_no_rule_matches_waits(store, rules, make, begin):
    rule = make(arguments=GIT)
    conversation = begin(action("git status; rm -rf /"))

    assert waiting(store, conversation) == ["git status; rm -rf /"]
    assert (uses(rules, rule), deciders(store, conversation)) == (0, [])


def test_a_fault_of_the_rules_fails_no_append_and_leaves_the_action_to_people(store, make, begin, monkeypatch):
    make()
    monkeypatch.setattr("store.approvals.rules.matching", lambda *_: {}["absent"])

    conversation = begin(action("ls"))

    assert waiting(store, conversation) == ["ls"]


def test_an_argument_that_the_rule_does_not_name_keeps_an_action_waiting(store, make, begin):
    make(arguments=GIT)
    typed = action("git status")
    typed["action"]["is_input"] = True
    assert waiting(store, begin(typed)) == ["git status"]
    typed = action("git status")
    typed["action"]["is_input"] = False
    assert waiting(store, begin(typed)) == []


def test_a_rule_holds_for_conversations_with_its_tags(store, make, begin):
    make(tags={"team": "web"})
    assert waiting(store, begin(action("ls"), tags={"team": "web"})) == []
    assert waiting(store, begin(action("ls"), tags={"team": "core"})) == ["ls"]


def test_each_action_of_a_group_is_decided_by_itself(store, make, begin):
    make(arguments=GIT)
    conversation = begin(*group("git status", "ls", "git log"))

    assert waiting(store, conversation) == ["ls"]
    assert store.conversations.get(conversation)["execution_status"] == WAITS
    store.approvals.confirmations.decide(conversation, accept=True, reason="", actor=ALICE)
    assert store.conversations.get(conversation)["execution_status"] == "running"


def test_rules_that_have_no_use_left_or_expired_leave_the_action_to_the_next(store, rules, make, begin):
    first, second = make(decision="reject", max_uses=1), make()
    assert deciders(store, begin(action()))[0][2] == first.id
    assert deciders(store, begin(action()))[0][2] == second.id
    end(rules, second)
    assert waiting(store, begin(action("ls"))) == ["ls"]


def test_a_rule_decides_within_a_request_that_has_an_idempotency_key(store, rules, make, begin):
    rule = make()
    attempts.enter(attempts.Attempt(uuid4()))
    try:
        conversation = begin(*group("ls", "pwd"))
    finally:
        attempts.enter(None)
    assert waiting(store, conversation) == []
    assert [kind for _, kind, _ in deciders(store, conversation)] == ["rule", "rule"]
    assert uses(rules, rule) == 2


def test_a_rule_decides_what_waited_before_it_was_made_when_its_conversation_is_refreshed(store, make, begin):
    conversation = begin(action("ls"))
    make()
    store.approvals.rule_decisions.refresh(conversation)
    assert waiting(store, conversation) == []


# in a sandbox


def test_the_agent_of_a_sandbox_receives_a_rules_decision_from_a_supervisor(store, make, begin, box):
    rule = make(arguments=GIT)
    conversation = begin(*group("git status", "git log"), sandbox_id=box)

    delivery = store.approvals.deliveries.get(conversation)
    assert (delivery.accept, len(delivery.actions)) == (True, 2)
    assert deciders(store, conversation) == [("approve", "rule", rule.id)]
    entry = f"{delivery.id} {conversation} {box}"
    due, now = store.approvals.rules._redis.zscore(DUE, entry), store.approvals.rules._redis.time()
    assert due <= now[0] * 1e6 + now[1]


@pytest.mark.parametrize("commands", [("git status", "ls"), ("git status", "git push")])
def test_an_agent_that_takes_one_decision_gets_none_where_rules_differ(store, rules, make, begin, box, commands):
    made = [make(arguments=GIT), make(decision="reject", arguments={"command": {"equals": "git push"}})]
    conversation = begin(*group(*commands), sandbox_id=box)

    assert waiting(store, conversation) == list(commands)
    assert store.approvals.deliveries.get(conversation) is None
    assert [uses(rules, rule) for rule in made] == [0, 0]


def test_a_group_that_has_more_actions_than_the_rule_uses_is_left_to_people(store, rules, make, begin, box):
    rule = make(max_uses=1)
    conversation = begin(*group("ls", "pwd"), sandbox_id=box)

    assert waiting(store, conversation) == ["ls", "pwd"]
    assert uses(rules, rule) == 0


def test_several_rules_that_decide_alike_decide_a_group_and_are_all_named(store, make, begin, box):
    made = [make(arguments={"command": {"equals": command}}) for command in ("ls", "pwd")]
    conversation = begin(*group("ls", "pwd"), sandbox_id=box)

    assert store.approvals.deliveries.get(conversation).accept
    names = " ".join(rule.id for rule in made)
    assert deciders(store, conversation) == [("approve", "rule", names)] * 2


def test_an_agent_that_takes_single_decisions_gets_those_of_rules_with_those_of_people(store, make, begin, box):
    make(arguments=GIT)
    conversation = str(uuid4())
    assert store.conversations.create(conversation, confirmation_policy=ALWAYS, sandbox_id=box, app={})
    store.approvals.rules._redis.hset(f"conv:{{{conversation}}}", "told.capabilities", '["decide_each"]')
    store.events.append(conversation, as_events([*group("git status", "ls"), status(WAITS)]), sandbox_id=box)

    assert waiting(store, conversation) == ["ls"]
    assert store.approvals.deliveries.get(conversation) is None
    redis = store.approvals.rules._redis
    assert not [entry for entry in redis.zrange(DUE, 0, -1) if conversation in entry.decode()]


# races and crashes


@pytest.mark.faults("a race of threads")
def test_twenty_workers_decide_as_many_actions_as_a_rule_has_uses(store, rules, make, begin):
    conversations = [begin(action("ls")) for _ in range(15)]
    rule = make(max_uses=7)

    with ThreadPoolExecutor(20) as workers:
        list(workers.map(store.approvals.rule_decisions.refresh, conversations * 4))

    decided = [one for one in conversations if waiting(store, one) == []]
    assert len(decided) == uses(rules, rule) == 7
    assert [deciders(store, one) for one in decided] == [[("approve", "rule", rule.id)]] * 7


def test_the_repeat_after_a_crash_between_claim_and_decision_counts_once(store, rules, make, begin, between):
    rule, conversation = make(max_uses=1), str(uuid4())

    def crash() -> None:
        raise SystemExit

    between(crash)
    with pytest.raises(SystemExit):
        begin(action("ls"), conversation_id=conversation)
    assert (waiting(store, conversation), uses(rules, rule)) == (["ls"], 1)

    store.approvals.rule_decisions.refresh(conversation)
    assert (waiting(store, conversation), uses(rules, rule)) == ([], 1)


def test_a_use_whose_action_a_person_decided_first_is_given_back(store, rules, make, begin, between):
    rule, conversation = make(max_uses=1), str(uuid4())
    between(lambda: store.approvals.confirmations.decide(conversation, accept=False, reason="no", actor=ALICE))
    begin(action("ls"), conversation_id=conversation)

    assert deciders(store, conversation) == [("reject", "key", "alice")]
    assert uses(rules, rule) == 0


@pytest.mark.faults("a race of threads")
def test_a_use_by_which_another_worker_decided_first_is_kept(store, rules, make, begin, between):
    rule, conversation = make(max_uses=1), str(uuid4())
    between(lambda: elsewhere(lambda: store.approvals.rule_decisions.refresh(conversation)))
    begin(action("ls"), conversation_id=conversation)

    assert deciders(store, conversation) == [("approve", "rule", rule.id)]
    assert uses(rules, rule) == 1


def test_a_use_whose_conversation_was_deleted_is_given_back(store, rules, make, begin, between):
    conversation, rule = begin(action("ls")), make()
    between(lambda: store.conversations.delete(conversation))
    store.approvals.rule_decisions.refresh(conversation)
    assert uses(rules, rule) == 0


def test_a_use_whose_action_expired_is_given_back(store, rules, make, begin, between):
    one = action("ls")
    conversation = begin(one)
    rule = make()

    between(lambda: expire(store, conversation, one))
    store.approvals.rule_decisions.refresh(conversation)
    store.approvals.confirmations.expire(conversation)
    assert [kind for _, kind, _ in deciders(store, conversation)] == ["expiry"]
    assert uses(rules, rule) == 0


@pytest.mark.faults("a race of threads")
def test_a_revoked_rule_does_not_decide_the_same_action_of_a_later_conversation(store, rules, make, begin, between):
    one = action("ls")
    conversation = begin(one)
    rule = make()

    def begin_again() -> None:
        rules.revoke(rule.id)
        store.conversations.delete(conversation)
        elsewhere(lambda: begin(one, conversation_id=conversation))

    between(begin_again)
    store.approvals.rule_decisions.refresh(conversation)
    assert waiting(store, conversation) == ["ls"]
    assert ("approve", "rule", rule.id) not in deciders(store, conversation)


@pytest.mark.faults("a race of threads")
def test_no_action_that_is_appended_after_a_revocation_was_answered_is_decided_by_the_rule(store, rules, make, begin):
    for _ in range(5):
        rule, is_revoked, late = make(), threading.Event(), []

        def append(is_revoked=is_revoked, late=late) -> None:
            while True:
                is_late = is_revoked.is_set()
                conversation = begin(action("ls"))
                if is_late:
                    late.append(conversation)
                    return

        with ThreadPoolExecutor(4) as workers:
            appends = [workers.submit(append) for _ in range(4)]
            rules.revoke(rule.id)
            is_revoked.set()
        for one in appends:
            one.result()
        assert [waiting(store, conversation) for conversation in late] == [["ls"]] * 4


def test_while_no_rule_is_there_what_waits_costs_one_round_trip_more(store, rules, begin, monkeypatch):
    conversation = begin(action("ls"))
    monkeypatch.setattr(store.approvals.index, "read_approvals", None)
    store.approvals.rule_decisions.apply(conversation)

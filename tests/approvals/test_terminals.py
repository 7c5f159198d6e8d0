"""Agents in terminals: a request of their hook is decided once, by a person, a rule, a deadline or its terminal.

docs/approvals.md, "Terminals", names these tests.
"""

from uuid import UUID

import pytest

from agents.asking import Asking, HookSession, ToolCall
from store.approvals.audit import SERVER
from store.link.attempts import Attempt, enter
from tests.approvals.terminals import AskedTerminal, TerminalInbox, ask_key, set_back


@pytest.fixture(scope="module")
def house(request):
    """Two apps on one store; nothing in them ends by itself what is due."""
    return request.getfixturevalue("apps")


@pytest.fixture
def terminal(house):
    return AskedTerminal(house)


@pytest.fixture
def inbox(house):
    return TerminalInbox(house)


def test_a_request_waits_in_the_inbox_with_where_it_comes_from(terminal, inbox):
    asked = terminal.asks(order="races")
    [item] = inbox.items(asked.conversation_id)

    assert (asked.state, item["action_id"], item["digest"]) == ("pending", asked.action_id, asked.digest)
    assert item["arguments"] == {"command": "touch proof"}
    assert item["conversation_title"] == "claude-code in /home/ada/shop"
    told = {name: item["asked_from"][name] for name in ("agent", "machine", "person", "folder", "order", "in_terminal")}
    assert told == {
        "agent": "claude-code",
        "machine": "laptop",
        "person": "ada",
        "folder": "/home/ada/shop",
        "order": "races",
        "in_terminal": False,
    }
    state = inbox.server.get(f"/api/conversations/{asked.conversation_id}").json()
    assert (state["external"]["kind"], state["external"]["session"]) == ("external", terminal.session["id"])


def test_the_list_of_conversations_is_filtered_by_where_their_agents_run(terminal, inbox):
    asked = terminal.asks()
    begun = inbox.server.post("/api/conversations", json={}).json()["id"]

    def of_kind(kind):
        found = inbox.server.get("/api/v1/conversations/search", params={"kind": kind}).json()["items"]
        return {one["id"] for one in found} & {asked.conversation_id, begun}

    assert [of_kind(kind) for kind in ("external", "detached", "sandbox")] == [{asked.conversation_id}, {begun}, set()]
    response = inbox.server.get("/api/v1/conversations/search", params={"kind": "terminal"})
    assert (response.status_code, "sandbox, external, detached" in response.text) == (422, True)


def test_the_requests_of_one_session_are_in_one_conversation(house, terminal):
    first, second = terminal.asks("one"), terminal.asks("two")
    other = AskedTerminal(house, id=terminal.session["id"], host="desktop").asks("one")

    assert first.conversation_id == second.conversation_id != other.conversation_id


@pytest.mark.parametrize(("verb", "state"), [("approve", "approved"), ("reject", "rejected")])
def test_the_asker_gets_a_persons_answer_with_its_reason(terminal, inbox, verb, state):
    asked = terminal.asks()
    assert inbox.decides(asked, verb, reason="not today").status_code == 200

    found = terminal.state(asked)
    assert (found["state"], found["decision"], found["reason"]) == (state, verb, "not today")
    assert (found["by"]["kind"], found["digest"]) == ("key", asked.digest)


def test_one_decision_of_two_is_taken_though_another_request_still_waits(terminal, inbox):
    first, second = terminal.asks("one"), terminal.asks("two")
    inbox.decides(first, "approve")

    assert (terminal.state(first)["state"], terminal.state(second)["state"]) == ("approved", "pending")


def test_an_edit_reaches_an_agent_that_can_run_edited_arguments(inbox, house):
    terminal = AskedTerminal(house, can_edit=True)
    terminal.reports("prompt", text="Mend it")  # comes first, and begins the session
    asked = terminal.asks()
    assert inbox.decides(asked, "edit", arguments={"command": "ls"}).status_code == 200

    found = terminal.state(asked)
    assert (found["decision"], found["arguments"]) == ("edit", {"command": "ls"})
    other = AskedTerminal(house).asks()
    assert inbox.decides(other, "edit", arguments={"command": "ls"}).status_code == 409


@pytest.mark.parametrize(("outcome", "decision"), [("allowed", "approve"), ("refused", "reject")])
def test_an_answer_at_the_terminal_is_audited_as_the_askers_word(terminal, inbox, outcome, decision):
    asked = terminal.asks(order="races")
    assert terminal.tells(asked, outcome).json()["decision"] == decision

    assert inbox.entries(asked.conversation_id) == [(decision, "terminal", "ada@laptop")]
    assert inbox.items(asked.conversation_id) == []
    assert inbox.decides(asked, "approve").status_code == 409
    assert terminal.tells(asked, outcome).status_code == 200  # a repeat


def test_a_terminal_that_answers_after_a_person_is_told_who_won(terminal, inbox):
    asked = terminal.asks(order="races")
    inbox.decides(asked, "reject")
    response = terminal.tells(asked, "allowed")

    assert response.status_code == 409
    assert response.json()["detail"].startswith("not_pending: the request was rejected before, by key settings-1")
    assert [one[0] for one in inbox.entries(asked.conversation_id)] == ["reject"]


def test_a_call_without_an_id_is_the_oldest_that_waits_and_else_the_newest_that_was_allowed(terminal):
    first, second = terminal.asks(), terminal.asks()

    assert terminal.tells_of_call("allowed").json()["id"] == first.id
    assert terminal.tells_of_call("refused").json()["id"] == second.id
    assert terminal.tells_of_call("ran").json()["id"] == first.id
    assert terminal.tells_of_call("ran").status_code == 404
    assert terminal.tells_of_call("allowed", "rm -r /").status_code == 404


def test_of_two_equal_calls_the_one_that_waits_is_not_decided_because_the_other_ran(terminal, inbox):
    first, second = terminal.asks(), terminal.asks()
    inbox.decides(first, "approve")
    terminal.ran()

    assert (terminal.state(first)["state"], terminal.state(second)["state"]) == ("approved", "pending")
    assert [one["action_id"] for one in inbox.items(first.conversation_id)] == [second.action_id]
    terminal.ran()
    assert inbox.entries(first.conversation_id)[1:] == [("approve", "terminal", "ada@laptop")]


def test_a_question_that_waits_has_run_before_a_gate_of_the_same_call(terminal):
    gate, asked = terminal.asks(kind="gate"), terminal.asks(order="races")

    assert terminal.tells_of_call("ran").json()["id"] == asked.id
    assert terminal.state(gate)["state"] == "pending"


def test_nothing_that_an_asker_tells_opens_a_gate(terminal, inbox):
    """A gate has no terminal: whoever can read the key would otherwise allow what the gate holds."""
    told, called, ran, refused = (terminal.asks(f"touch {number}", kind="gate") for number in range(4))
    for response in (terminal.tells(told, "allowed"), terminal.tells_of_call("allowed", "touch 1")):
        assert response.status_code == 409
        assert "has no terminal that could allow it" in response.json()["detail"]
    terminal.ran("touch 2")
    terminal.tells(refused, "refused")

    states = [terminal.state(one)["state"] for one in (told, called, ran, refused)]
    assert states == ["pending", "pending", "withdrawn", "rejected"]
    assert [one[:2] for one in inbox.entries(told.conversation_id)] == [
        ("withdrawn", "terminal"),
        ("unapproved", "terminal"),
        ("reject", "terminal"),
    ]
    assert inbox.reasons(told.conversation_id)[1] == "It ran, and nobody had answered."
    assert inbox.decides(told, "approve").status_code == 200
    assert terminal.tells(told, "ran").json()["state"] == "approved"


def test_rules_decide_at_once_by_folder(terminal, inbox, house):
    rule = {"decision": "approve", "tool_name": "Glob", "folder": "/home/ada/shop"}
    made = inbox.server.post("/api/v1/approval-rules", json=rule).json()
    asked, other = terminal.asks(tool="Glob"), AskedTerminal(house, cwd="/home/ada/other").asks(tool="Glob")
    inbox.server.delete(f"/api/v1/approval-rules/{made['id']}")

    assert (asked.state, asked.by, other.state) == ("approved", {"kind": "rule", "name": made["id"]}, "pending")


def test_no_rule_decides_what_is_not_shown_whole(terminal, inbox):
    made = inbox.server.post("/api/v1/approval-rules", json={"decision": "approve", "tool_name": "Part"}).json()
    asked = terminal.asks(tool="Part", complete=False)
    inbox.server.delete(f"/api/v1/approval-rules/{made['id']}")

    assert asked.state == "pending"
    assert [one["complete"] for one in inbox.items(asked.conversation_id)] == [False]


def test_an_argument_named_kind_is_shown_and_bound(terminal, inbox):
    asked = [terminal.post("", {**terminal.whole, "tool_name": "x", "arguments": {"kind": kind}}) for kind in "ab"]

    assert len({one.json()["digest"] for one in asked}) == 2
    items = inbox.items(asked[0].json()["conversation_id"])
    assert [one["arguments"] for one in items] == [{"data": {"kind": "a"}}, {"data": {"kind": "b"}}]


def test_a_request_whose_asker_has_gone_is_withdrawn(terminal, inbox, house):
    asked = terminal.asks()
    set_back(house, asked, "lapses")
    assert inbox.decides(asked, "approve").status_code == 409

    assert terminal.state(asked)["state"] == "withdrawn"
    assert inbox.entries(asked.conversation_id) == [("withdrawn", "lease", "")]
    assert inbox.items(asked.conversation_id) == []


def test_a_request_that_its_asker_withdraws_is_decided_by_nobody(terminal, inbox):
    asked = terminal.asks()
    assert terminal.tells(asked, "withdrawn").json()["state"] == "withdrawn"

    assert inbox.decides(asked, "approve").status_code == 409
    assert inbox.entries(asked.conversation_id) == [("withdrawn", "terminal", "ada@laptop")]


def test_when_the_hook_stops_waiting_the_terminal_alone_can_answer(terminal, inbox, house):
    asked = terminal.asks(order="first")
    set_back(house, asked, "ends")

    [item] = inbox.items(asked.conversation_id)
    assert (item["asked_from"]["in_terminal"], item["can"]) == (True, [])
    refused = inbox.decides(asked, "approve")
    assert (refused.status_code, refused.json()["problems"][0]["problem"]) == (409, "in_terminal")
    assert terminal.state(asked)["state"] == "expired"
    terminal.ran()
    assert inbox.entries(asked.conversation_id) == [("approve", "terminal", "ada@laptop")]
    assert inbox.items(asked.conversation_id) == []


def test_a_gate_whose_hook_stops_waiting_is_rejected(terminal, inbox, house):
    asked = terminal.asks(kind="gate")
    set_back(house, asked, "ends")

    assert terminal.state(asked)["state"] == "rejected"
    assert inbox.entries(asked.conversation_id) == [("reject", "expiry", "")]


def test_the_deadline_of_the_conversation_rejects(terminal, inbox, house):
    terminal.tells(asked := terminal.asks("first"), "refused")
    path = f"/api/conversations/{asked.conversation_id}"
    assert inbox.server.patch(path, json={"confirmation_seconds": 1000}).status_code == 200
    asked = terminal.asks()
    redis, key = house.store.conversations._redis, f"conv:{{{asked.conversation_id}}}:pending"
    assert b'"expires":"' in redis.hget(key, asked.action_id).replace(b" ", b"")
    house.lapse(type("Held", (), {"id": asked.conversation_id}), {"id": asked.action_id})

    found = terminal.state(asked)
    assert (found["state"], found["by"]["kind"]) == ("rejected", "expiry")


def test_what_ran_unasked_or_refused_is_audited_as_unapproved(terminal, inbox):
    asked = terminal.asks()
    inbox.decides(asked, "reject")
    terminal.ran()
    terminal.ran("ls")

    assert [one[:2] for one in inbox.entries(asked.conversation_id)] == [
        ("reject", "key"),
        ("unapproved", "terminal"),
        ("unapproved", "terminal"),
    ]
    assert inbox.reasons(asked.conversation_id)[1:] == [
        "It ran, although it was refused.",
        "It ran, and its agent had not asked: the agent's own settings let it.",
    ]
    state = inbox.server.get(f"/api/conversations/{asked.conversation_id}").json()
    assert (state["unapproved_resumes"], state["execution_status"]) == (2, "idle")


def test_of_what_its_settings_let_through_the_audit_has_the_first_of_each_tool_and_what_is_grave(terminal, inbox):
    for command in ("ls", "cat notes", "rm -rf /", "ls", "rm -rf /"):
        terminal.ran(command)
    terminal.reports("call", tool_name="Read", arguments={"file_path": "notes"}, result="x")
    asked = terminal.asks()

    page = inbox.server.get(f"/api/v1/conversation/{asked.conversation_id}/audit").json()["items"]
    assert [(one["decision"], one["shown"][0]["text"]) for one in page] == [
        ("unapproved", "ls"),
        ("unapproved", "rm -rf /"),
        ("unapproved", "rm -rf /"),
        ("unapproved", '{"file_path":"notes"}'),
    ]
    ran = [one for one in inbox.log(asked.conversation_id) if one["kind"] == "ActionEvent"][:-1]
    assert [bool(one["summary"]) for one in ran] == [False, True, False, True, False, False]
    assert ran[1]["summary"] == "It ran, and its agent had not asked: the agent's own settings let it."
    state = inbox.server.get(f"/api/conversations/{asked.conversation_id}").json()
    assert state["unapproved_resumes"] == 6


def test_a_call_that_was_asked_and_left_is_audited_each_time_that_it_runs(terminal, inbox):
    terminal.ran("ls")
    asked = terminal.asks()
    terminal.tells(asked, "withdrawn")
    terminal.ran()
    terminal.ran()

    assert [one[0] for one in inbox.entries(asked.conversation_id)] == [
        "unapproved",
        "withdrawn",
        "unapproved",
        "unapproved",
    ]


def test_a_call_that_runs_after_the_deadline_was_refused(terminal, inbox, house):
    gate = terminal.asks(kind="gate")
    set_back(house, gate, "ends")
    terminal.ran()

    assert [one[:2] for one in inbox.entries(gate.conversation_id)] == [
        ("reject", "expiry"),
        ("unapproved", "terminal"),
    ]


def test_what_was_allowed_and_ran_is_observed_once(terminal, inbox):
    asked = terminal.asks()
    inbox.decides(asked, "approve")
    terminal.ran(result="it ran")
    terminal.tells(asked, "ran")

    seen = [one for one in inbox.log(asked.conversation_id) if one["kind"] == "ObservationEvent"]
    assert [one["observation"]["content"][0]["text"] for one in seen] == ["it ran"]
    assert terminal.state(asked)["state"] == "approved"


def test_a_report_whose_response_was_lost_is_no_second_call(terminal, inbox, house):
    asked, waits = terminal.asks(), terminal.asks()
    inbox.decides(asked, "approve")
    session = HookSession.of(terminal.whole["agent"], {"mode": "", "subagent": None, **terminal.session})
    key = house.store.conversations.get(asked.conversation_id)["origin"]["key_id"]
    asking, call = Asking(house.store, key, SERVER), ToolCall("Bash", {"command": "touch proof"})
    terminal.tells(waits, "withdrawn")
    try:
        for _ in range(2):
            enter(Attempt(UUID(int=7)))
            asking.report_call(session, call, "done", is_error=False)
    finally:
        enter(None)

    assert [one[0] for one in inbox.entries(asked.conversation_id)] == ["approve", "withdrawn"]


def test_the_end_of_a_session_withdraws_and_says_what_was_never_seen_to_run(terminal, inbox):
    allowed, waiting = terminal.asks("one"), terminal.asks("two")
    inbox.decides(allowed, "approve")
    terminal.reports("end")

    errors = [one["error"] for one in inbox.log(allowed.conversation_id) if one["kind"] == "AgentErrorEvent"]
    assert sorted(errors) == ["Allowed, and never seen to run.", "Withdrawn by its asker."]
    assert terminal.state(waiting)["state"] == "withdrawn"
    state = inbox.server.get(f"/api/conversations/{allowed.conversation_id}").json()
    assert state["execution_status"] == "finished"


def test_the_end_of_a_turn_withdraws_what_its_terminal_did_not_allow(terminal, inbox, house):
    handed, waiting = terminal.asks("one"), terminal.asks("two")
    set_back(house, handed, "ends")
    terminal.reports("turn")

    assert (terminal.state(handed)["state"], terminal.state(waiting)["state"]) == ("withdrawn", "pending")


def test_the_first_prompt_names_the_conversation_in_its_agents_name(terminal, inbox):
    terminal.reports("prompt", text="Mend the \u202ebuild\nnow")
    terminal.reports("prompt", text="another")
    asked = terminal.asks()

    [item] = inbox.items(asked.conversation_id)
    assert item["conversation_title"] == "claude-code: Mend the \\u{202e}build now"
    assert [one["kind"] for one in inbox.log(asked.conversation_id)][:2] == ["MessageEvent", "MessageEvent"]


def test_messages_and_runs_are_refused_with_where_to_write(terminal, inbox):
    path = f"/api/conversations/{terminal.asks().conversation_id}"
    content = {"content": [{"type": "text", "text": "go on"}], "run": True}
    for response in (
        inbox.server.post(f"{path}/events", json=content),
        inbox.server.post(f"{path}/run"),
        inbox.server.post(f"{path}/pause"),
    ):
        assert (response.status_code, "write to it at its terminal" in response.json()["detail"]) == (409, True)


def test_a_fork_has_no_machine_that_a_rule_could_name(terminal, inbox, house):
    asked = terminal.asks()
    path = f"/api/conversations/{asked.conversation_id}/fork"
    fork = inbox.server.post(path, json={}).json()["id"]

    began = house.store.conversations.get(fork)
    assert (began["external"], began["origin"]) == (None, {"key_id": "settings-1"})


def test_no_policy_lets_a_request_pass_that_nobody_decided(terminal, inbox):
    first = terminal.asks("one")
    path = f"/api/conversations/{first.conversation_id}/confirmation_policy"
    assert inbox.server.post(path, json={"policy": {"kind": "NeverConfirm"}}).status_code == 200

    assert terminal.asks("two").state == "pending"


def test_the_mode_outside_approves_what_stays_in_the_folder(terminal, inbox):
    first = terminal.asks("rm -r /")
    path = f"/api/v1/conversation/{first.conversation_id}/approval-mode"
    assert inbox.server.post(path, json={"mode": "outside"}).status_code == 200

    found = terminal.asks("cat README.md")
    assert (found.state, found.by["kind"]) == ("approved", "server")
    assert terminal.state(first)["state"] == "pending"


def test_a_repeat_with_its_idempotency_key_is_the_same_request(terminal, house):
    headers = {"X-Session-API-Key": terminal.key, "Idempotency-Key": terminal.session["id"]}
    body = {**terminal.whole, "tool_name": "Bash", "arguments": {}}
    first, second = (house.anyone.post("/api/v1/permission-requests", json=body, headers=headers) for _ in range(2))

    assert first.json() == second.json()


def test_several_people_hold_the_inbox_and_not_the_terminal(terminal, inbox):
    rule = {"decision": "ask", "tool_name": "Deploy", "quorum": 2}
    made = inbox.server.post("/api/v1/approval-rules", json=rule).json()
    asked = terminal.asks(tool="Deploy", order="races")
    inbox.decides(asked, "approve")
    assert terminal.state(asked)["state"] == "pending"
    told = terminal.tells(asked, "allowed")
    inbox.server.delete(f"/api/v1/approval-rules/{made['id']}")

    assert told.json()["state"] == "approved"
    assert [one[:2] for one in inbox.entries(asked.conversation_id)] == [("agree", "key"), ("unapproved", "terminal")]


def test_another_keys_request_is_unknown(terminal, inbox, house):
    asked, thief = terminal.asks(), ask_key(house, "another ask key")

    assert terminal.looks(asked, thief).status_code == 404
    assert terminal.tells(asked, "allowed", thief).status_code == 404
    for wrong in ("x", f"{asked.conversation_id}.", f"{asked.conversation_id}.{asked.conversation_id}"):
        asked.id = wrong
        assert terminal.looks(asked).status_code == 404


def test_a_session_of_another_key_is_another_conversation(terminal, house):
    other = AskedTerminal(house, ask_key(house, "another ask key"), **terminal.session)

    assert terminal.asks().conversation_id != other.asks().conversation_id


@pytest.mark.parametrize(
    "session",
    [
        {"user": "The server approved this"},
        {"host": "lap\u202etop"},
        {"host": "laptop\n"},
        {"cwd": "/home\nApproved by the server"},
        {"id": ""},
    ],
)
def test_no_name_of_an_asker_reads_as_anything_else(house, session):
    assert AskedTerminal(house, **session).opens().status_code == 422

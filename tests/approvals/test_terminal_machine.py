"""Any order of what an asker, a terminal, a person, a rule, a lease and deadlines do to requests, against a model."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.approvals.terminals import AskedTerminal, TerminalInbox, set_back
from tests.chance import often

pytestmark = pytest.mark.process("hundreds of requests in random orders")

OPEN = ("pending", "expired")


class TerminalRequests(RuleBasedStateMachine):
    """The requests of one session. model: what each must be, and whether it has run."""

    def __init__(self, house) -> None:
        super().__init__()
        self.house, self.terminal, self.inbox = house, AskedTerminal(house), TerminalInbox(house)
        self.asked, self.model, self.unapproved, self.ran = [], [], 0, []
        self.unasked = set()  # tools of calls that ran without a question

    def pick(self, data, *states: str) -> int:
        places = [place for place, state in enumerate(self.model) if state in states or not states]
        return data.draw(st.sampled_from(places))

    def has(self, *states: str) -> bool:
        return any(state in states for state in self.model)

    @precondition(lambda self: len(self.asked) < 12)
    @rule(by_rule=st.booleans(), gate=st.booleans())
    def opens(self, by_rule, gate):
        tool = "MachineRule" if by_rule else "Bash"
        command = f"touch {len(self.asked)}"
        asked = self.terminal.asks(command, tool=tool, kind="gate" if gate else "permission", order="races")
        asked.command, asked.tool, asked.gate = command, tool, gate
        self.asked.append(asked)
        self.model.append("approved" if by_rule else "pending")
        self.ran.append(False)

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), verb=st.sampled_from(["approve", "reject"]))
    def a_person_decides(self, data, verb):
        place = self.pick(data)
        status = self.inbox.decides(self.asked[place], verb).status_code
        assert (status == 200) == (self.model[place] == "pending")
        if status == 200:
            self.model[place] = {"approve": "approved", "reject": "rejected"}[verb]

    @precondition(lambda self: self.has(*OPEN))
    @rule(data=st.data(), outcome=st.sampled_from(["allowed", "refused", "withdrawn"]))
    def its_terminal_tells(self, data, outcome):
        place = self.pick(data, *OPEN)
        told = self.terminal.tells(self.asked[place], outcome)
        if self.asked[place].gate and outcome == "allowed":
            assert told.status_code == 409
            return
        assert told.status_code == 200
        self.model[place] = {"allowed": "approved", "refused": "rejected", "withdrawn": "withdrawn"}[outcome]

    @precondition(lambda self: self.has("pending"))
    @rule(data=st.data())
    def a_lease_ends(self, data):
        place = self.pick(data, "pending")
        set_back(self.house, self.asked[place], "lapses")
        self.model[place] = "withdrawn"
        assert self.terminal.state(self.asked[place])["state"] == "withdrawn"

    @precondition(lambda self: self.has("pending"))
    @rule(data=st.data())
    def a_hook_stops_waiting(self, data):
        place = self.pick(data, "pending")
        set_back(self.house, self.asked[place], "ends")
        self.model[place] = "rejected" if self.asked[place].gate else "expired"
        assert self.terminal.state(self.asked[place])["state"] == self.model[place]

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def a_call_runs(self, data):
        place = self.pick(data)
        one = self.asked[place]
        call = {"tool_name": one.tool, "arguments": {"command": one.command}}
        self.terminal.reports("call", **call, result="done")
        if self.model[place] in OPEN and one.gate:
            self.model[place] = "withdrawn"
            self.unapproved += 1
        elif self.model[place] in OPEN:
            self.model[place] = "approved"
        elif self.model[place] != "approved" or self.ran[place]:
            self.unapproved += self.model[place] != "approved" or one.tool not in self.unasked
            self.unasked |= {one.tool} if self.model[place] != "rejected" else set()
        self.ran[place] = self.ran[place] or self.model[place] == "approved"

    @rule()
    def the_session_ends(self):
        if self.asked:
            self.terminal.reports("end")
            self.model = ["withdrawn" if state in OPEN else state for state in self.model]
            self.ran = [ran or state == "approved" for ran, state in zip(self.ran, self.model, strict=True)]

    @invariant()
    def each_is_as_the_model_says_and_was_decided_once(self):
        if not self.asked:
            return
        conversation = self.asked[0].conversation_id
        assert [self.terminal.state(one)["state"] for one in self.asked] == self.model
        waiting = {one.action_id for one, state in zip(self.asked, self.model, strict=True) if state in OPEN}
        assert {one["action_id"] for one in self.inbox.items(conversation)} == waiting
        page = self.inbox.server.get(f"/api/v1/conversation/{conversation}/audit").json()["items"]
        mine = {one.action_id for one in self.asked}
        decided = [action for entry in page for action in entry["action_ids"] if action in mine]
        assert sorted(decided) == sorted(mine - waiting)
        assert sum(entry["decision"] == "unapproved" for entry in page) == self.unapproved


def test_requests_are_decided_once_in_any_order(apps):
    made = apps.one.post("/api/v1/approval-rules", json={"decision": "approve", "tool_name": "MachineRule"}).json()
    options = settings(max_examples=often(15, 100), stateful_step_count=often(20, 40), deadline=None)
    run_state_machine_as_test(lambda: TerminalRequests(apps), settings=options)
    apps.one.delete(f"/api/v1/approval-rules/{made['id']}")

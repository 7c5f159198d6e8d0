"""Joins in any order by keys with each scope: no key acts where it may not, and each act has one entry in the audit.

Races have the same rule: what comes first decides, and nothing of another key is reached.
"""

from contextlib import ExitStack, suppress
from uuid import uuid4

from hypothesis import HealthCheck, Phase, settings, stateful
from hypothesis import strategies as st

from core.access import Joiner
from store.access.access_keys import KeyNotFound
from store.errors import ConversationNotFound
from tests.agents.test_joins import AGENT, ALL, NONE, JoinsWorld, keyed  # noqa: F401 a fixture
from tests.chance import often

SCOPES = [("read",), ("write",), ("approve",), ("write", "approve"), ("admin",)]
KEYS = st.integers(0, 2 * len(SCOPES) - 1)
HOLDS = {"AlwaysConfirm": 2, "ConfirmRisky": 1, "NeverConfirm": 0}


class JoinsMachine(stateful.RuleBasedStateMachine):
    """The model knows the scopes of each key, and the owner and the policies of each sandbox."""

    app = None

    def __init__(self):
        super().__init__()
        self.running = ExitStack()
        self.world = JoinsWorld(self.app, self.running)
        self.keys = [(*self.world.key(*scopes), {*scopes}) for scopes in SCOPES * 2]
        self.revoked = set()
        self.boxes = [self.world.sandbox(made, policy) for made, _, _ in self.keys[1::3] for policy in (ALL, NONE)]
        owners = [made for made, _, _ in self.keys[1::3] for _ in range(2)]
        self.owner = {box: made.id for (box, _), made in zip(self.boxes, owners, strict=True)}
        self.home = {conversation: box for box, conversation in self.boxes}
        self.expected = {box: [] for box, _ in self.boxes}
        self.waiting = []

    def teardown(self):
        """The audit has an entry of each act, and of nothing else."""
        try:
            self.drive()
            for box, acts in self.expected.items():
                assert sorted(self.world.joins(box)) == sorted(acts)
        finally:
            self.running.close()
            for number in range(len(self.keys)):  # there may be 1,000 keys at once
                self.revoke(number)

    def may(self, number, box, policy=None, *, scope="write"):
        made, _, scopes = self.keys[number]
        if made.id in self.revoked or not ("admin" in scopes or scope in scopes):
            return False
        if scopes & {"approve", "admin"}:
            return True
        return self.owner[box] == made.id and (policy is None or self.loosest(box, policy))

    def loosest(self, box, policy):
        there = [one for one, home in self.home.items() if home == box]
        states = [one for one in self.world.store.conversations.get_many(there) if one]
        return all(HOLDS[one["confirmation_policy"]["kind"]] <= HOLDS[policy["kind"]] for one in states)

    def act(self, number, box, response, *, allowed, conversation=None):
        """Check one response, and note the entry that the audit must have of it."""
        if not allowed:
            assert response.status_code in (401, 403), response.json
        elif response.status_code < 300:
            self.expected[box].append((self.keys[number][0].name, conversation or response.json["id"]))
        return allowed and response.status_code < 300

    @stateful.rule(number=KEYS, place=st.integers(0, 99), by_parent=st.booleans())
    def start(self, number, place, by_parent):
        box, conversation = self.boxes[place % len(self.boxes)]
        named = {"parent_conversation_id": conversation} if by_parent else {"sandbox_id": box}
        response = self.world.start(self.keys[number][1], **named)
        allowed = self.may(number, box, ALL)
        assert response.status_code in ((200,) if allowed else (401, 403)), response.json
        if allowed:
            self.waiting.append((number, box, ALL, response.json["id"].replace("-", "")))

    @stateful.rule(number=KEYS, place=st.integers(0, 99), policy=st.sampled_from([ALL, NONE]))
    def store_a_start_of_a_clients_agent(self, number, place, policy):
        """As the request does, but without its early check: the driver's check alone must hold."""
        box, conversation = self.boxes[place % len(self.boxes)]
        made, _, scopes = self.keys[number]
        if "write" not in scopes and "admin" not in scopes:
            return  # the route refuses it
        joiner = Joiner(made.id, made.name, "", bool(scopes & {"approve", "admin"}))
        request = {"kept": {"confirmation_policy": policy}, "parent_conversation_id": conversation}
        body = {"body": {**AGENT, "confirmation_policy": policy}, "headers": {}}
        start, _ = self.world.store.start_tasks.create_once(
            str(uuid4()), request, body, echo={}, owner=made.id, joiner=joiner
        )
        self.waiting.append((number, box, policy, start.id))

    @stateful.rule()
    def drive(self):
        """Drive each start that waits; what its key may is known only now."""
        waiting = {start_id: known for *known, start_id in self.waiting}
        self.waiting = []
        while claimed := self.world.store.start_tasks.claim():
            number, box, policy = waiting[claimed[0].id]
            may = self.may(number, box, policy)
            self.world.driver().drive(*claimed)
            [start] = self.world.store.start_tasks.get_many([claimed[0].id])
            assert start.status == ("READY" if may else "ERROR"), start
            if may:
                assert start.sandbox_id == box
                self.home[start.conversation_id] = box
                self.expected[box].append((self.keys[number][0].name, start.conversation_id))

    @stateful.rule(number=KEYS, place=st.integers(0, 99))
    def fork(self, number, place):
        box, conversation = self.boxes[place % len(self.boxes)]
        policy = self.world.store.conversations.get(conversation)["confirmation_policy"]
        allowed = self.may(number, box, policy)
        response = self.world.http.post(f"/api/conversations/{conversation}/fork", headers=self.keys[number][1])
        if self.act(number, box, response, allowed=allowed, conversation=conversation):
            self.home[response.json["id"]] = box
        elif allowed:
            self.expected[box].append((self.keys[number][0].name, conversation))

    @stateful.rule(number=KEYS, place=st.integers(0, 99))
    def load_a_plugin(self, number, place):
        box, conversation = self.boxes[place % len(self.boxes)]
        path, body = f"/api/conversations/{conversation}/load_plugin", {"plugin_ref": "p@m"}
        response = self.world.http.post(path, json=body, headers=self.keys[number][1])
        allowed = self.may(number, box)
        if not self.act(number, box, response, allowed=allowed, conversation=conversation) and allowed:
            self.expected[box].append((self.keys[number][0].name, conversation))

    @stateful.rule(number=KEYS, place=st.integers(0, 99))
    def adopt(self, number, place):
        box, _ = self.boxes[place % len(self.boxes)]
        stray = str(uuid4())
        path = f"/api/v1/sandboxes/{box}/conversations/{stray}/adopt"
        response = self.world.http.post(path, headers=self.keys[number][1])
        if self.may(number, box):
            assert response.status_code != 403
            self.expected[box].append((self.keys[number][0].name, stray))
            with suppress(ConversationNotFound):
                self.world.store.conversations.get(stray)
                self.home[stray] = box
        else:
            assert response.status_code in (401, 403)

    @stateful.rule(number=KEYS, place=st.integers(0, 99), operation=st.sampled_from(["resume", "logs"]))
    def use_a_sandbox_as_ones_own(self, number, place, operation):
        """Another key's stays closed, even to one that may join it."""
        box, _ = self.boxes[place % len(self.boxes)]
        made, headers, scopes = self.keys[number]
        self.world.store.sandboxes.log = lambda _id, **_: ""  # no supervisor reads one here
        method = {"resume": "POST", "logs": "GET"}[operation]
        response = self.world.http.open(f"/api/v1/sandboxes/{box}/{operation}", method=method, headers=headers)
        needed = {"write"} if operation == "resume" else {"write", "approve"}
        may = "admin" in scopes or (self.owner[box] == made.id and needed <= scopes)
        allowed = may and made.id not in self.revoked
        assert response.status_code in ((200,) if allowed else (401, 403)), response.json

    @stateful.rule(number=KEYS)
    def call_a_workspace(self, number):
        """A call that names no conversation reaches a sandbox of the key alone."""
        made, headers, _ = self.keys[number]
        mine = {box for box, owner in self.owner.items() if owner == made.id}
        before = len(self.world.agent.requests)
        if mine:
            body = {"command": "ls", "cwd": "/"}
            self.world.http.post("/api/bash/start_bash_command", json=body, headers=headers)
        running, paused = self.world.store.sandboxes.owned_by(made.id)
        assert {*running, *paused} <= mine
        assert mine or len(self.world.agent.requests) == before

    @stateful.rule(place=st.integers(0, 99), policy=st.sampled_from([ALL, NONE]))
    def set_a_policy(self, place, policy):
        _, conversation = self.boxes[place % len(self.boxes)]
        self.world.store.approvals.confirmations.set_policy(conversation, policy)

    @stateful.rule(number=KEYS)
    def revoke(self, number):
        made, _, _ = self.keys[number]
        with suppress(KeyNotFound):
            self.world.store.access.keys.revoke(made.id)
        self.revoked.add(made.id)


def test_no_key_acts_where_it_may_not_and_each_act_is_audited(keyed):  # noqa: F811
    JoinsMachine.app = keyed
    stateful.run_state_machine_as_test(
        JoinsMachine,
        settings=settings(
            max_examples=often(3, 100),
            stateful_step_count=often(12, 30),
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
        ),
    )

"""The state machine of sandboxes: requests and reports by status, and indexes that agree."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, settings, stateful
from hypothesis import strategies as st

from schemas.sandboxes import STATUSES
from store.errors import SandboxNotFound, SandboxRefuses, TooManySandboxes
from store.sandboxes.sandboxes import SandboxId
from tests.store.conftest import forget, fresh_sandboxes, in_status

#: the status after a client's request, by the status before; None: refused
MOVES = {
    "pause": {"STARTING": None, "RUNNING": "RUNNING", "PAUSED": "PAUSED", "ERROR": None, "MISSING": None},
    "resume": {
        "STARTING": "STARTING",
        "RUNNING": "RUNNING",
        "PAUSED": "STARTING",
        "ERROR": "STARTING",
        "MISSING": "STARTING",
    },
    "delete": dict.fromkeys(STATUSES, "deleted"),
}


@pytest.mark.parametrize("verb", MOVES)
def test_a_request_is_accepted_or_refused_by_status(redis_url, verb):
    sandboxes = fresh_sandboxes(redis_url, most=99)
    for status in STATUSES:
        sandbox = in_status(sandboxes, status)
        following = MOVES[verb][status]
        if following is None:
            with pytest.raises(SandboxRefuses, match=status):
                sandboxes.ask(sandbox.id, verb)
            assert sandboxes.get(sandbox.id) == sandbox
            continue
        sandboxes.ask(sandbox.id, verb)
        if verb == "delete" and status == "MISSING":  # no host is there to end the sandbox
            assert sandboxes.get_many([sandbox.id]) == [None]
            continue
        asked = sandboxes.get(sandbox.id)
        sandboxes.ask(sandbox.id, verb)  # the repeated request does not change the wanted status
        now = sandboxes.get(sandbox.id)
        assert now.wanted == asked.wanted == {"pause": "paused", "resume": "running", "delete": "deleted"}[verb]
        if verb != "delete":
            assert now.status == following


#: the statuses that a supervisor may report after a status
SEEN = {
    "STARTING": {"RUNNING", "ERROR", "MISSING"},
    "RUNNING": {"PAUSED", "STARTING", "ERROR", "MISSING"},
    "PAUSED": {"STARTING", "ERROR", "MISSING"},
    "MISSING": {"RUNNING", "PAUSED", "STARTING", "ERROR"},
    "ERROR": set(),
}


def seen_as(sandbox, seen: str) -> str:
    """The status that a report leads to: a paused sandbox that should run is on its way to RUNNING."""
    overtaken = seen == "PAUSED" and sandbox.wanted == "running" and sandbox.status != "STARTING"
    return "STARTING" if overtaken else seen


def test_a_report_is_stored_or_ignored_by_status(redis_url):
    sandboxes = fresh_sandboxes(redis_url, most=99)
    for status, seen in itertools.product(STATUSES, STATUSES):
        sandbox = in_status(sandboxes, status)

        noted = sandboxes.report(sandbox.id, "h", "supervisor", seen)

        reported = seen_as(sandbox, seen)
        assert noted == (reported == status or reported in SEEN[status]), (status, seen)
        assert sandboxes.get(sandbox.id).status == (reported if reported in SEEN[status] else status), (status, seen)


class MovesMachine(stateful.RuleBasedStateMachine):
    """Requests, reports and heartbeats in any order: listings and indexes agree with the sandboxes."""

    store = None
    ids = stateful.Bundle("ids")

    def __init__(self):
        super().__init__()
        redis = self.store._redis
        forget(redis, "{sandboxes}*")
        self.store.beat("h", "supervisor")
        self.known = set()
        self.hooks = {}  # hook key of the last start, by id
        self.opens = set()  # the ids whose hook key opens something

    @stateful.rule(target=ids)
    def start(self):
        try:
            identity = self.store.start("spec").id
        except TooManySandboxes:
            return SandboxId("refused")
        self.known.add(identity)
        return identity

    @stateful.rule(identity=ids, verb=st.sampled_from(list(MOVES)))
    def ask(self, identity, verb):
        present = self.store.get_many([identity])[0]
        try:
            self.store.ask(identity, verb)
        except SandboxNotFound:
            assert present is None
        except (SandboxRefuses, TooManySandboxes):
            assert self.store.get(identity) == present

    @stateful.rule()
    def claim(self):
        self.store.claim("h")

    @stateful.rule(identity=ids, seen=st.sampled_from([*STATUSES, "GONE"]))
    def report(self, identity, seen):
        present = self.store.get_many([identity])[0]
        noted = self.store.report(identity, "h", "supervisor", seen)
        if present is None or present.host != "h":
            assert not noted
        elif seen == "GONE":
            assert self.store.get_many([identity]) == [None]
        else:
            reported = seen_as(present, seen)
            assert noted == (reported == present.status or reported in SEEN[present.status])

    @stateful.rule(identity=ids)
    def begin(self, identity):
        present = self.store.get_many([identity])[0]
        hook_key = self.store.begin(identity, "h", "supervisor", "scripted")
        begun = hook_key is not None
        is_to_run = present is not None and present.wanted == "running" and present.status != "ERROR"
        assert begun == (is_to_run and present.host == "h")
        if begun:
            now = self.store.get(identity)
            assert (now.start, now.handle, now.files_key) == (present.start + 1, None, present.files_key)
            assert now.session_api_key not in (present.session_api_key, hook_key, "")
            if identity in self.hooks:
                assert self.store.of_hook_key(self.hooks[identity]) is None
                assert self.store.of_session_key(present.session_api_key) is None
            self.hooks[identity] = hook_key
            self.opens.add(identity)

    @stateful.rule(identity=ids, seen=st.sampled_from(["running", "paused"]))
    def stop(self, identity, seen):
        present = self.store.get_many([identity])[0]
        if present is None or present.host != "h":
            return
        assert self.store.stopped(replace(present, wanted=seen), "supervisor", "it rests")
        now = self.store.get(identity)
        expected = ("STARTING", "running") if (seen, present.wanted) == ("paused", "running") else ("PAUSED", "paused")
        stays = present.status == "ERROR" or present.wanted == "deleted"
        assert (now.status, now.wanted) == ((present.status, present.wanted) if stays else expected)
        assert now.handle is None
        self.opens.discard(identity)

    @stateful.invariant()
    def listings_agree(self):
        present = [one for one in self.store.get_many(sorted(self.known)) if one is not None]
        living = [one for one in present if not one.leaving]
        ids = {one.id for one in living}
        assert {one.id for one in self.store.search(status=None, spec_id=None, limit=99, start=None)[0]} == ids
        for status in STATUSES:
            found = self.store.search(status=status, spec_id=None, limit=99, start=None)[0]
            assert {one.id for one in found} == {one.id for one in living if one.status == status}
            assert self.store.search(status=status, spec_id="spec", limit=99, start=None)[0] == found
        assert {one.id for one in self.store.of_host("h")} == {one.id for one in present if one.host == "h"}
        for one in present:
            if one.status == "ERROR" or one.wanted == "deleted":
                self.opens.discard(one.id)
            found = self.store.of_hook_key(self.hooks.get(one.id, ""))
            assert found == (one.id if one.id in self.opens else None)
            assert self.store.of_session_key(one.session_api_key) == found
            assert self.store.of_hook_key(one.session_api_key) is None
        assert self.store._redis.hlen("{sandboxes}:keys") == 2 * len(self.opens & ids)


def test_indexes_agree_with_the_sandboxes_in_any_order_of_requests_and_reports(redis_url, examples):
    MovesMachine.store = fresh_sandboxes(redis_url, host_seconds=3600)
    stateful.run_state_machine_as_test(
        MovesMachine,
        settings=settings(
            max_examples=examples(10),
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )

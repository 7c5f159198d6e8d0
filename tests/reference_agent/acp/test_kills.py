"""Requests for permission under kills of the agent's program and of the agent server, in an order that chance decides.

Promise: nothing runs that was not approved, nothing runs twice, and no request is left open.
"""

import random
from contextlib import suppress

import httpx
import psutil
import pytest

from tests.chance import often
from tests.reference_agent.acp.test_conversations import Place
from tests.servers import wait_until

pytestmark = pytest.mark.faults("kills an agent and its program again and again")

#: what is done while a request waits
DEEDS = (
    "approve",
    "reject",
    "message",
    "interrupt",
    "kill program",
    "kill server",
    "approve and kill",
    "reject and kill",
)

RESTS = ("idle", "finished", "error", "paused")


class Run:
    """One conversation, and what a person has approved in it."""

    def __init__(self, place: Place, effects, seed: int) -> None:
        self.place, self.effects, self.chance = place, effects, random.Random(seed)
        self.conversation = place.agent.begin("AlwaysConfirm")
        self.approved: set[str] = set()
        self.number = 0

    def step(self, deed: str) -> None:
        self.number += 1
        name, agent = f"effect-{self.number}", self.place.agent
        agent.send(self.conversation, f"ask echo {name} >> {self.effects}")
        agent.until(self.conversation, "waiting_for_confirmation")
        match deed.split():
            case ["approve", *kill]:
                self.approved.add(name)
                self.decide(True, bool(kill))
            case ["reject", *kill]:
                self.decide(False, bool(kill))
            case ["message"]:
                agent.send(self.conversation, "say something else")
            case ["interrupt"]:
                agent.post(f"{self.conversation}/interrupt")
            case ["kill", "program"]:
                self.kill_program()
            case ["kill", "server"]:
                agent.restart()
        wait_until(lambda: agent.status(self.conversation) in RESTS, "rest")

    def decide(self, accept: bool, kills: bool) -> None:
        """Decide, and (kills) kill the program or the agent server at about the same time."""
        with suppress(httpx.HTTPError):
            self.place.agent.decide(self.conversation, accept)
        if kills and self.chance.random() < 0.5:
            self.kill_program()
        elif kills:
            self.place.agent.restart()

    def kill_program(self) -> None:
        with suppress(psutil.NoSuchProcess, ValueError):
            self.place.program().kill()


@pytest.mark.parametrize("seed", range(often(2, 40)))
def test_nothing_runs_undecided_or_twice_and_no_request_is_left_open(tmp_path, effects, seed):
    place = Place(tmp_path, SCRIPTED_LOADS="1")
    try:
        run = Run(place, effects, seed)
        deeds = [run.chance.choice(DEEDS) for _ in range(often(8, 25))]
        for deed in deeds:
            run.step(deed)

        done = effects.read_text().split()
        assert set(done) <= run.approved, deeds
        assert len(done) == len(set(done)), deeds
        assert place.open(run.conversation) == [], deeds
        actions = place.agent.events(run.conversation, kind="ActionEvent")
        assert len(actions) == run.number, deeds
        assert not any(one["summary"].startswith(("Not asked", "Carried out")) for one in actions), deeds
    finally:
        place.close()

"""What is shown of a command while it runs: the end of its output, to those who follow it then."""

from contextlib import closing
from uuid import uuid4

import pytest

from reference_agent import shell
from reference_agent.output import CommandOutput
from tests.agents import scripted_agent
from tests.reference_agent.program import reference_agent
from tests.servers import wait_until

SECRET = "a-secret-of-24-characters"


@pytest.mark.process("starts an agent")
def test_what_a_command_prints_is_shown_while_it_runs_and_no_log_keeps_it(tmp_path):
    identity, goes_on = uuid4(), tmp_path / "goes-on"
    wait = f"until [ -e {goes_on} ]; do sleep 0.1; done"
    with scripted_agent() as webhook, reference_agent(tmp_path, OH_WEBHOOKS_0_BASE_URL=webhook.url) as agent:
        conversation = agent.begin(conversation_id=str(identity), secrets={"TOKEN": SECRET})

        def shown():
            posted = [one for [one] in webhook.posted(identity.hex)]
            return [one for one in posted if one["kind"] == "CommandOutputEvent"]

        agent.send(conversation, f"run: echo one $TOKEN; {wait}; echo two")
        wait_until(shown, "the output so far")
        goes_on.touch()
        agent.until(conversation, "finished")

        [action] = agent.events(conversation, kind="ActionEvent")
        first = shown()[0]
        assert (first["text"], first["size"]) == ("one <secret-hidden>\n", len("one <secret-hidden>\n"))
        assert {one["action_id"] for one in shown()} == {action["id"]}
        assert agent.events(conversation, kind="CommandOutputEvent") == []


def test_an_output_is_shown_each_second_while_it_grows_and_every_ten_seconds_while_it_does_not(tmp_path, monkeypatch):
    now, shown = [1000.0], []
    monkeypatch.setattr(shell.time, "monotonic", lambda: now[0])
    with closing(CommandOutput(tmp_path)) as output:
        one = shell._Shown(output, lambda tail, size: shown.append((now[0] - 1000, tail, size)))

        def passes(until, *, grows=False):
            while now[0] - 1000 < until:
                now[0] += 0.25
                if grows:
                    output.add(b".")
                one.pass_time()

        passes(5)
        assert shown == []
        passes(8, grows=True)
        passes(30)

    assert [at for at, *_ in shown] == [5.25, 6.25, 7.25, 8.25, 18.25, 28.25]
    assert shown[-1][1:] == ("." * 12, 12)

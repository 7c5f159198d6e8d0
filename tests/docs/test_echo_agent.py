"""The echo agent and a scripted user on a server of two workers, over sockets only."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from websockets.sync.client import connect

from tests.servers import TIMEOUT, agent_server, running, store_server

pytestmark = pytest.mark.faults("starts a server for each test, and restarts it")


@pytest.fixture
def backend(tmp_path):
    """A folder, and the URL of a Redis that outlives the server."""
    with store_server(tmp_path) as (url, _):
        yield tmp_path, url


@contextmanager
def echo_agent(conversation, base_url):
    command = [sys.executable, "docs/examples/echo_agent.py", conversation, str(base_url).rstrip("/")]
    with running(command, stderr=subprocess.DEVNULL) as process:
        yield process


class EchoUser:
    """A user at a socket, who sends messages, waits for events, and decides over HTTP as a web page does."""

    def __init__(self, client, conversation, socket):
        self.client = client
        self.url = f"/api/conversations/{conversation}"
        self.socket = socket
        self.received = []

    def sends(self, text):
        self.socket.send(json.dumps({"role": "user", "content": text}))

    def waits_for(self, **members):
        """The next event that has all of these members."""
        while True:
            event = json.loads(self.socket.recv(TIMEOUT))
            self.received.append(event)
            if all(event.get(name) == value for name, value in members.items()):
                return event

    def decides(self, accept, reason="Not that."):
        response = self.client.post(
            f"{self.url}/events/respond_to_confirmation", json={"accept": accept, "reason": reason}
        )
        assert response.json() == {"success": True}


@contextmanager
def user_of(client, conversation):
    address = str(client.base_url).replace("http", "ws").rstrip("/")
    with connect(f"{address}/sockets/events/{conversation}?resend_mode=all") as socket:
        yield EchoUser(client, conversation, socket)


def start(client, conversation, policy):
    client.post("/api/conversations", json={"conversation_id": conversation, "confirmation_policy": {"kind": policy}})


def test_the_loop_of_message_pending_reject_message_pending_accept_observation(backend, conversation):
    folder, url = backend
    with agent_server(folder / "log", REDIS_URL=url) as (client, _):
        # Given an agent that asks before it acts
        start(client, conversation, "AlwaysConfirm")
        with echo_agent(conversation, client.base_url), user_of(client, conversation) as user:
            # When the user requests a command and rejects it
            user.sends("run: touch rejected")
            proposed = user.waits_for(kind="ActionEvent")
            assert proposed["action"]["command"] == "touch rejected"
            user.waits_for(key="execution_status", value="waiting_for_confirmation")
            user.decides(False)
            rejection = user.waits_for(kind="UserRejectObservation")
            assert (rejection["action_id"], rejection["rejection_reason"]) == (proposed["id"], "Not that.")

            # And requests another command and accepts it
            user.sends("run: echo first\nrun: echo second")
            user.waits_for(key="execution_status", value="waiting_for_confirmation")
            user.decides(True)
            outputs = [user.waits_for(kind="ObservationEvent")["observation"]["content"][0]["text"] for _ in range(2)]
            assert outputs == ["first\n", "second\n"]
            user.waits_for(key="execution_status", value="finished")
            assert user.waits_for(key="full_state")["value"]["execution_status"] == "finished"

            # And sends a message that is not a command
            user.sends("thank you")
            response = user.waits_for(kind="MessageEvent", source="agent")
            assert response["llm_message"]["content"][0]["text"] == "You said: thank you"
            user.waits_for(key="execution_status", value="finished")

        # Then the log has exactly these events
        kinds = [event["kind"] for event in user.received if event.get("key") != "full_state"]
        assert kinds.count("ActionEvent") == 3
        assert kinds.count("ObservationEvent") == 2
        assert kinds.count("UserRejectObservation") == 1
        assert client.get(f"{user.url}/events/count").json() == len(kinds)
        assert client.get(f"{user.url}/agent_final_response").json() == {"response": "You said: thank you"}


def test_an_agent_without_confirmation_executes_at_once(backend, conversation):
    folder, url = backend
    with agent_server(folder / "log", REDIS_URL=url) as (client, _):
        start(client, conversation, "NeverConfirm")
        with echo_agent(conversation, client.base_url), user_of(client, conversation) as user:
            user.sends("run: echo done; exit 3")

            observation = user.waits_for(kind="ObservationEvent")["observation"]
            assert (observation["content"][0]["text"], observation["exit_code"]) == ("done\n", 3)
            user.waits_for(key="execution_status", value="finished")


def test_the_agent_survives_a_restart_of_the_server_and_its_own_restart(backend, conversation):
    folder, url = backend
    port = {}
    with agent_server(folder / "log", REDIS_URL=url) as (client, _):
        start(client, conversation, "AlwaysConfirm")
        port["PORT"] = str(client.base_url.port)
        agent = subprocess.Popen(
            [sys.executable, "docs/examples/echo_agent.py", conversation, str(client.base_url).rstrip("/")],
            stderr=subprocess.DEVNULL,
        )
        with user_of(client, conversation) as user:
            user.sends("run: echo one")
            user.waits_for(key="execution_status", value="waiting_for_confirmation")
    try:
        # When the server restarts, the agent continues after its last event
        with (
            agent_server(folder / "log", REDIS_URL=url, **port) as (client, _),
            user_of(client, conversation) as user,
        ):
            user.decides(True)
            user.waits_for(key="execution_status", value="finished")

            # And when the agent is killed, its successor knows which actions were executed
            os.kill(agent.pid, signal.SIGKILL)
            agent.wait()
            with echo_agent(conversation, client.base_url):
                user.sends("run: echo two")
                user.waits_for(key="execution_status", value="waiting_for_confirmation")
                user.decides(True)
                user.waits_for(key="execution_status", value="finished")

            outputs = [
                event["observation"]["content"][0]["text"]
                for event in user.received
                if event["kind"] == "ObservationEvent"
            ]
            assert outputs == ["one\n", "two\n"]
    finally:
        agent.kill()
        agent.wait()

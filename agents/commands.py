"""What clients tell agents: written into the log where a conversation is detached, passed on where it has a sandbox."""

from contextlib import suppress
from typing import Any

import httpx

from agents.link import AgentRefused, AgentServer, AgentUnreachable
from store import Store
from store.answers import Answer
from store.confirmations import SUPERSEDED
from store.errors import ConversationNotFound, SandboxNotFound, SandboxRefuses
from store.sandboxes import SandboxId
from wire import ConversationId


class NotReachable(Exception):
    """The sandbox of a conversation does not run; status is the sandbox's."""

    def __init__(self, sandbox_id: str, status: str) -> None:
        hints = {"PAUSED": f": POST /api/v1/sandboxes/{sandbox_id}/resume first", "STARTING": ": try again shortly"}
        super().__init__(f"The conversation's sandbox is {status}{hints.get(status, '')}")
        self.status = status


class Commands:
    """Each method raises ConversationNotFound and, of a conversation with a sandbox, NotReachable, AgentUnreachable
    and AgentRefused."""

    def __init__(self, store: Store, client: httpx.Client) -> None:
        self._store = store
        self._client = client

    def agent_of(self, conversation_id: ConversationId) -> AgentServer | None:
        """The agent server that a conversation lives on; None if it is detached."""
        sandbox_id = self._store.conversations.sandbox_of(conversation_id)
        return self.agent_in(SandboxId(sandbox_id)) if sandbox_id else None

    def agent_in(self, sandbox_id: SandboxId) -> AgentServer:
        """The agent server of a sandbox, which is in use by that. Raises NotReachable."""
        [sandbox] = self._store.sandboxes.get_many([sandbox_id])
        if sandbox is None or sandbox.status != "RUNNING":
            raise NotReachable(sandbox_id, sandbox.status if sandbox else "MISSING")
        self._store.sandboxes.touch(sandbox_id)
        return AgentServer(self._client, sandbox.agent_url, sandbox.session_api_key)

    def send(self, conversation_id: ConversationId, *, content: list[dict[str, Any]], run: bool) -> None:
        """Give the agent a user's message. What waits for an answer is rejected first, never approved by it."""
        agent = self.agent_of(conversation_id)
        if agent is None:
            self._store.events.send(conversation_id, content=content, run=run)
            return
        _, rejection = self._store.answers.decide(conversation_id, accept=False, reason=SUPERSEDED)
        if rejection:
            self._deliver(agent, conversation_id, rejection)
        elif earlier := self._store.answers.get(conversation_id):
            self.redeliver(conversation_id, earlier)
        agent.send(conversation_id, content, run)

    def answer(self, conversation_id: ConversationId, *, accept: bool, reason: str) -> bool:
        """Accept or reject what waits; True only for the answer that took effect.

        It has taken effect when it is decided: an agent that does not hear it now is told again until it has.
        """
        if self._store.conversations.sandbox_of(conversation_id) is None:
            return self._store.confirmations.answer(conversation_id, accept=accept, reason=reason)
        won, answer = self._store.answers.decide(conversation_id, accept=accept, reason=reason)
        if answer is not None:
            try:
                agent = self.agent_of(conversation_id)
                assert agent is not None
                self._deliver(agent, conversation_id, answer)
            except (NotReachable, AgentUnreachable, AgentRefused):
                pass  # `supervisor/answers.py` goes on with it
        return won

    def change_status(self, conversation_id: ConversationId, verb: str) -> None:
        """Run, pause or interrupt. To run what waits for an answer is to accept it. Raises IllegalMove."""
        agent = self.agent_of(conversation_id)
        if agent is None:
            self._store.conversations.change_status(conversation_id, verb)
        elif verb != "run" or not self.answer(conversation_id, accept=True, reason=""):
            agent.tell(conversation_id, verb, {}, repeatable=verb != "run")

    def set_policy(self, conversation_id: ConversationId, policy: dict[str, Any]) -> None:
        """Set which actions wait for an answer from now on."""
        if agent := self.agent_of(conversation_id):
            agent.tell(conversation_id, "confirmation_policy", {"policy": policy}, repeatable=True)
        self._store.confirmations.set_policy(conversation_id, policy)

    def set_security_analyzer(self, conversation_id: ConversationId, security_analyzer: dict[str, Any] | None) -> None:
        """Set what rates the risk of the agent's actions."""
        if agent := self.agent_of(conversation_id):
            body = {"security_analyzer": security_analyzer}
            agent.tell(conversation_id, "security_analyzer", body, repeatable=True)
        self._store.conversations.update(conversation_id, security_analyzer=security_analyzer)

    def put_secrets(self, conversation_id: ConversationId, secrets: dict[str, Any]) -> None:
        """Keep secrets for the agent. Raises SecretsRefused."""
        if agent := self.agent_of(conversation_id):
            agent.tell(conversation_id, "secrets", {"secrets": secrets}, repeatable=True)
        self._store.conversations.put_secrets(conversation_id, secrets)

    def delete(self, conversation_id: ConversationId) -> None:
        """Remove a conversation and everything of it, also from its agent if that can be reached.

        Its sandbox goes with the last conversation in it.
        """
        sandbox_id = self._store.conversations.sandbox_of(conversation_id)
        with suppress(NotReachable, AgentUnreachable, AgentRefused):  # it is gone here; what its agent sends is refused
            if agent := self.agent_of(conversation_id):
                agent.delete(conversation_id)
        self._store.conversations.delete(conversation_id)
        if sandbox_id and not self._store.app_conversations.in_sandbox(SandboxId(sandbox_id)):
            with suppress(SandboxNotFound, SandboxRefuses):
                self._store.sandboxes.ask(SandboxId(sandbox_id), "delete")

    def delete_with_children(self, conversation_id: ConversationId) -> None:
        """Remove an app conversation, its children and the start tasks of all, each conversation as `delete` does.

        The parent is the last: where a worker is killed in between, the client's repeat removes the rest.
        Raises ConversationNotFound, also of a detached conversation.
        """
        parent = self._store.conversations.get(conversation_id)
        if "sandbox_id" not in parent:
            raise ConversationNotFound
        for each in (*self._store.app_conversations.children(conversation_id), parent):
            if start_id := each["app"].get("start_id"):
                self._store.start_tasks.forget(start_id)
            with suppress(ConversationNotFound):  # another request was faster
                self.delete(ConversationId(each["id"]))

    def redeliver(self, conversation_id: ConversationId, answer: Answer) -> None:
        """Tell an agent an answer once more, unless it has heard it.

        An agent that no longer waits has heard it, and one that waits for the answer to another action too: to it this
        answer would be one to that action. Our own state is looked at first: one that works may not answer for long.
        """
        known = self._store.conversations.get(conversation_id)
        if known["execution_status"] != "waiting_for_confirmation":
            self._store.answers.settle(conversation_id, answer)
            return
        agent = self.agent_of(conversation_id)
        if agent is None:
            return
        state = agent.state(conversation_id)
        waits = state.get("execution_status") == "waiting_for_confirmation"
        if waits and agent.latest_action(conversation_id) in answer.actions:
            self._deliver(agent, conversation_id, answer)
        else:
            self._store.answers.settle(conversation_id, answer)

    def _deliver(self, agent: AgentServer, conversation_id: ConversationId, answer: Answer) -> None:
        agent.answer(conversation_id, answer.accept, answer.reason)
        if answer.accept:
            # An agent server that says it waits, but is not quite at the end of its run, takes an acceptance for a run
            # that is going on already, and drops it: whether it has moved is looked at a little later.
            self._store.answers.look_again(conversation_id)
        else:
            self._store.answers.settle(conversation_id, answer)

"""What waits for a decision. Made by docs/make.py from `_async_waiting.py`."""

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from agent_server_client.calls import command_of
from agent_server_client.models import (
    AskedBudgetInfo,
    AskedDestinationInfo,
    DecisionsResult,
    DestinationDecided,
    ReadyAnswer,
    WaitingAction,
)
from agent_server_client.visible import first_line
from agent_server_client.wire import moment

if TYPE_CHECKING:
    from agent_server_client._sync import Client

#: most characters of a command in a representation
_LONGEST = 200


class PendingAction:
    """An action that waits for a decision, as it was shown: a decision is bound to its digest."""

    def __init__(self, client: "Client", item: WaitingAction) -> None:
        self.item = WaitingAction(item)  #: as the server sent it
        self.id = self.item.action_id  #: the id of the action's event
        self.conversation = client.conversation(self.item.conversation_id)  #: the conversation that it waits in

    def __repr__(self) -> str:
        what = first_line(self.command, _LONGEST) if self.command else self.arguments
        return f"<{type(self).__name__} {self.id}: {self.tool} {what}>"

    @property
    def conversation_id(self) -> str:
        """The id of its conversation."""
        return self.conversation.id

    @property
    def title(self) -> str:
        """The title of its conversation; empty where it has none."""
        return self.item.conversation_title or ""

    @property
    def tags(self) -> dict[str, Any]:
        """The tags of its conversation."""
        return self.item.tags

    @property
    def tool(self) -> str:
        """The name of the tool, such as `terminal`."""
        return self.item.tool_name

    @property
    def arguments(self) -> dict[str, Any]:
        """What the tool is called with; empty where the agent gives no object."""
        arguments = self.item.arguments
        return arguments if isinstance(arguments, dict) else {}

    @property
    def command(self) -> str:
        """The shell command; empty for a tool that has none."""
        return command_of(self.item.arguments) or ""

    @property
    def summary(self) -> str:
        """What the action is for, in the agent's words; empty where it says nothing."""
        return self.item.summary or ""

    @property
    def thought(self) -> str:
        """What the agent thought before it; empty where it says nothing."""
        return self.item.thought

    @property
    def risk(self) -> Literal["UNKNOWN", "LOW", "MEDIUM", "HIGH"]:
        """The risk that the agent names."""
        return self.item.security_risk

    @property
    def effects(self) -> list[str]:
        """What it does as the server sees it, in words such as `Deletes`; empty of a server that says nothing of it."""
        return [one["words"] for one in self.item.get("seen", {}).get("effects", ())]

    @property
    def since(self) -> datetime:
        """When it began to wait."""
        return moment(self.item.since)

    @property
    def expires_at(self) -> datetime | None:
        """When the server rejects it; None: never."""
        return moment(self.item.expires_at) if self.item.expires_at else None

    @property
    def digest(self) -> str:
        """The SHA-256 of what was shown, which a decision is bound to."""
        return self.item.digest

    @property
    def sandbox_id(self) -> str | None:
        """The sandbox that it would run in."""
        return self.item.sandbox_id

    @property
    def can(self) -> list[Literal["approve", "reject", "edit"]]:
        """The decisions that its agent takes."""
        return self.item.can

    def answers(self) -> list[ReadyAnswer]:
        """The rules that the server proposes for such actions, the narrowest first, with what each would have done."""
        answers: list[ReadyAnswer] = (self.ready_answers())["items"]
        return answers

    def ready_answers(self) -> dict[str, Any]:
        """As `answers`, as `items`, with all scopes of a rule (`scopes`), and how long one may hold (`lasts`)."""
        path = f"/api/v1/conversation/{self.conversation.id}/pending-actions/{quote(self.id, safe='')}/answers"
        answers: dict[str, Any] = self.conversation.client.get(path)
        return answers

    def approve(self, *, always: bool | dict[str, Any] = False) -> DecisionsResult:
        """Let the agent do exactly this. always: also make a rule of it: `True`, or members of the rule.

        Raises AgentServerError (409) where it is decided or another one by now.
        """
        return self.conversation.decide([self], "approve", **({"always": always} if always else {}))

    def reject(self, reason: str = "", *, always: bool | dict[str, Any] = False) -> DecisionsResult:
        """Refuse it; the agent reads the reason. always, raises: as `approve`."""
        members = {"reason": reason, "always": always}
        return self.conversation.decide([self], "reject", **{name: one for name, one in members.items() if one})

    def edit(self, arguments: dict[str, Any]) -> DecisionsResult:
        """Let the agent do this with other arguments, all of which are given. Raises as `approve` does.

        Raises AgentServerError also where `can` does not name `edit`.
        """
        return self.conversation.decide([self], "edit", arguments=arguments)


class Destination:
    """What a sandbox asks for, as it was shown: a decision is bound to its digest.

    id: `NAME:PORT` that it asks to reach; of a budget `budget:conversation`, `budget:key` or `budget:day`.
    """

    def __init__(self, client: "Client", item: AskedDestinationInfo) -> None:
        self.client = client
        self.item = AskedDestinationInfo(item)  #: as the server sent it
        self.budget: AskedBudgetInfo | None = self.item.get("budget")  #: the budget that is used up, if it is one
        of = self.budget["setting"].removeprefix("MODEL_BUDGET_").lower() if self.budget else ""
        self.id = f"budget:{of}" if self.budget else f"{self.name}:{self.port}"  #: what a decision names

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.sandbox_id}>"

    @property
    def name(self) -> str | None:
        """The host that it asks to reach; None of a budget."""
        return self.item.name

    @property
    def port(self) -> int | None:
        """The port that it asks to reach; None of a budget."""
        return self.item.port

    @property
    def sandbox_id(self) -> str:
        """The sandbox that asks."""
        return self.item.sandbox_id

    @property
    def conversation_id(self) -> str | None:
        """The conversation that it is about, where that is known."""
        return self.item.conversation_id

    @property
    def program(self) -> str | None:
        """What the program that asks calls itself."""
        return self.item.program

    @property
    def since(self) -> datetime:
        """When it first asked."""
        return moment(self.item.since)

    @property
    def expires_at(self) -> datetime | None:
        """When it counts as rejected; None: never."""
        return moment(self.item.expires_at) if self.item.expires_at else None

    @property
    def digest(self) -> str:
        """The SHA-256 of what was shown, which a decision is bound to."""
        return self.item.digest

    def approve(self, scope: str = "once") -> DestinationDecided:
        """Let the sandbox connect. scope: `once`; `conversation`, as long as the sandbox is; `always`, by a rule.

        A budget has the same amount once more, by scope `once` alone.
        Raises AgentServerError (404, 409) where it is decided, expired or asked anew by now.
        """
        return self._decide("approve", scope)

    def reject(self, reason: str = "", scope: str = "conversation") -> DestinationDecided:
        """Refuse it; the audit has the reason. Raises as approve does."""
        return self._decide("reject", scope, **({"reason": reason} if reason else {}))

    def _decide(self, decision: str, scope: str, **members: str) -> DestinationDecided:
        item = self.item
        name = {"name": item["name"], "port": item["port"]}
        of = {"budget": self.budget["setting"]} if self.budget else name
        shown = {"sandbox_id": item["sandbox_id"], **of, "digest": item["digest"]}
        body = {**shown, "decision": decision, "scope": scope, **members}
        decided: DestinationDecided = self.client.post("/api/v1/destinations/decisions", body)
        return decided

"""Pending actions and destinations. Made by docs/make.py from `_async_waiting.py`."""

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

#: Maximum characters of a command in a repr.
_LONGEST = 200


class PendingAction:
    """An action that waits for a decision, as it was shown. A decision is bound to its digest."""

    def __init__(self, client: "Client", item: WaitingAction) -> None:
        self.item = WaitingAction(item)  #: as the server sent it
        self.id = self.item.action_id  #: the id of the action's event
        self.conversation = client.conversation(self.item.conversation_id)  #: its conversation

    def __repr__(self) -> str:
        what = first_line(self.command, _LONGEST) if self.command else self.arguments
        return f"<{type(self).__name__} {self.id}: {self.tool} {what}>"

    @property
    def conversation_id(self) -> str:
        """The id of its conversation."""
        return self.conversation.id

    @property
    def title(self) -> str:
        """The title of its conversation; "" if it has none."""
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
        """The arguments of the tool; {} if the agent gives no object."""
        arguments = self.item.arguments
        return arguments if isinstance(arguments, dict) else {}

    @property
    def command(self) -> str:
        """The shell command; "" for a tool without one."""
        return command_of(self.item.arguments) or ""

    @property
    def summary(self) -> str:
        """The agent's summary of the action; "" if it gives none."""
        return self.item.summary or ""

    @property
    def thought(self) -> str:
        """The agent's thought before the action; "" if it gives none."""
        return self.item.thought

    @property
    def risk(self) -> Literal["UNKNOWN", "LOW", "MEDIUM", "HIGH"]:
        """The agent's own rating of the risk."""
        return self.item.security_risk

    @property
    def effects(self) -> list[str]:
        """Its effects as the server sees them, in words such as `Deletes`; [] if the server does not report them."""
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
        """The id of its sandbox."""
        return self.item.sandbox_id

    @property
    def can(self) -> list[Literal["approve", "reject", "edit"]]:
        """The decisions that its agent accepts."""
        return self.item.can

    def answers(self) -> list[ReadyAnswer]:
        """Return the server's proposed rules for such actions, the narrowest first, with what each would have done."""
        answers: list[ReadyAnswer] = (self.ready_answers())["items"]
        return answers

    def ready_answers(self) -> dict[str, Any]:
        """Return `answers` as `items`, with all scopes of a rule (`scopes`) and its possible durations (`lasts`)."""
        path = f"/api/v1/conversation/{self.conversation.id}/pending-actions/{quote(self.id, safe='')}/answers"
        answers: dict[str, Any] = self.conversation.client.get(path)
        return answers

    def approve(self, *, always: bool | dict[str, Any] = False) -> DecisionsResult:
        """Let the agent do exactly this. always: also make a rule of it: `True`, or members of the rule.

        Raises AgentServerError (409) if it was decided or has changed.
        """
        return self.conversation.decide([self], "approve", **({"always": always} if always else {}))

    def reject(self, reason: str = "", *, always: bool | dict[str, Any] = False) -> DecisionsResult:
        """Refuse it; the agent reads the reason. always: as in `approve`. Raises the errors of `approve`."""
        members = {"reason": reason, "always": always}
        return self.conversation.decide([self], "reject", **{name: one for name, one in members.items() if one})

    def edit(self, arguments: dict[str, Any]) -> DecisionsResult:
        """Let the agent do this with other arguments, which replace all. Raises the errors of `approve`.

        Raises AgentServerError also if `can` does not contain `edit`.
        """
        return self.conversation.decide([self], "edit", arguments=arguments)


class Destination:
    """A destination or a budget that a sandbox asks for, as it was shown. A decision is bound to its digest.

    id: `NAME:PORT` of a destination; `budget:conversation`, `budget:key` or `budget:day` of a budget.
    """

    def __init__(self, client: "Client", item: AskedDestinationInfo) -> None:
        self.client = client
        self.item = AskedDestinationInfo(item)  #: as the server sent it
        self.budget: AskedBudgetInfo | None = self.item.get("budget")  #: the exhausted budget, if it is one
        of = self.budget["setting"].removeprefix("MODEL_BUDGET_").lower() if self.budget else ""
        self.id = f"budget:{of}" if self.budget else f"{self.name}:{self.port}"  #: the name in a decision

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.sandbox_id}>"

    @property
    def name(self) -> str | None:
        """The host that it asks for; None for a budget."""
        return self.item.name

    @property
    def port(self) -> int | None:
        """The port that it asks for; None for a budget."""
        return self.item.port

    @property
    def sandbox_id(self) -> str:
        """The sandbox that asks."""
        return self.item.sandbox_id

    @property
    def conversation_id(self) -> str | None:
        """The conversation that it is about, if known."""
        return self.item.conversation_id

    @property
    def program(self) -> str | None:
        """The name that the asking program gives itself."""
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
        """Let the sandbox connect. scope: `once`; `conversation`, as long as the sandbox exists; `always`, by a rule.

        A budget gets its amount once more, only by scope `once`.
        Raises AgentServerError (404, 409) if it was decided, has expired, or was asked again.
        """
        return self._decide("approve", scope)

    def reject(self, reason: str = "", scope: str = "conversation") -> DestinationDecided:
        """Refuse it; the audit has the reason. Raises the errors of `approve`."""
        return self._decide("reject", scope, **({"reason": reason} if reason else {}))

    def _decide(self, decision: str, scope: str, **members: str) -> DestinationDecided:
        item = self.item
        name = {"name": item["name"], "port": item["port"]}
        of = {"budget": self.budget["setting"]} if self.budget else name
        shown = {"sandbox_id": item["sandbox_id"], **of, "digest": item["digest"]}
        body = {**shown, "decision": decision, "scope": scope, **members}
        decided: DestinationDecided = self.client.post("/api/v1/destinations/decisions", body)
        return decided

"""App conversations: those in a sandbox, with the members that only they have. Source: the app-server wire."""

from collections.abc import Iterator, Mapping
from typing import Any

from core.wire import REPORTED_MEMBERS, ConversationId
from store.conversations.conversations import Conversations
from store.errors import ConversationNotFound
from store.listing import Cursor, Filter, Listing
from store.sandboxes.sandboxes import Sandbox, Sandboxes, SandboxId

#: children that a conversation's state names, the oldest first
MOST_CHILDREN = 100

#: how an agent without a model reports itself, as clients of the wire can read no agent that names none
_NO_MODEL = "none"

#: conversations that are read at once
_PAGE = 100


def app_filter(*, sandbox_id: str | None = None, with_children: bool = False, **others: Any) -> Filter:
    """The filter for app conversations; others are the title and the times of `Filter`."""
    if sandbox_id is not None:
        return Filter(group=f"in-{sandbox_id}", top=not with_children, **others)
    return Filter(group="app" if with_children else "top", **others)


class AppConversations:
    """All app conversations."""

    def __init__(self, conversations: Conversations, listing: Listing, sandboxes: Sandboxes) -> None:
        self._conversations = conversations
        self._listing = listing
        self._sandboxes = sandboxes

    def get_many(self, ids: list[ConversationId]) -> list[dict[str, Any] | None]:
        """States in the order of the ids, each with its sandbox and the ids of its children, at most MOST_CHILDREN.

        None for an id that is unknown or detached. Two round trips, and one read of sandboxes, whatever the number.
        """
        states = self._conversations.get_many(ids)
        found = [state if state and state.get("sandbox_id") else None for state in states]
        apps = [state for state in found if state]
        children = self._listing.members([f"of-{state['id']}" for state in apps], MOST_CHILDREN)
        for state, ids_of_children in zip(apps, children, strict=True):
            state["sub_conversation_ids"] = ids_of_children
        self._add_sandboxes(apps)
        return found

    def get(self, conversation_id: ConversationId) -> dict[str, Any]:
        """One of them, as `get_many`. Raises ConversationNotFound."""
        [state] = self.get_many([conversation_id])
        if state is None:
            raise ConversationNotFound
        return state

    def children(self, conversation_id: ConversationId) -> Iterator[dict[str, Any]]:
        """Every child's state, the oldest first; a page at a time, so that children may be deleted meanwhile."""
        return self._each(f"of-{conversation_id}")

    def each_in(self, sandbox_id: SandboxId) -> Iterator[dict[str, Any]]:
        """The state of every conversation in a sandbox, the oldest first; read as `children` are."""
        return self._each(f"in-{sandbox_id}")

    def _each(self, group: str) -> Iterator[dict[str, Any]]:
        start: Cursor | None = None
        while True:
            states, start = self._conversations.page(
                Filter(group=group), by="created", descending=False, limit=_PAGE, start=start
            )
            yield from states
            if start is None:
                return

    def search(
        self, filters: Filter, *, by: str, descending: bool, limit: int, start: Cursor | None
    ) -> tuple[list[dict[str, Any]], Cursor | None]:
        """One page by `created`, `updated` or `title`, without children's ids, and the next page's cursor.

        A page may be shorter than the limit and not the last, as `Listing.page`. Cost: that of `Conversations.page` and
        one read of sandboxes.
        """
        states, following = self._conversations.page(filters, by=by, descending=descending, limit=limit, start=start)
        found = [{**state, "sub_conversation_ids": []} for state in states]
        self._add_sandboxes(found)
        return found, following

    def count(self, filters: Filter) -> int:
        """The number of app conversations that pass. Cost: that of `Listing.count`."""
        return self._listing.count(filters)

    def report(self, sandbox_id: SandboxId, conversation_id: ConversationId, reported: Mapping[str, Any]) -> None:
        """Keep an agent server's report about a conversation, as `Conversations.report`: title, tags, stats, agent and
        REPORTED_MEMBERS.

        A report with status `deleting` changes nothing. Raises NotItsSandbox, NotStartedHere, TooManyConversations.
        """
        if reported.get("execution_status") == "deleting":
            return
        fields = {name: reported[name] for name in ("title", "tags", "stats", "agent") if reported.get(name)}
        llm = fields.get("agent", {}).get("llm")
        model = llm.get("model") if isinstance(llm, dict) else None
        app = {"llm_model": model} if isinstance(model, str) and model != _NO_MODEL else {}
        parent_id = reported.get("parent_conversation_id")
        told = {name: reported[name] for name in REPORTED_MEMBERS if reported.get(name) is not None}
        self._conversations.report(conversation_id, sandbox_id, app=app, told=told, parent_id=parent_id, **fields)

    def update(self, conversation_id: ConversationId, *, app: Mapping[str, Any], **fields: Any) -> bool:
        """Set members of an app conversation, and its title or tags, as `Conversations.update`. Three round trips.

        Raises ConversationNotFound, also of a detached conversation.
        """
        if self._conversations.sandbox_of(conversation_id) is None:
            raise ConversationNotFound
        return self._conversations.update(conversation_id, app=app, **fields)

    def in_sandbox(self, sandbox_id: SandboxId) -> int:
        """The number of conversations in a sandbox. One round trip."""
        return self._listing.count(Filter(group=f"in-{sandbox_id}"))

    def runs_in(self, sandbox_id: SandboxId) -> bool:
        """Whether an agent runs a conversation of a sandbox, among the MOST_SCANNED that changed last."""
        running = Filter(group=f"in-{sandbox_id}", statuses=("running",))
        found, _ = self._conversations.page(running, by="updated", descending=True, limit=_PAGE, start=None)
        return bool(found)

    def _add_sandboxes(self, states: list[dict[str, Any]]) -> None:
        ids = list({SandboxId(state["sandbox_id"]) for state in states})
        sandboxes: dict[str, Sandbox | None] = dict(zip(ids, self._sandboxes.get_many(ids), strict=True))
        for state in states:
            state["sandbox"] = sandboxes[state["sandbox_id"]]

"""App conversations: those that live in a sandbox, listed with what the web application knows of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from store.conversations import Conversations
from store.errors import ConversationNotFound, NotItsSandbox
from store.sandboxes import Sandbox, Sandboxes, SandboxId
from wire import ConversationId, Micros, micros

#: conversations that are read at once to look for those that pass a filter
_PAGE = 100


@dataclass(frozen=True, slots=True)
class AppFilter:
    """Which app conversations are meant; each absent member lets all pass. Source: the app-server wire."""

    title: str | None = None  #: a part of the title, whatever its case
    created_since: Micros | None = None
    created_until: Micros | None = None
    updated_since: Micros | None = None
    updated_until: Micros | None = None
    sandbox_id: str | None = None
    with_children: bool = False

    @property
    def group(self) -> str:
        """The narrowest group of the listing that has them all."""
        if self.sandbox_id is not None:
            return f"in-{self.sandbox_id}"
        return "app" if self.with_children else "top"

    @property
    def is_group(self) -> bool:
        """Whether the group has no others."""
        times = (self.created_since, self.created_until, self.updated_since, self.updated_until)
        return self.title is None and times == (None,) * 4 and (self.sandbox_id is None or self.with_children)

    def passes(self, state: Mapping[str, Any]) -> bool:
        """Whether a conversation's state is meant."""
        created, updated = micros(state["created_at"]), micros(state["updated_at"])
        return (
            (self.title is None or self.title.casefold() in (state["title"] or "").casefold())
            and _within(created, self.created_since, self.created_until)
            and _within(updated, self.updated_since, self.updated_until)
            and (self.with_children or not state["app"].get("parent_conversation_id"))
        )


def _within(at: Micros, since: Micros | None, until: Micros | None) -> bool:
    return (since is None or at >= since) and (until is None or at < until)


class AppConversations:
    """All app conversations."""

    def __init__(self, conversations: Conversations, sandboxes: Sandboxes) -> None:
        self._conversations = conversations
        self._sandboxes = sandboxes

    def get_many(self, ids: list[ConversationId]) -> list[dict[str, Any] | None]:
        """States in the order of the ids, with their children; None for what is unknown or detached."""
        states = self._conversations.get_many(ids)
        found = [state if state and state.get("sandbox_id") else None for state in states]
        for state in found:
            if state is not None:
                children = self._in_order(f"of-{state['id']}", "created", False, None)
                state["sub_conversation_ids"] = [child["id"] for _, child in children]
        self._add_sandboxes([state for state in found if state])
        return found

    def get(self, conversation_id: ConversationId) -> dict[str, Any]:
        """One of them. Raises ConversationNotFound."""
        [state] = self.get_many([conversation_id])
        if state is None:
            raise ConversationNotFound
        return state

    def search(
        self,
        filters: AppFilter,
        *,
        by: str,
        descending: bool,
        limit: int,
        start: tuple[Any, ConversationId] | None,
    ) -> tuple[list[dict[str, Any]], tuple[Any, ConversationId] | None]:
        """One page by `created`, `updated` or `title`, and the place where the next one begins."""
        found: list[dict[str, Any]] = []
        following = None
        for place, state in self._in_order(filters.group, by, descending, start):
            if not filters.passes(state):
                continue
            if len(found) == limit:
                following = place
                break
            found.append({**state, "sub_conversation_ids": []})
        self._add_sandboxes(found)
        return found, following

    def count(self, filters: AppFilter) -> int:
        """How many pass: without another filter than a group's that is one look, else all of the group are read."""
        if filters.is_group:
            return self._conversations.count(group=filters.group)
        return sum(filters.passes(state) for _, state in self._in_order(filters.group, "created", True, None))

    def tell(self, sandbox_id: SandboxId, conversation_id: ConversationId, told: Mapping[str, Any]) -> None:
        """Keep what an agent server says of a conversation. A title and a time that are known stay; tags are merged.

        An unknown conversation is made. Raises NotItsSandbox, ConversationNotFound.
        """
        self._conversations.adopt(conversation_id, sandbox_id)
        state = self._conversations.get(conversation_id)
        if state.get("sandbox_id") != sandbox_id:
            raise NotItsSandbox
        fields: dict[str, Any] = {}
        if told.get("tags"):
            fields["tags"] = {**state["tags"], **told["tags"]}
        if told.get("stats"):
            fields["stats"] = told["stats"]
        if told.get("title") and state["title"] is None:
            fields["title"] = told["title"]
        if agent := told.get("agent"):
            fields["info"] = {**state["info"], "agent": agent}
            llm = agent.get("llm")
            if isinstance(llm, dict) and isinstance(llm.get("model"), str):
                fields["app"] = {**state["app"], "llm_model": llm["model"]}
        self._conversations.update(conversation_id, **fields)

    def update(self, conversation_id: ConversationId, *, app: Mapping[str, Any], **fields: Any) -> None:
        """Set members of an app conversation, and its title or tags. Raises ConversationNotFound."""
        state = self.get(conversation_id)
        self._conversations.update(conversation_id, **fields, app={**state["app"], **app})

    def in_sandbox(self, sandbox_id: SandboxId) -> int:
        """How many conversations live in a sandbox."""
        return self._conversations.count(group=f"in-{sandbox_id}")

    def runs_in(self, sandbox_id: SandboxId) -> bool:
        """Whether an agent is at work in a sandbox."""
        states = self._in_order(f"in-{sandbox_id}", "updated", True, None)
        return any(state["execution_status"] == "running" for _, state in states)

    def _in_order(
        self, group: str, by: str, descending: bool, start: tuple[Any, ConversationId] | None
    ) -> Iterator[tuple[tuple[Any, ConversationId], dict[str, Any]]]:
        """The conversations of a group from a place on, each with its place."""
        if by == "title":
            yield from self._by_title(group, descending, start)
            return
        place: tuple[Micros, ConversationId] | None = start
        while True:
            states, following = self._conversations.search(
                group=group, by=by, descending=descending, limit=_PAGE, start=place
            )
            for state in states:
                yield (micros(state[f"{by}_at"]), state["id"]), state
            if following is None:
                return
            place = following

    def _by_title(
        self, group: str, descending: bool, start: tuple[Any, ConversationId] | None
    ) -> Iterator[tuple[tuple[Any, ConversationId], dict[str, Any]]]:
        """Titles have no order in Redis: all of the group are read for each page."""
        states = [state for _, state in self._in_order(group, "created", True, None)]
        placed = [(((state["title"] or "").casefold(), state["id"]), state) for state in states]
        for place, state in sorted(placed, key=lambda pair: pair[0], reverse=descending):
            if start is None or (place <= start if descending else place >= start):
                yield place, state

    def _add_sandboxes(self, states: list[dict[str, Any]]) -> None:
        ids = list({SandboxId(state["sandbox_id"]) for state in states})
        sandboxes: dict[str, Sandbox | None] = dict(zip(ids, self._sandboxes.get_many(ids), strict=True))
        for state in states:
            state["sandbox"] = sandboxes[state["sandbox_id"]]

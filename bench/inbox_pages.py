"""A page of the inbox, and a decision, with many pending actions against the same with ten."""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from random import Random

from bench import corpus, servers
from bench.measure import Effort, Row, interleaved
from store.approvals.audit import Actor
from store.approvals.inbox import Filter
from store.approvals.pending_actions import Cursor, PendingAction
from wire import ConversationId, Event, event_time, micros, now

#: actions that wait in each conversation, and actions of a page
_ACTIONS, _PAGE = 10, 5

#: calls of one measurement
_CALLS = 50

_ALICE = Actor("key", "alice")
_ALL = Filter()


def rows(effort: Effort) -> list[Row]:
    """The time of a page at either end and in the middle, of one conversation's, and of a decision, in two stores."""
    conversations = effort.inbox_conversations
    with ExitStack() as stack:
        large, small = (_Inbox(stack.enter_context(servers.redis_server()), size) for size in (conversations, 1))
        rounds = {name: interleaved(effort.rounds, large.timed(name), small.timed(name)) for name in large.calls}
    return [
        Row(
            f"inbox of {conversations * _ACTIONS:,} actions in {conversations:,} conversations against one of "
            f"{_ACTIONS}: time of {name}",
            found.ratio,
            " ×",
            "{:.2f} ms against {:.2f} ms".format(*(1000 * seconds for seconds in found.medians)),
            most=1.5,
            raw={**found.raw, "unit": "s"},
        )
        for name, found in rounds.items()
    ]


class _Inbox:
    """A store with so many conversations, in each of which ten actions wait."""

    def __init__(self, url: str, conversations: int) -> None:
        self._random = Random(1)
        self._store = corpus.open_store(url)
        ids = [self._begin() for _ in range(conversations)]
        self._deciding = cycle(ids)
        middle = ids[conversations // 2]
        [first, *_], _ = self._page(filters=Filter(conversation_id=middle))
        _, cursor = self._page(filters=Filter(since=micros(first.since)), limit=_ACTIONS - _PAGE)
        self.calls: dict[str, Callable[[], object]] = {
            "a page, the oldest": self._page,
            "a page, the newest": partial(self._page, descending=True),
            "a page from the middle on": partial(self._page, start=cursor),
            "a page of one conversation": partial(self._page, filters=Filter(conversation_id=middle)),
            "a decision, and ten actions that wait after it": self._decide,
        }

    def timed(self, name: str) -> Callable[[], float]:
        """The seconds of one call."""

        def measure() -> float:
            start = time.perf_counter()
            for _ in range(_CALLS):
                self.calls[name]()
            return (time.perf_counter() - start) / _CALLS

        return measure

    def _begin(self) -> ConversationId:
        conversation_id = corpus.conversation(self._random)
        self._store.conversations.create(conversation_id, confirmation_policy={"kind": "AlwaysConfirm"})
        self._append(conversation_id)
        return conversation_id

    def _append(self, conversation_id: ConversationId) -> None:
        at, events = now(), []
        for _ in range(_ACTIONS):
            fields = {
                "id": corpus.conversation(self._random),
                "timestamp": event_time(at),
                "source": "agent",
                "kind": "ActionEvent",
                **corpus.action_fields(self._random, "git status"),
            }
            events.append(Event(fields["id"], "ActionEvent", "agent", at, fields, json.dumps(fields).encode()))
        self._store.events.append(conversation_id, events)

    def _decide(self) -> None:
        conversation_id = next(self._deciding)
        self._store.confirmations.decide(conversation_id, accept=False, reason="no", actor=_ALICE)
        self._append(conversation_id)

    def _page(
        self, *, filters: Filter = _ALL, descending: bool = False, limit: int = _PAGE, start: Cursor | None = None
    ) -> tuple[list[PendingAction], Cursor | None]:
        return self._store.inbox.page(filters, descending=descending, limit=limit, start=start)

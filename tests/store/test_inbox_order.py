"""Actions of one batch begin to wait at one time, and stand in the inbox in the order of their log, page by page."""

import itertools

import pytest

from store.approvals.audit import DecisionActor
from store.approvals.decisions import Decision
from store.approvals.inbox import InboxFilter
from tests.conftest import action

ALICE = DecisionActor("key", "alice")

#: in the order of the log, which is neither that of the ids nor its reverse
NAMES = ["m", "c", "z", "a", "q", "b", "y"]


def batch(prefix: str = "") -> list[dict]:
    return [{**action(), "id": f"{prefix}{name}", "llm_response_id": f"{prefix}{name}"} for name in NAMES]


def walk(store, limit: int, *, descending: bool = False, **filters):
    """The ids of all pages, one list for each."""
    start = None
    while True:
        page, start = store.approvals.inbox.page(
            InboxFilter(**filters), descending=descending, limit=limit, start=start
        )
        yield [item.action_id for item in page]
        if start is None:
            return


def walked(*args, **options) -> list[str]:
    return list(itertools.chain(*walk(*args, **options)))


def test_pages_of_any_size_have_a_batch_in_the_order_of_its_log(store, begin):
    begin(*batch("first-"))
    middle = begin(*batch("middle-"))
    begin(*batch("last-"))
    whole = [f"{prefix}{name}" for prefix in ("first-", "middle-", "last-") for name in NAMES]

    for limit, descending in ((1, False), (3, True), (100, False), (100, True)):
        expected = whole[::-1] if descending else whole
        assert walked(store, limit, descending=descending) == expected
        assert walked(store, limit, descending=descending, tool="terminal") == expected
        assert walked(store, limit, descending=descending, conversation_id=middle) == [
            one for one in expected if one.startswith("middle-")
        ]


@pytest.mark.parametrize("descending", [False, True])
def test_a_page_goes_on_where_the_cursor_was_when_its_action_was_decided_meanwhile(store, begin, descending):
    conversation = begin(*batch())
    names = NAMES[::-1] if descending else NAMES
    page, start = store.approvals.inbox.page(InboxFilter(), descending=descending, limit=3, start=None)
    assert [item.action_id for item in page] == names[:3]

    # The cursor names the fourth action; it and one that was shown are decided before the next page.
    store.approvals.confirmations.decide_each(conversation, [Decision(names[n], "reject", "no") for n in (1, 3)], ALICE)

    page, start = store.approvals.inbox.page(InboxFilter(), descending=descending, limit=100, start=start)
    assert ([item.action_id for item in page], start) == (names[4:], None)


def test_of_several_conversations_that_began_at_one_time_each_stands_together(store, index, begin):
    of = [begin(*batch(f"{number}-")) for number in range(3)]
    for member in index.zrange("{approvals}:waiting", 0, -1):
        index.zadd("{approvals}:waiting", {member: 1_700_000_000_000_000})

    expected = [f"{of.index(conversation)}-{name}" for conversation in sorted(of) for name in NAMES]
    for limit in (1, 4, 20, 21):
        assert walked(store, limit) == expected
        assert walked(store, limit, descending=True) == expected[::-1]

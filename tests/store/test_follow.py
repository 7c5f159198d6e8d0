"""What follows a change of a conversation: the script that makes the change lists it and indexes what waits."""

from importlib.resources import files
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.wire import micros, utc_time
from store.approvals.audit import DecisionActor
from store.approvals.inbox import InboxFilter
from store.keys import ConversationKeys, ListingKeys
from store.link.connection import LazyCluster
from store.listing import ListingFilter
from tests.conftest import action, as_events, message
from tests.round_trips import asks_by_request_alone, counted
from tests.store.conftest import ALWAYS

pytestmark = pytest.mark.usefixtures("alone")
ALICE = DecisionActor("key", "alice")


@pytest.fixture
def redis(store):
    return store.conversations._redis


@pytest.fixture
def begun(store):
    """A conversation whose policy holds every action."""
    identity = str(uuid4())
    store.conversations.create(identity, title="Before", confirmation_policy=ALWAYS)
    return identity


def listed(store, **filters):
    """The ids and revisions of the listing's entries, as it has them."""
    page, _ = store.conversations._listing.page(
        ListingFilter(**filters), by="created", descending=False, limit=10, start=None
    )
    return [(one.id, one.revision) for one in page]


def waiting(store, conversation):
    """The ids of the actions that the inbox shows of a conversation."""
    filters = InboxFilter(conversation_id=conversation)
    return [one.action_id for one in store.approvals.inbox.page(filters, descending=False, limit=9, start=None)[0]]


CHANGES = {
    "append events": lambda store, one: store.events.append(one, as_events([message("hello")])),
    "append an action that waits": lambda store, one: store.events.append(one, as_events([action()])),
    "rename": lambda store, one: store.conversations.update(one, title="After"),
    "pause": lambda store, one: store.conversations.change_status(one, "pause"),
    "keep secrets": lambda store, one: store.conversations.put_secrets(one, {"A": "b"}),
    "create": lambda store, _: store.conversations.create(str(uuid4())),
}


@pytest.fixture
def is_cluster(redis):
    """Whether the listing and the index lie on other nodes, so that the callers bring them up to date."""
    return isinstance(redis, LazyCluster)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_one_round_trip_and_is_listed_then(store, begun, name, is_cluster):
    change, waits = CHANGES[name], name == "append an action that waits"
    asks_by_request_alone(store)
    change(store, begun)  # loads its script

    with counted() as trips:
        change(store, begun)

    assert trips.number == (1 if not is_cluster else 6 if waits else 2)
    assert (begun, int(store.conversations.get(begun)["revision"])) in listed(store)


def test_a_decision_is_one_round_trip_and_the_inbox_has_it_then(store, begun, is_cluster):
    asks_by_request_alone(store)
    decide = store.approvals.confirmations.decide
    for _ in range(2):  # the first one loads its script
        store.events.append(begun, as_events([action()]))
        assert len(waiting(store, begun)) == 1

        with counted() as trips:
            decide(begun, accept=True, reason="", actor=ALICE)

    assert trips.number == (7 if is_cluster else 1)
    assert waiting(store, begun) == []


def test_a_rename_moves_a_conversation_in_the_order_of_titles(store, begun):
    store.conversations.update(begun, title="ÄFTER")

    assert listed(store, title="äft") == [(begun, int(store.conversations.get(begun)["revision"]))]
    assert listed(store, title="before") == []


@pytest.mark.parametrize("title", ["Before", None])
def test_a_conversation_of_before_titles_were_folded_is_listed_by_its_caller(store, redis, begun, title):
    store.conversations.update(begun, title=title)
    redis.hdel(ConversationKeys(begun).root, "folded_title")

    store.events.append(begun, as_events([message("hello")]))

    assert listed(store, title=title) == [(begun, int(store.conversations.get(begun)["revision"]))]


@pytest.mark.parametrize("script", ["note_conversation", "read_unindexed", "note_approvals"])
def test_what_its_script_cannot_do_is_done_by_the_caller(store, redis, begun, monkeypatch, script):
    """As where Redis is full, and the change was made by an earlier call: then a script may write nothing."""
    append = store.conversations._scripts._append_events
    broken = append._text.replace(f"local function {script}(KEYS, ARGV)".encode(), b"\\0error('full')\n")
    broken = broken.replace(b"\\0", f"local function {script}(KEYS, ARGV) ".encode())
    assert broken != append._text
    monkeypatch.setattr(append, "_text", broken)
    monkeypatch.setattr(append, "_hash", redis.script_load(broken))

    one = action()
    store.events.append(begun, as_events([one]))

    assert listed(store) == [(begun, int(store.conversations.get(begun)["revision"]))]
    assert waiting(store, begun) == [one["id"]]


@pytest.mark.parametrize("tool", ["\ud800", "a\\ud800\\", "\\\ud800 \U0001f600", "\udc00\ud800"])
def test_a_lone_surrogate_in_the_name_of_a_tool_keeps_no_action_from_the_inbox(store, begun, tool):
    one = action(tool_name=tool)
    store.events.append(begun, as_events([one]))

    assert waiting(store, begun) == [one["id"]]


def test_a_change_of_one_listing_touches_no_other(store, redis, begun):
    assert redis.zscore(ListingKeys.index("created"), begun)
    assert redis.zscore("conversations:{all}:created", begun) is None


TIME = files("store.scripts").joinpath("_time.lua").read_text()


@given(at=st.integers(micros("1685-01-01T00:00:00Z"), micros("2255-01-01T00:00:00Z")))
def test_a_script_reads_the_instants_that_python_writes(store, at):
    text = utc_time(at)
    assert store.conversations._redis.eval(f"{TIME} return micros_of(ARGV[1])", 0, text) == str(at).encode()

"""What the server sees of an action that waits: in the inbox, in its filters, and for rules."""

import pytest

from core.approvals import Rule
from store.approvals.inbox import MOST_COUNTED, InboxFilter, TooManyToCount
from tests.conftest import action
from tests.store.conftest import forget

FOLDER = {"kind": "LocalWorkspace", "working_dir": "/w/app"}


def page(store, **filters):
    return store.approvals.inbox.page(InboxFilter(**filters), descending=False, limit=1000, start=None)[0]


def test_an_action_that_waits_has_its_effects_and_the_greater_risk(store, begin):
    begin(action("rm -rf build && ls", security_risk="LOW"))

    [item] = page(store)
    assert (item.security_risk, item.risk, item.seen["risk"]) == ("LOW", "HIGH", "HIGH")
    assert item.seen["effects"] == [
        {"effect": "deletes", "risk": "HIGH", "words": "Deletes", "because": "rm -rf build"},
        {"effect": "reads", "risk": "LOW", "words": "Reads", "because": "ls"},
    ]


def test_the_shown_risk_is_the_agents_where_that_is_greater_and_ours_where_it_names_none(store, begin):
    begin(action("ls", security_risk="HIGH"))
    begin(action("ls"))
    assert sorted(item.risk for item in page(store)) == ["HIGH", "LOW"]


def test_a_file_of_the_conversations_folder_lies_inside_also_in_a_fork(store, begin):
    conversation = begin(action("touch /w/app/a"), workspace=FOLDER)

    [item] = page(store, conversation_id=conversation)
    assert [one["effect"] for one in item.seen["effects"]] == ["writes_inside"]
    [shown] = store.approvals.confirmations.shown_pending(conversation)
    assert (shown["risk"], shown["seen"]) == (item.risk, item.seen)

    fork = store.conversations.forks.fork(conversation)
    assert store.approvals.confirmations.folder(fork) == "/w/app"
    assert "folder" not in store.conversations.get(conversation)


@pytest.mark.parametrize("folder", ["relative", "", None, 7, "/a\nb", "/\ud800", "/" + "a" * 5000])
def test_a_folder_that_is_no_absolute_path_is_none(store, begin, folder):
    conversation = begin(action("ls"), workspace={"working_dir": folder})
    assert store.approvals.confirmations.folder(conversation) is None
    assert page(store, conversation_id=conversation)[0].risk == "LOW"


def test_the_inbox_is_filtered_by_the_shown_risk_and_by_an_effect(store, begin):
    removes, makes, lists = action("rm a", security_risk="LOW"), action("make"), action("ls", security_risk="MEDIUM")
    begin(removes, makes, lists)

    def ids(**filters):
        return [item.action_id for item in page(store, **filters)]

    assert ids(shown_risk="HIGH") == [removes["id"]]
    assert ids(shown_risk="MEDIUM") == [makes["id"], lists["id"]]
    assert ids(shown_risk="LOW") == []
    assert ids(effect="deletes") == [removes["id"]]
    assert ids(effect="reads", shown_risk="MEDIUM") == [lists["id"]]
    assert store.approvals.inbox.count(InboxFilter(effect="scripts")) == 1
    assert store.approvals.inbox.count(InboxFilter(shown_risk="HIGH", risk="HIGH")) == 0


def test_a_count_that_would_read_too_much_names_its_filter():
    assert InboxFilter(effect="reads").unindexed == ["effect"]
    assert InboxFilter(shown_risk="LOW", text="a").unindexed == ["text", "risk"]
    assert str(MOST_COUNTED) in str(TooManyToCount("effect"))


@pytest.fixture
def rules(store):
    """The rules of a store that has none."""
    forget(store.approvals.rules._redis, "{rules}*")
    return store.approvals.rules


def test_a_rule_about_effects_decides_by_the_conversations_folder(store, rules, begin):
    made = rules.make(Rule("approve", "terminal", effects=("reads", "writes_inside"))).rule
    assert rules.get(made.id).rule.effects == ("reads", "writes_inside")

    inside, outside = action("ls > /w/app/a"), action("ls > /w/b")
    conversation = begin(inside, outside, workspace=FOLDER)
    assert [item.action_id for item in page(store, conversation_id=conversation)] == [outside["id"]]


def test_a_rule_without_effects_is_kept_as_an_earlier_release_reads_it(rules):
    made = rules.make(Rule("approve", "terminal", max_risk="LOW")).rule
    assert b"effects" not in rules._redis.hget("{rules}:all", made.id)
    assert rules.get(made.id).rule.effects is None

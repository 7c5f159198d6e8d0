"""A person's changes and an agent server's reports of one conversation: neither overwrites a member of the other."""

import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from store.errors import ConversationNotFound, NotItsSandbox

BOX = "box"


@pytest.fixture
def app_conversation(store, conversation):
    app = {"selected_branch": "main", "llm_model": "old", "pr_number": []}
    store.conversations.create(conversation, sandbox_id=BOX, app=app, tags={"mine": "1"}, agent={"llm": {}})
    return conversation


def report(store, conversation, **reported):
    store.conversations.in_sandboxes.report(BOX, conversation, reported)


def change(store, conversation, **changes):
    store.conversations.in_sandboxes.update(conversation, **{"app": {}, **changes})


def model(name):
    return {"llm": {"model": name}, "kind": "Agent"}


@pytest.fixture
def meanwhile(store, monkeypatch):
    """Lets another writer finish between the read and the write of a writer."""
    scripts, others = store.conversations._scripts, []

    def overtake(name):
        write = getattr(scripts, name)

        def overtaken(*args, **named):
            if others:
                others.pop()()
            return write(*args, **named)

        monkeypatch.setattr(scripts, name, overtaken)

    overtake("set_fields"), overtake("report_conversation")
    return others.append


def test_a_change_keeps_the_model_that_is_reported_meanwhile(store, app_conversation, meanwhile):
    meanwhile(lambda: report(store, app_conversation, agent=model("new")))
    change(store, app_conversation, app={"public": True, "selected_branch": None})

    state = store.conversations.in_sandboxes.get(app_conversation)
    assert state["app"] == {"selected_branch": None, "llm_model": "new", "pr_number": [], "public": True}
    assert state["agent"] == model("new")


def test_a_report_keeps_concurrent_changes(store, app_conversation, meanwhile):
    changes = {"app": {"public": True, "selected_branch": "other"}, "title": "Mine", "tags": {"new": "2"}}
    meanwhile(lambda: change(store, app_conversation, **changes))
    report(store, app_conversation, agent=model("new"), title="Theirs", tags={"theirs": "3"})

    state = store.conversations.in_sandboxes.get(app_conversation)
    assert state["app"] == {"selected_branch": "other", "llm_model": "new", "pr_number": [], "public": True}
    # An agent that was not told of a client's labels yet has older ones.
    assert (state["title"], state["tags"]) == ("Mine", {"new": "2"})


def test_the_tags_of_two_concurrent_reports_are_both_kept(store, app_conversation, meanwhile):
    meanwhile(lambda: report(store, app_conversation, tags={"a": "1"}))
    report(store, app_conversation, tags={"b": "2"}, agent=model("m"))

    state = store.conversations.in_sandboxes.get(app_conversation)
    assert state["tags"] == {"mine": "1", "a": "1", "b": "2"}


@pytest.mark.faults("a race of threads")
def test_concurrent_writers_each_find_their_own_members(store, app_conversation):
    """Each of four threads owns members that no other one writes, and reads them back after every write."""
    barrier = threading.Barrier(4)

    def writer(write, read):
        barrier.wait(30)
        for number in range(25):
            write(str(number))
            if read(store.conversations.in_sandboxes.get(app_conversation)) != str(number):
                return f"{number} was lost"
        return "kept"

    writers = [
        (lambda word: change(store, app_conversation, app={"public": word}), lambda state: state["app"]["public"]),
        (lambda word: change(store, app_conversation, title=word), lambda state: state["title"]),
        (lambda word: report(store, app_conversation, agent=model(word)), lambda state: state["app"]["llm_model"]),
        (lambda word: report(store, app_conversation, stats={"theirs": word}), lambda state: state["stats"]["theirs"]),
    ]
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(lambda pair: writer(*pair), writers)] == ["kept"] * 4


def test_a_report_sets_a_title_where_there_is_none(store, app_conversation):
    report(store, app_conversation, title="Theirs")
    report(store, app_conversation, title="Later")

    assert store.conversations.in_sandboxes.get(app_conversation)["title"] == "Theirs"


def test_a_title_of_an_agent_is_cut_at_200_characters(store, app_conversation):
    report(store, app_conversation, title="😀" * 300)

    assert store.conversations.in_sandboxes.get(app_conversation)["title"] == f"{'😀' * 199}…"


def test_reported_tags_are_returned_unchanged(store, app_conversation):
    tags = {"a": "1", "ä": "ö 😀 \n \x00 /", "quote": '"\\', **{f"t{number}": "x" for number in range(50)}}
    for _ in range(2):
        report(store, app_conversation, tags=tags)

    assert store.conversations.in_sandboxes.get(app_conversation)["tags"] == {"mine": "1", **tags}


def test_a_tag_that_is_not_utf_8_is_left_out(store, app_conversation):
    report(store, app_conversation, tags={"a": "\ud800", "\udc00": "b", "c": "d"})

    assert store.conversations.in_sandboxes.get(app_conversation)["tags"] == {"mine": "1", "c": "d"}


def test_a_report_that_changes_nothing_leaves_no_trace(store, app_conversation):
    reported = {"title": "T", "tags": {"a": "b"}, "stats": {"x": 1}, "agent": model("m")}
    report(store, app_conversation, **reported)
    state = store.conversations.in_sandboxes.get(app_conversation)

    report(store, app_conversation, **reported)
    report(store, app_conversation)

    assert store.conversations.in_sandboxes.get(app_conversation) == state


def test_a_report_of_another_sandbox_changes_nothing(store, app_conversation):
    with pytest.raises(NotItsSandbox):
        store.conversations.in_sandboxes.report("another", app_conversation, {"title": "Theirs"})

    assert store.conversations.in_sandboxes.get(app_conversation)["title"] is None


def test_a_report_of_a_starting_deletion_changes_and_creates_nothing(store, app_conversation):
    state = store.conversations.in_sandboxes.get(app_conversation)
    unknown = str(uuid4())
    for one in (app_conversation, unknown):
        report(store, one, execution_status="deleting", title="Theirs")

    assert store.conversations.get_many([app_conversation, unknown]) == [
        {name: value for name, value in state.items() if name not in ("sandbox", "sub_conversation_ids")},
        None,
    ]


def test_a_report_of_an_unknown_child_creates_it_whole(store, conversation):
    parent, child = {"parent_conversation_id": conversation}, str(uuid4())
    store.conversations.create(conversation, sandbox_id=BOX, app={})
    report(store, child, **parent, title="Theirs", tags={"a": "b"}, agent=model("m"))

    state = store.conversations.in_sandboxes.get(child)
    assert (state["title"], state["tags"], state["app"]) == ("Theirs", {"a": "b"}, {"llm_model": "m", **parent})


def test_a_detached_conversation_is_no_app_conversation(store, conversation):
    store.conversations.create(conversation)

    with pytest.raises(ConversationNotFound):
        change(store, conversation, title="New", app={"public": True})

    assert store.conversations.get(conversation)["title"] is None

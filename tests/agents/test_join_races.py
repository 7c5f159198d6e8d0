"""Joins that race with what decides about them: whatever comes first, nothing of another key is reached."""

import threading
from contextlib import suppress
from uuid import uuid4

import pytest

from store.errors import ConversationNotFound
from tests.agents.test_joins import AGENT, ALL, NONE, _joiner, keyed, world  # noqa: F401 fixtures
from tests.chance import often

pytestmark = pytest.mark.process("each side of a race has a thread")

ROUNDS = often(10, 200)


def together(*acts):
    """Do these at once, and raise what one of them raised."""
    errors, gate = [], threading.Barrier(len(acts))

    def run(act):
        gate.wait(10)
        try:
            act()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def store_start(world, key, *, joins_any=False, policy=ALL, **named):  # noqa: F811
    """A start as a request stores it, without the request's own check."""
    body = {"body": {**AGENT, "confirmation_policy": policy}, "headers": {}}
    request = {"kept": {"confirmation_policy": policy}, **named}
    joiner = _joiner(key, joins_any=joins_any)
    start, _ = world.store.start_tasks.create_once(str(uuid4()), request, body, echo={}, owner=key.id, joiner=joiner)
    return start


def end_of(world, start):  # noqa: F811
    world.drive()
    [ended] = world.store.start_tasks.get_many([start.id])
    return ended


def began(world, start):  # noqa: F811
    """Whether the agent server was asked to begin the conversation of a start."""
    return any(start.conversation_id in str(request) for request in world.agent.requests)


def members(world, sandbox_id):  # noqa: F811
    return world.store.sandboxes.places.known(sandbox_id)[0]


@pytest.mark.parametrize("named", ["sandbox_id", "parent_conversation_id"])
def test_a_join_that_races_with_the_revocation_of_its_key_is_audited_or_does_nothing(world, named):  # noqa: F811
    mine, _ = world.key("write")
    sandbox_id, conversation = world.sandbox(mine)
    value = sandbox_id if named == "sandbox_id" else conversation
    for _ in range(ROUNDS):
        other, _ = world.key("write", "approve")
        start = store_start(world, other, joins_any=True, **{named: value})

        together(world.drive, lambda key=other: world.store.access.keys.revoke(key.id))

        ended = end_of(world, start)
        entry = (other.name, start.conversation_id)
        assert ended.status in ("READY", "ERROR")
        assert not began(world, start) or entry in world.joins(sandbox_id)
        assert (ended.status == "READY") == (start.conversation_id in members(world, sandbox_id))
        with suppress(ConversationNotFound):
            world.store.conversations.delete(start.conversation_id)


def test_a_join_that_races_with_a_stricter_policy_comes_first_or_is_refused(world):  # noqa: F811
    mine, _ = world.key("write")
    for _ in range(ROUNDS):
        sandbox_id, conversation = world.sandbox(mine, NONE)
        start = store_start(world, mine, policy=NONE, sandbox_id=sandbox_id)
        set_policy = world.store.approvals.confirmations.set_policy

        together(world.drive, lambda one=conversation, set_policy=set_policy: set_policy(one, ALL))

        ended = end_of(world, start)
        assert ended.status == "READY" or ended.failure.status == 403
        assert not began(world, start) or (mine.name, start.conversation_id) in world.joins(sandbox_id)
        late = end_of(world, store_start(world, mine, policy=NONE, sandbox_id=sandbox_id))
        assert late.failure.status == 403


def test_a_join_below_a_parent_that_is_removed_and_comes_back_elsewhere_reaches_no_other_key(world):  # noqa: F811
    mine, _ = world.key("write")
    other, _ = world.key("write")
    theirs, _ = world.sandbox(other)
    sandbox_id, _ = world.sandbox(mine)
    for _ in range(ROUNDS):
        parent = world.conversation(theirs, other)
        start = store_start(world, other, parent_conversation_id=parent)

        def move(parent=parent):
            world.store.conversations.delete(parent)
            members = {"app": {}, "confirmation_policy": ALL, "workspace": {}}
            world.store.conversations.create(parent, sandbox_id=sandbox_id, **members)

        together(world.drive, move)

        ended = end_of(world, start)
        assert ended.status == "ERROR" or ended.sandbox_id == theirs
        assert start.conversation_id not in members(world, sandbox_id)
        assert world.joins(sandbox_id) == []
        world.store.conversations.delete(parent)
        with suppress(ConversationNotFound):
            world.store.conversations.delete(start.conversation_id)


def test_a_join_that_races_with_an_adoption_by_the_owner_reaches_nothing(world):  # noqa: F811
    mine, own = world.key("write")
    other, headers = world.key("write")
    sandbox_id, conversation = world.sandbox(mine)
    for _ in range(ROUNDS):
        stray = str(uuid4())
        start = store_start(world, other, parent_conversation_id=conversation)
        path = f"/api/v1/sandboxes/{sandbox_id}/conversations/{stray}/adopt"
        statuses = {}

        def adopt(name, shown, path=path, statuses=statuses):
            statuses[name] = world.app.test_client().post(path, headers=shown).status_code

        together(world.drive, lambda: adopt("own", own), lambda: adopt("other", headers))

        assert end_of(world, start).failure.status == 403
        assert (statuses["other"], statuses["own"] != 403) == (403, True)
        assert not began(world, start)
        assert {name for name, _ in world.joins(sandbox_id)} <= {mine.name}
        with suppress(ConversationNotFound):
            world.store.conversations.delete(stray)

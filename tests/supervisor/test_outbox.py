"""How entries of the outboxes become messages: once each, in bounded words without secrets, and by the quiet rules."""

import json
import logging
from uuid import uuid4

import pytest

from core.approvals import ApprovalLinks, action_digest
from core.wire import micros
from notifications.messages import QuietRules
from notifications.sending import targets_of
from settings.config import Config
from store.conversations.cold import StillCold
from supervisor.notifications import OutboxMover
from tests.conftest import SECRET_KEY, action, as_events, observation
from tests.notifications import SECRET, entry, forget_notifications, push, standing_of
from tests.store.conftest import fresh_sandboxes, running_sandbox

WEBHOOKS = f"http://one.example/path|{SECRET} http://two.example/path|{SECRET}"
PUBLIC = "https://agents.example.org/"


@pytest.fixture
def queues(store):
    forget_notifications(store)
    yield store.notifications.targets
    forget_notifications(store)


def mover_of(store, **settings) -> OutboxMover:
    config = Config.of(notify_webhooks=WEBHOOKS, **settings)
    rules, targets = QuietRules.of(config.notify), targets_of(config.notify)
    links = ApprovalLinks((SECRET_KEY,), public_url=config.http.public_url, seconds=60)
    store.notifications.targets.open({target.id: target.name for target in targets}, again=True)
    return OutboxMover(store, targets, rules, links, standing_of(store), public_url=config.http.public_url)


def queued(store, number: int = 0) -> list[tuple[str, dict]]:
    """The messages in the queue of a target, taken out of it: ids and payloads."""
    target, found = targets_of(Config.of(notify_webhooks=WEBHOOKS).notify)[number], []
    while one := store.notifications.targets.claim(target.id, "token", 60):
        found.append((one.id, json.loads(store.notifications.targets.body_of(one))))
        store.notifications.targets.close(one, "sent")
    return found


def waiting(store, conversation: str, **state) -> dict:
    """An action of a conversation that waits for a decision."""
    store.conversations.create(conversation, **state)
    store.approvals.confirmations.set_policy(conversation, {"kind": "AlwaysConfirm"})
    one = action(command="rm -rf build", summary="Cleaning up", security_risk="HIGH")
    store.events.append(conversation, as_events([one]))
    return one


def about(conversation: str, one: dict, kind: str = "action.pending", **members) -> dict:
    return entry(1, kind, conversation_id=conversation, action_id=one["id"], **members)


def test_entries_of_all_outboxes_reach_every_target_in_order(store, queues):
    mover = mover_of(store)
    for number, outbox in enumerate(("approvals", "conversations", "sandboxes")):
        push(store, outbox, *(entry(10 * number + n) for n in range(3)))

    assert mover.move() == 9
    assert mover.move() == 0

    for target in range(2):
        ids = [identity for identity, _ in queued(store, target)]
        assert ids == [entry(10 * number + n)["id"] for number in range(3) for n in range(3)]
    assert [one.waiting for one in store.notifications.outboxes.states()] == [0, 0, 0]


def test_a_supervisor_that_is_killed_between_the_queues_and_the_outbox_sends_nothing_twice(store, queues):
    killed, successor = mover_of(store), mover_of(store)
    push(store, "approvals", entry(1), entry(2))
    killed.queue(store.notifications.outboxes.read(1)["approvals"])

    assert successor.move() == 2

    assert [identity for identity, _ in queued(store)] == [entry(1)["id"], entry(2)["id"]]


def test_a_supervisor_that_is_killed_before_the_queues_loses_nothing(store, queues, monkeypatch):
    mover = mover_of(store)
    push(store, "approvals", entry(1))
    with monkeypatch.context() as patch:
        patch.setattr(store.notifications.targets._scripts, "queue_notifications", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            mover.move()

    mover.move()

    assert [identity for identity, _ in queued(store)] == [entry(1)["id"]]


def test_two_supervisors_move_every_entry_once_and_in_order(store, queues):
    movers = [mover_of(store) for _ in range(2)]
    push(store, "approvals", *(entry(n) for n in range(120)))
    while sum(mover.move() for mover in movers):
        pass

    assert [identity for identity, _ in queued(store)] == [entry(n)["id"] for n in range(120)]


def test_a_message_about_an_action_has_what_a_person_decides_by(store, queues, conversation):
    one = waiting(store, conversation, title="Tidy up")
    push(store, "approvals", about(conversation, one))
    mover_of(store).move()

    [(identity, payload)] = queued(store)
    assert identity == entry(1)["id"]
    assert (payload["type"], payload["timestamp"]) == ("action.pending", "2026-11-20T20:37:22.528416Z")
    [record] = store.approvals.confirmations.pending(conversation)
    assert payload["data"] == {
        "conversation_id": conversation,
        "action_id": one["id"],
        "tool": "terminal",
        "risk": "HIGH",
        "security_risk": "HIGH",
        "title": "Tidy up",
        "summary": "Cleaning up",
        "arguments": '{"command":"rm -rf build"}',
        "since": record["since"],
        "digest": action_digest("terminal", {"command": "rm -rf build"}),
    }


def test_with_a_public_url_each_target_has_a_link_of_its_own_to_decide_by(store, queues, conversation):
    one = waiting(store, conversation, confirmation_seconds=30)
    push(store, "approvals", about(conversation, one))
    mover_of(store, public_url=PUBLIC).move()

    found = [queued(store, target)[0][1]["data"] for target in range(2)]
    links = [
        ApprovalLinks((SECRET_KEY,), public_url=PUBLIC, seconds=60).read(data["approval_link"].rpartition("/")[2])
        for data in found
    ]
    for data, link, name in zip(found, links, ("one", "two"), strict=True):
        assert data["link"] == f"https://agents.example.org/console/#/conversations/{conversation}?event={one['id']}"
        assert data["approval_link"].startswith("https://agents.example.org/approvals/")
        assert link[:4] == (conversation, one["id"], data["digest"], f"http://{name}.example")
        assert link.ends == micros(data["expires_at"])


def test_an_action_that_waits_no_longer_has_no_link_to_decide_by(store, queues, conversation):
    one = waiting(store, conversation)
    push(store, "approvals", about(conversation, one))
    store.approvals.confirmations.decide(conversation, accept=True, reason="")
    mover_of(store, public_url=PUBLIC).move()

    [(_, payload)] = queued(store)
    assert "approval_link" not in payload["data"]
    assert payload["data"]["digest"] == action_digest("terminal", {"command": "rm -rf build"})


def test_a_message_about_a_decision_says_who_decided_and_bears_no_link_to_decide(store, queues, conversation):
    one = waiting(store, conversation)
    store.events.append(conversation, as_events([observation(one)]))
    actor = {"kind": "key", "name": "anna", "address": ""}
    push(store, "approvals", about(conversation, one, "action.decided", decision="approve", actor=actor))
    mover_of(store, public_url=PUBLIC).move()

    [(_, payload)] = queued(store)
    assert (payload["data"]["decision"], payload["data"]["actor"]) == ("approve", actor)
    assert payload["data"]["summary"] == "Cleaning up"
    assert not {"since", "approval_link"} & set(payload["data"])


def test_a_message_tells_no_secret_of_its_conversation_and_no_argument_whole(store, queues, conversation):
    secrets = {"TOKEN": "tok-of-the-client", "OTHER": {"kind": "StaticSecret", "value": "another-secret"}}
    secrets["QUOTED"] = 'a "quoted" one'
    store.conversations.create(conversation, title="With tok-of-the-client")
    store.conversations.put_secrets(conversation, secrets)
    arguments = {
        "command": 'curl -H tok-of-the-client a "quoted" one' + "x" * 5000,
        "api_key": "k" * 20,
        "kind": "TerminalAction",
    }
    one = action(action=arguments, summary="Use another-secret\n\x1b[31mred\x1b[0m")
    store.events.append(conversation, as_events([one]))
    push(store, "approvals", about(conversation, one))
    mover_of(store).move()

    [(_, payload)] = queued(store)
    text = json.dumps(payload)
    assert not [word for word in ("tok-of-the", "another-secret", "quoted", "k" * 20, "\x1b") if word in text]
    assert payload["data"]["summary"] == "Use <secret-hidden> \\u{1b}[31mred\\u{1b}[0m"
    assert len(payload["data"]["arguments"]) <= 300


def test_a_message_about_a_sandbox_has_its_reason_and_no_line_of_its_log(redis_url, store, queues):
    sandboxes = fresh_sandboxes(redis_url)
    sandbox = running_sandbox(sandboxes)
    sandboxes.report(sandbox.id, "h", "supervisor", "ERROR", detail="The sandbox ended: exit code 3\nKEY=secret")
    failed = {"id": "msg_1", "type": "sandbox.error", "at": "1780000000000000", "sandbox_id": sandbox.id}
    push(store, "sandboxes", failed)
    mover_of(store, public_url=PUBLIC, notify_tags="team", notify_risk="HIGH", notify_tools="terminal").move()

    [(_, payload)] = queued(store)
    assert payload == {
        "type": "sandbox.error",
        "timestamp": "2026-05-28T20:26:40.000000Z",
        "data": {
            "sandbox_id": sandbox.id,
            "detail": "The sandbox ended: exit code 3",
            "link": f"https://agents.example.org/console/#/sandboxes/{sandbox.id}",
        },
    }


def test_a_message_can_be_made_of_what_is_gone(store, queues):
    push(store, "conversations", entry(1, "conversation.finished", action_id=None))
    push(store, "sandboxes", {"id": "msg_2", "type": "sandbox.error", "at": "1", "sandbox_id": "gone"})
    mover_of(store).move()

    assert [payload["type"] for _, payload in queued(store)] == ["conversation.finished", "sandbox.error"]


def test_a_conversation_whose_events_cannot_come_back_from_cold_storage_holds_up_no_entry(
    store, queues, conversation, monkeypatch
):
    one = waiting(store, conversation)
    forget_notifications(store)
    mover = mover_of(store)
    push(store, "approvals", about(conversation, one), entry(2))

    def cold(*_):
        raise StillCold(conversation, "its object is missing")

    monkeypatch.setattr(type(store.events), "get_many", cold)
    assert mover.move() == 2

    assert len(queued(store)) == 2


def test_an_entry_of_which_no_message_can_be_made_is_logged_and_holds_up_no_other(store, queues, caplog):
    redis = store.notifications.outboxes._redis
    redis.rpush("{approvals}:outbox", "no JSON", "[]", "{}", '{"id": "x", "type": "action.pending"}')
    push(store, "approvals", entry(1))
    with caplog.at_level(logging.ERROR, "supervisor"):
        mover_of(store).move()

    assert [identity for identity, _ in queued(store)] == [entry(1)["id"]]
    assert caplog.text.count("no message can be made") == 4


def test_a_full_queue_is_logged_with_the_name_of_its_target(store, queues, caplog, monkeypatch):
    mover = mover_of(store)
    monkeypatch.setattr(store.notifications.targets, "_most", 2)
    push(store, "approvals", *(entry(n) for n in range(5)))
    mover.move()

    assert "the queue of http://one.example is full: its 3 oldest messages are dropped" in caplog.text
    assert "path" not in caplog.text


@pytest.mark.parametrize(
    ("tags", "passes"),
    [("", True), ("team", True), ("team=red", True), ("other,team=red", True), ("team=blue", False), ("other", False)],
)
def test_conversations_are_notified_of_by_their_tags(store, queues, tags, passes):
    tagged, untagged = str(uuid4()), str(uuid4())
    store.conversations.create(tagged, tags={"team": "red"})
    store.conversations.create(untagged)
    for number, identity in enumerate((tagged, untagged)):
        push(store, "conversations", entry(number, "conversation.error", conversation_id=identity, action_id=None))
    mover_of(store, notify_tags=tags).move()

    expected = [tagged] * passes + [untagged] * (not tags)
    assert [payload["data"]["conversation_id"] for _, payload in queued(store)] == expected
    assert store.notifications.outboxes.states()[1].waiting == 0

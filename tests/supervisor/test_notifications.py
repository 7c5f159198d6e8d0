"""Sending notifications: through every failure of a target each message arrives once per id and in order."""

import json
import logging
import threading
from contextlib import ExitStack

import pytest

from agents.approval_links import ActionDecided, show_link
from core.approvals import ApprovalLinks
from core.prices import ModelBudget
from notifications.devices import Rings
from notifications.messages import QuietRules
from notifications.sending import NotificationSender, Posts, Services, Webhooks, targets_of
from settings.config import Config
from store.approvals.audit import DecisionActor
from store.errors import SecretsRefused
from supervisor import notifications
from supervisor.notifications import Notifier, OutboxMover
from tests.conftest import action, as_events
from tests.notifications import SECRET, WebhookReceiver, entry, forget_notifications, push, receiver, standing_of
from tests.servers import free_port, wait_until
from tests.store.conftest import fresh_sandboxes, running_sandbox


@pytest.fixture
def queues(store, monkeypatch):
    """Empty queues and outboxes, and short delays between tries."""
    monkeypatch.setattr(notifications, "_FIRST_RETRY", 0.05)
    monkeypatch.setattr(notifications, "_LONGEST_RETRY", 0.2)
    monkeypatch.setattr(notifications, "_QUEUE_POLL", 0.05)
    monkeypatch.setattr(notifications, "_OUTBOX_POLL", 0.05)
    forget_notifications(store)
    yield store.notifications.targets
    forget_notifications(store)


def notifier_of(
    store, *hooks: WebhookReceiver | str, seconds: float = 60, private: bool = True, urls: str = ""
) -> Notifier:
    """A supervisor's notifier with the given webhooks. seconds: of one try."""
    settings = " ".join(one if isinstance(one, str) else one.setting for one in hooks)
    config = Config.of(notify_webhooks=settings, notify_urls=urls)
    targets, sender = (
        targets_of(config.notify),
        NotificationSender(Webhooks(private=private, seconds=seconds), Services(private=private, seconds=seconds)),
    )
    links = ApprovalLinks((), public_url="", seconds=60)
    standing, posts = standing_of(store), Posts(private=private, seconds=seconds)
    mover = OutboxMover(store, targets, QuietRules.of(config.notify), links, standing, public_url="")
    return Notifier(store, targets, mover, sender, standing, Rings(store, posts, contact=""))


def target_of(hook: WebhookReceiver):
    [target] = targets_of(Config.of(notify_webhooks=hook.setting).notify)
    return target


def state_of(store, hook: WebhookReceiver):
    return store.notifications.targets.states()[target_of(hook).id]


def ids(first: int, last: int) -> list[str]:
    return [entry(n)["id"] for n in range(first, last)]


@pytest.mark.process("waits for backoffs")
def test_a_target_that_fails_in_every_way_gets_each_message_once_per_id_and_in_order(store, queues):
    ways: list[int | str] = [500, "half", "hang", 200, "drip", 503, 200, 302, "half", 404]
    with receiver() as hook:
        hook.does = list(ways)
        push(store, "approvals", *(entry(n) for n in range(5)))
        with notifier_of(store, hook, seconds=1).running():
            wait_until(lambda: len(hook.taken) >= 5, "five messages")
            push(store, "conversations", *(entry(n, "conversation.finished", action_id=None) for n in range(5, 8)))
            wait_until(lambda: len(hook.taken) >= 8 and state_of(store, hook).queued == 0, "three more")

    assert list(dict.fromkeys(hook.ids)) == ids(0, 8)  # a busy machine may answer later than a try takes
    assert [f"msg_{payload['data']['conversation_id']}" for payload in hook.taken] == hook.ids
    bodies = {}
    for headers, body in hook.received:
        assert bodies.setdefault(headers["webhook-id"], body) == body  # the same in every try
    state = state_of(store, hook)
    assert (state.queued, state.tries, state.given_up, state.dropped) == (0, 0, 0, 0)
    assert state.sent == 8
    assert state.failure
    assert state.failed_at is not None


@pytest.mark.process("waits for what threads do")
def test_a_target_that_is_down_for_a_while_gets_every_message_in_order(store, queues):
    port = free_port()
    down = WebhookReceiver(port)
    push(store, "approvals", *(entry(n) for n in range(3)))
    with notifier_of(store, down).running():
        wait_until(lambda: state_of(store, down).tries >= 3, "failed tries")
        push(store, "approvals", *(entry(n) for n in range(3, 6)))
        assert state_of(store, down).failure == "it takes no connection (ConnectError)"
        with receiver(port) as hook:
            wait_until(lambda: len(hook.taken) == 6, "the messages of the time when it was down")

    assert hook.ids == ids(0, 6)


@pytest.mark.process("waits for what threads do")
def test_a_dead_and_a_hanging_target_delay_no_other(store, queues):
    with receiver() as hung, receiver() as quick:
        hung.does = ["hang"] * 100
        push(store, "approvals", *(entry(n) for n in range(20)))
        dead = f"http://127.0.0.1:{free_port()}/|{SECRET}"
        with notifier_of(store, dead, hung, quick).running():
            wait_until(lambda: len(quick.taken) == 20, "the messages of the target that is well")
            wait_until(lambda: hung.received, "the request that hangs")
            assert len(hung.received) == 1  # the first has not ended
            hung.ends.set()

    assert quick.ids == ids(0, 20)
    assert hung.taken == []


@pytest.mark.process("waits for what threads do")
def test_two_supervisors_send_each_message_once(store, queues):
    with receiver() as hook, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(notifier_of(store, hook).running())
        for n in range(30):
            push(store, "approvals", entry(n))
        wait_until(lambda: len(hook.taken) >= 30 and state_of(store, hook).queued == 0, "thirty messages")

    assert hook.ids == ids(0, 30)


@pytest.mark.process("waits for what threads do")
def test_a_supervisor_takes_over_from_one_that_was_killed_while_it_sent(store, queues, monkeypatch):
    monkeypatch.setattr(notifications, "_LEASE", 600)
    with receiver() as hook:
        store.notifications.targets.open({target_of(hook).id: "name"}, again=True)
        notifier = notifier_of(store, hook)
        push(store, "approvals", entry(0), entry(1))
        notifier._mover.move()
        killed = store.notifications.targets.claim(target_of(hook).id, "killed", 600)
        assert not notifier.send_next(target_of(hook))  # the killed one has the lease
        store.notifications.targets.renew(killed, 0)
        with notifier.running():
            wait_until(lambda: len(hook.taken) == 2, "the messages of the killed supervisor")

    assert hook.ids == ids(0, 2)


@pytest.mark.process("waits for leases")
def test_the_lease_of_a_target_is_renewed_while_a_try_goes_on(store, queues, monkeypatch):
    monkeypatch.setattr(notifications, "_LEASE", 3.0)
    with receiver() as hook:
        hook.does = ["hang"]
        push(store, "approvals", entry(0))
        first, second = notifier_of(store, hook), notifier_of(store, hook)
        store.notifications.targets.open({target_of(hook).id: "name"}, again=True)
        first._mover.move()
        thread = threading.Thread(target=first.send_next, args=(target_of(hook),))
        thread.start()
        wait_until(lambda: hook.received, "the request that hangs")
        renewals = []
        renew = store.notifications.targets.renew
        monkeypatch.setattr(
            type(store.notifications.targets), "renew", lambda _, *args: renewals.append(1) or renew(*args)
        )
        wait_until(lambda: len(renewals) > 3, "renewals over more than one lease")
        assert not second.send_next(target_of(hook))
        hook.ends.set()
        thread.join()

    assert len(hook.received) == 1


@pytest.mark.process("waits for what threads do")
def test_a_message_is_given_up_in_the_end_and_that_is_counted_and_logged(store, queues, caplog, monkeypatch):
    monkeypatch.setattr(store.notifications.targets, "_given_up", 300)  # ms instead of three days
    down = WebhookReceiver(free_port())
    push(store, "approvals", entry(0), entry(1))
    with caplog.at_level(logging.WARNING, "supervisor"), notifier_of(store, down).running():
        wait_until(lambda: state_of(store, down).given_up == 2, "two messages that are given up")

    state = state_of(store, down)
    assert (state.queued, state.tries, state.sent) == (0, 0, 0)
    name = f"http://127.0.0.1:{down.port}"
    for one in ids(0, 2):
        assert f"{name} never got the message {one}, which is given up: it takes no connection" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.process("waits for what threads do")
def test_a_target_that_answers_410_gets_nothing_until_a_supervisor_starts(store, queues, caplog):
    with receiver() as hook:
        hook.does = [410]
        push(store, "approvals", entry(0))
        with notifier_of(store, hook).running():
            wait_until(lambda: state_of(store, hook).disabled_at, "the end of the target")
            push(store, "approvals", entry(1))
            wait_until(lambda: state_of(store, hook).queued == 2, "a message that waits")
        assert len(hook.received) == 1
        assert f"{target_of(hook).name} gets no more until a supervisor starts again" in caplog.text

        with notifier_of(store, hook).running():
            wait_until(lambda: len(hook.taken) == 2, "the messages after the restart")

    assert hook.ids == ids(0, 2)
    assert state_of(store, hook).disabled_at is None


@pytest.mark.process("waits for what threads do")
def test_a_private_address_gets_nothing_without_the_setting(store, queues):
    with receiver() as hook:
        push(store, "approvals", entry(0))
        with notifier_of(store, hook, private=False).running():
            wait_until(lambda: state_of(store, hook).tries, "a failed try")

    assert hook.received == []
    assert "which is private: NOTIFY_PRIVATE=1 allows it" in state_of(store, hook).failure


def test_a_fault_of_the_sender_counts_as_a_failed_try_and_shows_nothing(store, queues, monkeypatch):
    def broken(*_):
        raise ValueError("https://a-secret-url")

    with receiver() as hook:
        notifier = notifier_of(store, hook)
        monkeypatch.setattr(notifier._sender, "send", broken)
        push(store, "approvals", entry(0))
        notifier._announce(again=True)
        notifier._mover.move()

        assert not notifier.send_next(target_of(hook))

    assert (state_of(store, hook).tries, state_of(store, hook).failure) == (1, "unforeseen ValueError")


def test_a_message_that_a_fault_of_the_sender_keeps_back_is_given_up_and_the_next_is_sent(store, queues, monkeypatch):
    with receiver() as hook:
        notifier = notifier_of(store, hook)
        push(store, "approvals", entry(0), entry(1))
        notifier._announce(again=True)
        notifier._mover.move()
        with monkeypatch.context() as patch:
            patch.setattr(notifier._sender, "send", lambda *_: {}["absent"])
            for _ in range(notifications._MOST_UNFORESEEN + 1):
                store.notifications.targets.hurry(target_of(hook).id)
                notifier.send_next(target_of(hook))
        assert notifier.send_next(target_of(hook))

    state = state_of(store, hook)
    assert (state.given_up, state.sent, state.queued, state.failure) == (1, 1, 0, "unforeseen KeyError")


@pytest.mark.parametrize(("failed", "least", "most"), [(0, 1, 1.25), (3, 8, 10), (11, 2048, 2560), (40, 3600, 4500)])
def test_the_delay_doubles_up_to_an_hour_with_some_chance(store, failed, least, most):
    delays = {notifications.retry_delay(failed) for _ in range(20)}

    assert len(delays) > 1
    assert all(least <= delay <= most for delay in delays)


def test_a_supervisor_without_targets_and_devices_says_nothing_and_moves_nothing(store, queues):
    push(store, "approvals", entry(0))
    with notifier_of(store).running():
        pass

    assert not list(store.devices._redis.scan_iter("*:wanted"))
    assert store.notifications.outboxes.states()[0].waiting == 1
    assert store.notifications.targets.states() == {}


def test_a_failure_that_repeats_is_said_once_and_tried_less_and_less_often(caplog):
    failures = notifications._Failures("moving entries of the outboxes")

    delays = [failures.note(SecretsRefused()) for _ in range(8)]

    assert delays == [0.25, 0.5, 1, 2, 4, 5, 5, 5]
    assert [record.getMessage() for record in caplog.records] == [
        "notifications wait: they are kept sealed, and the server has no SECRET_KEY"
    ]
    failures.note(KeyError("another"))
    failures.end()
    assert failures.note(SecretsRefused()) == 0.25
    assert len(caplog.records) == 3


def test_the_link_of_an_action_is_about_no_later_wait_of_the_same_action(store, queues, conversation):
    config = Config.of(notify_webhooks=f"http://127.0.0.1:1/|{SECRET}")
    links = ApprovalLinks(("a key",), public_url="https://agents.example.org", seconds=60)
    mover = OutboxMover(
        store, targets_of(config.notify), QuietRules.of(config.notify), links, standing_of(store), public_url=""
    )
    act, found = action(), []
    for _ in range(2):
        store.notifications.outboxes.want()
        store.conversations.create(conversation, confirmation_policy={"kind": "AlwaysConfirm"})
        store.events.append(conversation, as_events([act]))
        raws = store.notifications.outboxes.read(50)["approvals"]
        data = [json.loads(mover._message(raw, {})[1][0])["data"] for raw in raws]
        token = next(one["approval_link"] for one in reversed(data) if "approval_link" in one).rpartition("/")[2]
        found.append(links.read(token))
        if len(found) == 1:
            assert show_link(store, found[0]).arguments == {"command": act["action"]["command"]}
            store.conversations.delete(conversation)
    earlier, later = found

    with pytest.raises(ActionDecided, match="an earlier wait of this action"):
        show_link(store, earlier)
    assert show_link(store, later).used_for == ""


@pytest.mark.parametrize(
    ("command", "own", "least", "shown"),
    [
        ("rm -rf build", "LOW", "HIGH", "HIGH"),
        ("npm test", "LOW", "MEDIUM", "MEDIUM"),
        ("npm test", "LOW", "HIGH", None),
        ("ls", "LOW", "MEDIUM", None),
        ("ls", "HIGH", "HIGH", "HIGH"),
        ("ls", "UNKNOWN", "HIGH", "LOW"),  # an unknown word passes
    ],
)
def test_an_action_is_notified_of_by_the_greater_of_the_agents_word_and_of_what_the_server_sees(
    store, queues, conversation, command, own, least, shown
):
    config = Config.of(notify_webhooks=f"http://127.0.0.1:1/|{SECRET}", notify_risk=least)
    links = ApprovalLinks((), public_url="", seconds=60)
    mover = OutboxMover(
        store, targets_of(config.notify), QuietRules.of(config.notify), links, standing_of(store), public_url=""
    )
    store.notifications.outboxes.want()
    store.conversations.create(conversation, confirmation_policy={"kind": "AlwaysConfirm"})
    store.events.append(conversation, as_events([action(command, security_risk=own)]))

    [raw] = store.notifications.outboxes.read(50)["approvals"]

    message = mover._message(raw, {})
    data = json.loads(message[1][0])["data"] if message else {"risk": None, "security_risk": own}
    assert (data["risk"], data["security_risk"]) == (shown, own)


def test_what_a_sandbox_asks_to_reach_is_notified_of_with_a_link_of_its_own(store, queues, redis_url):
    store.notifications.outboxes.want()
    sandbox = running_sandbox(fresh_sandboxes(redis_url)).id
    store.destinations.verdict(sandbox, "example.org", 443, "curl\u202e")
    [item] = store.destinations.waiting(sandbox)
    store.destinations.decide(item, "reject", "conversation", DecisionActor("key", "ada", "127.0.0.1"), "Not now")

    config = Config.of(notify_webhooks=f"http://127.0.0.1:1/|{SECRET}")
    links = ApprovalLinks(("a key",), public_url="https://agents.example.org", seconds=60)
    mover = OutboxMover(
        store,
        targets_of(config.notify),
        QuietRules.of(config.notify),
        links,
        standing_of(store),
        public_url="https://agents.example.org",
    )
    raws = store.notifications.outboxes.read(50)["approvals"]
    pending, decided = (json.loads(mover._message(raw, {})[1][0]) for raw in raws)

    assert (pending["type"], decided["type"]) == ("destination.pending", "destination.decided")
    data = pending["data"]
    assert data["destination"] == "example.org:443"
    assert data["program"] == "curl\\u{202e}"
    assert (data["sandbox_id"], data["digest"]) == (sandbox, item.digest)
    assert data["link"] == "https://agents.example.org/console/#/inbox"
    link = links.read(data["approval_link"].rpartition("/")[2])
    assert (link.destination, link.digest) == ((sandbox, "example.org", 443), item.digest)
    assert (decided["data"]["decision"], decided["data"]["detail"]) == ("reject", "Not now")
    assert decided["data"]["actor"] == {"kind": "key", "name": "ada"}
    assert "approval_link" not in decided["data"]


def test_a_budget_that_is_used_up_is_notified_of_with_what_an_approval_adds(store, queues, redis_url):
    store.notifications.outboxes.want()
    sandbox = running_sandbox(fresh_sandboxes(redis_url)).id
    words = {"more": ModelBudget(1_500_000_000, 200), "day": store.spending.so_far(sandbox).today}
    store.spending.refuse(sandbox, "", "MODEL_BUDGET_DAY", "127.0.0.1", 80, "Used up", **words)
    [item] = store.destinations.waiting(sandbox)
    store.destinations.decide(item, "approve", "once", DecisionActor("key", "ada", "127.0.0.1"), "Go on")

    config = Config.of(notify_webhooks=f"http://127.0.0.1:1/|{SECRET}")
    links = ApprovalLinks(("a key",), public_url="https://agents.example.org", seconds=60)
    mover = OutboxMover(
        store,
        targets_of(config.notify),
        QuietRules.of(config.notify),
        links,
        standing_of(store),
        public_url="https://agents.example.org",
    )
    raws = store.notifications.outboxes.read(50)["approvals"]
    pending, decided = (json.loads(mover._message(raw, {})[1][0]) for raw in raws)

    assert (pending["type"], decided["type"]) == ("budget.pending", "budget.decided")
    data = pending["data"]
    assert (data["budget"], data["more"]) == ("MODEL_BUDGET_DAY", "$1.5, 200 tokens")
    assert (data["sandbox_id"], data["digest"]) == (sandbox, item.digest)
    assert data["link"] == "https://agents.example.org/console/#/inbox"
    link = links.read(data["approval_link"].rpartition("/")[2])
    assert (link.destination, link.digest) == ((sandbox, "MODEL_BUDGET_DAY", 0), item.digest)
    assert (decided["data"]["decision"], decided["data"]["budget"]) == ("approve", "MODEL_BUDGET_DAY")

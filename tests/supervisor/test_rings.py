"""Devices ring when something waits: whose may, what an end does, and what a push service cannot do."""

import threading
from contextlib import ExitStack

import pytest

from app import create_app
from core.access import Principal
from core.approvals import ApprovalLinks
from core.people import Grant
from notifications.devices import Rings
from notifications.messages import QuietRules
from notifications.sending import NotificationSender, Posts, Services, Webhooks
from settings.config import Config
from store.approvals.audit import DecisionActor
from store.devices import PushAddress
from supervisor import notifications
from supervisor.notifications import Notifier, OutboxMover
from tests.conftest import SECRET_KEY, action, as_events
from tests.notifications import forget_notifications, receiver, standing_of
from tests.notifications.push_service import PushService
from tests.servers import wait_until
from tests.store.conftest import fresh_sandboxes, running_sandbox

ADA = Principal("ada", "", frozenset({"approve"}))
READER = Principal("grace", "", frozenset({"read"}))


@pytest.fixture
def queues(store, monkeypatch):
    """Empty queues and outboxes, and short delays between tries."""
    monkeypatch.setattr(notifications, "_FIRST_RETRY", 0.01)
    monkeypatch.setattr(notifications, "_LONGEST_RETRY", 0.02)
    monkeypatch.setattr(notifications, "_OUTBOX_POLL", 0.05)
    monkeypatch.setattr(notifications, "_QUEUE_POLL", 0.05)
    forget_notifications(store)
    store.notifications.outboxes.want()
    yield store.notifications.targets
    forget_notifications(store)


@pytest.fixture
def phone():
    with receiver(kind=PushService) as one:
        yield one


def notifier_of(store, *, seconds: float = 60) -> Notifier:
    """A supervisor's notifier without targets. seconds: of one try."""
    standing, private = standing_of(store), True
    links = ApprovalLinks((SECRET_KEY,), public_url="", seconds=600)
    mover = OutboxMover(store, (), QuietRules.of(Config.of().notify), links, standing, public_url="")
    ringer = Rings(store, Posts(private=private, seconds=seconds), contact="mailto:ops@example.org")
    sender = NotificationSender(Webhooks(private=private), Services(private=private))
    return Notifier(store, (), mover, sender, standing, ringer)


def add(store, phone: PushService, principal=ADA, *, shows="everything", path=""):
    one = phone.subscription
    address = PushAddress(one["endpoint"] + path, one["keys"]["p256dh"], one["keys"]["auth"])
    return store.devices.keep(principal, address, label="Pixel", host="127.0.0.1", shows=shows)


def waits(store, conversation, **members):
    """An action that waits in a conversation."""
    store.conversations.create(conversation, title="Tidy up", confirmation_policy={"kind": "AlwaysConfirm"})
    one = action("rm -r build", **members)
    store.events.append(conversation, as_events([one]))
    return one


def rung(notifier: Notifier, phone: PushService) -> list[dict]:
    """What the browser shows after all that waits is sent."""
    notifier._mover.move()
    while notifier.ring_next():
        pass
    return phone.taken


def form(served, ring: dict, decision: str, **members):
    """The response to a button of a notification, as the console's worker presses it."""
    return served.test_client().post(
        f"/approvals/{ring['token']}",
        data={"decision": decision, **members},
        headers={"Accept": "application/json"},
    )


@pytest.fixture
def served(redis_url):
    return create_app(Config.of(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, auth="open"))


def test_what_waits_rings_and_a_button_of_the_notification_decides_it_once(store, queues, phone, conversation, served):
    add(store, phone)
    waits(store, conversation)
    [ring] = rung(notifier_of(store), phone)

    assert (ring["title"], ring["decides"], ring["quiet"]) == ("Tidy up", False, False)  # its risk is high
    assert ring["text"].endswith("rm -r build")
    assert phone.claims[0]["sub"] == "mailto:ops@example.org"
    headers = phone.received[0][0]
    assert (headers["urgency"], headers["topic"]) == ("high", ring["tag"])

    refused = form(served, ring, "approve")
    assert (refused.status_code, refused.json["title"]) == (422, "May the agent do this?")
    taken = form(served, ring, "reject", reason="Not now")
    assert (taken.status_code, taken.json["title"]) == (200, "Rejected")
    again = form(served, ring, "reject")
    assert again.status_code == 409
    assert "This link was used" in again.json["detail"]
    entry = store.approvals.audit.of(conversation, after=0, limit=10)[0].decode()
    assert '"name":"the device Pixel of ada"' in entry.replace('": "', '":"')


def test_a_button_that_another_decision_was_faster_than_says_so(store, queues, phone, conversation, served):
    add(store, phone)
    one = waits(store, conversation)
    [ring] = rung(notifier_of(store), phone)
    path = f"/api/v1/conversation/{conversation}/pending-actions/decisions"
    decisions = [{"action_id": one["id"], "decision": "reject", "reason": "No"}]
    assert served.test_client().post(path, json={"decisions": decisions}).status_code == 200
    late = form(served, ring, "approve", sure="on")

    assert late.status_code == 409
    assert late.json["detail"].startswith("This action was rejected at ")


def test_a_decision_takes_the_place_of_the_ring_quietly(store, queues, phone, conversation, served):
    add(store, phone)
    waits(store, conversation)
    notifier = notifier_of(store)
    [ring] = rung(notifier, phone)
    form(served, ring, "reject")
    ended = rung(notifier, phone)[1]

    assert (ended["tag"], ended["title"], ended["quiet"]) == (ring["tag"], "Rejected", True)
    assert phone.received[1][0]["topic"] == phone.received[0][0]["topic"]
    assert phone.received[1][0]["urgency"] == "normal"


def test_what_was_decided_before_it_was_queued_does_not_ring(store, queues, phone, conversation, served):
    add(store, phone)
    one = waits(store, conversation)
    path = f"/api/v1/conversation/{conversation}/pending-actions/decisions"
    decisions = [{"action_id": one["id"], "decision": "reject", "reason": "No"}]
    served.test_client().post(path, json={"decisions": decisions})

    assert [ring["quiet"] for ring in rung(notifier_of(store), phone)] == [True]


def test_what_was_decided_before_a_device_was_added_does_not_ring_it(store, queues, phone, conversation, served):
    one = waits(store, conversation)
    path = f"/api/v1/conversation/{conversation}/pending-actions/decisions"
    decisions = [{"action_id": one["id"], "decision": "reject", "reason": "No"}]
    assert served.test_client().post(path, json={"decisions": decisions}).status_code == 200
    add(store, phone)
    assert rung(notifier_of(store), phone) == []

    waiting = action("make")
    store.events.append(conversation, as_events([waiting]))
    add(store, phone)  # a renewal
    [ring] = rung(notifier_of(store), phone)
    assert ring["place"] == f"#/conversations/{conversation}?event={waiting['id']}"


@pytest.mark.parametrize("is_decided", [True, False])
def test_a_destination_that_waits_no_longer_does_not_ring(store, queues, phone, redis_url, is_decided):
    sandbox = running_sandbox(fresh_sandboxes(redis_url)).id
    store.destinations.verdict(sandbox, "example.org", 443, "curl")
    [item] = store.destinations.waiting(sandbox)
    if is_decided:
        store.destinations.decide(item, "reject", "conversation", DecisionActor("key", "ada", "127.0.0.1"), "No")
    add(store, phone)

    assert [ring["text"] for ring in rung(notifier_of(store), phone)] == (
        [] if is_decided else ["Connect to example.org:443 (curl)"]
    )


def test_a_key_that_may_only_read_is_rung_and_gets_no_way_to_decide(store, queues, phone, conversation):
    add(store, phone, READER)
    waits(store, conversation)
    [ring] = rung(notifier_of(store), phone)

    assert ring["title"] == "Tidy up"
    assert not ring.keys() & {"token", "decides"}


def test_a_notification_of_a_device_that_has_ended_decides_nothing(store, queues, phone, conversation, served):
    device = add(store, phone)
    waits(store, conversation)
    [ring] = rung(notifier_of(store), phone)
    store.devices.end([device.id])
    refused = form(served, ring, "reject")

    assert (refused.status_code, refused.json["title"]) == (403, "This device does not decide")
    assert served.test_client().get(f"/approvals/{ring['token']}").status_code == 403
    assert len(store.approvals.index.read_approvals(conversation).pending) == 1


def test_a_notification_of_a_browser_that_is_another_persons_by_now_decides_nothing(
    store, queues, phone, conversation, served
):
    add(store, phone)
    waits(store, conversation)
    [ring] = rung(notifier_of(store), phone)
    made, _ = store.access.keys.make("grace", {"approve"}, None)
    add(store, phone, Principal("grace", made.id, frozenset({"approve"})))

    assert form(served, ring, "reject").status_code == 403


def test_a_person_is_rung_while_a_grant_is_theirs_and_decides_where_one_lets_them(
    store, queues, phone, conversation, served
):
    grants = [store.access.people.grant(Grant("approve", person="ada@example.org", tags={"team": "other"}))]
    add(store, phone, Principal("ada@example.org", "person-1", frozenset({"read"}), person="ada@example.org"))
    waits(store, conversation)
    notifier = notifier_of(store)
    [ring] = rung(notifier, phone)
    assert "token" not in ring

    grants.append(store.access.people.grant(Grant("approve", person="ada@example.org")))
    store.conversations.delete(conversation)
    waits(store, conversation)
    ring = [one for one in rung(notifier, phone) if "token" in one][-1]
    for grant in grants:
        store.access.people.revoke(grant.id)

    assert form(served, ring, "reject").status_code == 403
    assert store.devices.all() == []


def test_the_device_of_a_key_that_was_revoked_after_the_queueing_is_not_rung(store, queues, phone, conversation):
    made, _ = store.access.keys.make("ada", {"approve"}, None)
    add(store, phone, Principal("ada", made.id, frozenset({"approve"})))
    waits(store, conversation)
    notifier = notifier_of(store)
    notifier._mover.move()
    store.access.keys.revoke(made.id)
    while notifier.ring_next():
        pass

    assert phone.received == []
    assert store.devices.all() == []
    assert [key for key in store.devices._redis.scan_iter("{notify}:*") if key != b"{notify}:seen"] == []


@pytest.mark.parametrize("status", [404, 410])
def test_a_device_that_is_gone_ends_with_its_queue(store, queues, phone, conversation, status):
    device = add(store, phone)
    phone.does = [status]
    waits(store, conversation)
    rung(notifier_of(store), phone)

    assert store.devices.all() == []
    assert list(store.devices._redis.scan_iter(f"*{device.id}*")) == []


def test_a_ring_that_fails_is_tried_again_and_shown_until_then(store, queues, phone, conversation):
    device = add(store, phone)
    phone.does = [503, 200]
    waits(store, conversation)
    notifier = notifier_of(store)
    rung(notifier, phone)
    [found] = store.devices.all()
    assert (found.state.tries, found.state.queued, found.state.failure) == (1, 1, "it answered 503")

    store.notifications.targets.hurry(device.id)
    assert rung(notifier, phone)
    [found] = store.devices.all()
    assert (found.state.tries, found.state.queued, found.state.sent) == (0, 0, 1)


def test_a_queue_of_a_device_is_bounded(store, queues, phone):
    device = add(store, phone)
    queues.add((), [(f"msg_{n}", ["{}"]) for n in range(150)], device_ids=[device.id])

    [found] = store.devices.all()
    assert (found.state.queued, found.state.dropped) == (100, 50)


@pytest.mark.process("waits for tries that hang")
def test_endpoints_that_hang_or_never_end_delay_no_other_device(store, queues, phone, conversation):
    with ExitStack() as stack:
        bad = [stack.enter_context(receiver(kind=PushService)) for _ in range(3)]
        for one, does in zip(bad, ("hang", "drip", "half"), strict=True):
            one.does = [does] * 100
            add(store, one)
        add(store, phone)
        waits(store, conversation)
        with notifier_of(store, seconds=2).running():
            wait_until(lambda: phone.taken, "the ring of the device that is well")
            wait_until(lambda: all(one.received for one in bad), "tries of the others")

    assert [one.taken for one in bad] == [[], [], []]


@pytest.mark.process("waits for what threads do")
def test_two_supervisors_ring_a_device_once(store, queues, phone):
    device = add(store, phone)
    ring = '{"title": "t", "text": "", "tag": "test", "place": "#/inbox", "quiet": false, "until": 9e15}'
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(notifier_of(store).running())
        queues.add((), [(f"msg_{n}", [ring]) for n in range(20)], device_ids=[device.id])
        wait_until(lambda: len(phone.taken) >= 20 and not store.devices.all()[0].state.queued, "twenty rings")

    assert len(phone.taken) == 20
    assert threading.active_count() < 50

"""One try of a service of Apprise, over real sockets; its logs and failures show no secret."""

import logging
import threading

import apprise
import pytest

from notifications.sending import NotDelivered, SendingTarget, Services
from tests.conftest import no_threads
from tests.notifications import receiver
from tests.servers import free_port, wait_until


@pytest.fixture
def services():
    return Services(private=True, seconds=60)


@pytest.fixture
def hook(monkeypatch):
    """A receiver whose requests bear no signature."""
    with receiver() as one:
        monkeypatch.setattr(one, "take", lambda _, body: one.taken.append(body))
        yield one


def target(hook_or_port, scheme="json", identity="id"):
    port = getattr(hook_or_port, "port", hook_or_port)
    return SendingTarget(identity, "name", f"{scheme}://user:hush@127.0.0.1:{port}/hush/?+X-Token=hush")


def test_a_service_gets_the_title_and_the_text(services, hook):
    services.send(target(hook), "An action waits", "Tool: terminal")

    [body] = hook.taken
    assert b"An action waits" in body
    assert b"Tool: terminal" in body


@pytest.mark.parametrize("does", [404, 500, "half"])
def test_a_service_that_does_not_take_a_message_has_failed(services, hook, does):
    hook.does = [does]

    with pytest.raises(NotDelivered, match="could not deliver"):
        services.send(target(hook), "title", "text")


@pytest.mark.process("waits for what threads do")
def test_a_service_that_hangs_fails_in_time_and_gets_no_second_try_meanwhile(hook):
    hook.does, services = ["drip"], Services(private=True, seconds=0.5)
    with pytest.raises(NotDelivered, match=r"did not end within 0\.5 seconds"):
        services.send(target(hook), "title", "text")
    wait_until(lambda: hook.received, "the request that hangs")
    with pytest.raises(NotDelivered, match="still hangs"):
        services.send(target(hook), "title", "text")

    hook.ends.set()
    patient = Services(private=True, seconds=60)
    patient._hanging = services._hanging
    wait_until(lambda: not services._hanging, "the end of the try that hung")
    patient.send(target(hook), "title", "text")


def test_a_try_that_gets_no_thread_has_failed_and_does_not_hang(services, hook):
    with no_threads(), pytest.raises(NotDelivered, match="no thread"):
        services.send(target(hook), "title", "text")
    services.send(target(hook), "title", "text")

    assert len(hook.taken) == 1


def test_an_unknown_url_is_a_failure(services):
    with pytest.raises(NotDelivered, match="Apprise knows no such URL"):
        services.send(SendingTarget("id", "name", "no-such-service://hush"), "title", "text")


@pytest.mark.parametrize(
    "url",
    [
        "json://169.254.169.254/",
        "jsons://[fe80::1]/",
        "xml://0.0.0.0/",
        "form://[::ffff:169.254.169.254]/",
        "mailto://user:hush@example.invalid?smtp=169.254.169.254",
    ],
)
def test_a_link_local_host_is_refused_before_anything_is_sent(services, url):
    with pytest.raises(NotDelivered, match="its host has a forbidden address"):
        services.send(SendingTarget("id", "name", url), "title", "text")


def test_a_private_host_is_refused_without_the_setting(hook):
    with pytest.raises(NotDelivered, match="its host has a forbidden address"):
        Services(private=False).send(target(hook), "title", "text")

    assert hook.received == []


def test_a_token_in_the_place_of_a_host_is_no_host(services, monkeypatch):
    sent = []
    monkeypatch.setattr(apprise.NotifyBase, "notify", lambda *_, **words: sent.append(words) or True)

    for url in ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/", "ntfy://a-topic-that-is-no-host"):
        services.send(SendingTarget("id", "name", url), "title", "text")

    assert len(sent) == 2


def test_a_plugin_that_raises_has_failed_and_its_words_are_not_shown(services, hook, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("hush")

    monkeypatch.setattr(apprise.NotifyBase, "notify", broken)
    with pytest.raises(NotDelivered, match="its plugin raised RuntimeError"):
        services.send(target(hook), "title", "text")


def test_neither_logs_nor_failures_nor_reprs_show_a_secret(services, hook, caplog):
    hook.does = [200, 500, "half", 302]
    shown, threads = [], threading.active_count()  # of other tests
    with caplog.at_level(logging.DEBUG):
        services = Services(private=True, seconds=60)
        targets = [*[target(hook)] * 4, target(free_port()), SendingTarget("id", "name", "slack://hush")]
        for one in targets:
            try:
                services.send(one, "title", "text")
            except NotDelivered as failure:
                shown.append(repr(failure))

    assert len(shown) == 5
    assert "hush" not in f"{shown}{caplog.text}{targets}"
    assert threading.active_count() <= threads + 1

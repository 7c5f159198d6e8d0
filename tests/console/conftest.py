"""One server for these tests, and a browser for each."""

from uuid import uuid4

import pytest

from tests.approvals import DecidedConversation
from tests.console import Browser, end_browsers
from tests.console.furnished import furnished_server
from tests.servers import program, supervised_server


@pytest.fixture(scope="session", autouse=True)
def chromium():
    """Skips before a server starts where there is no browser; at the end the Chromiums of all tests end."""
    program("chromium"), program("chromedriver")
    yield
    end_browsers()


@pytest.fixture(scope="package")
def folder(tmp_path_factory):
    """The folder of the server, which has its Redis and its cold storage."""
    return tmp_path_factory.mktemp("console")


@pytest.fixture(scope="package")
def server(folder):
    """A client of the whole server, with two workers and a supervisor; it needs no key.

    It has one conversation, without which its inbox would be the first page.
    """
    with supervised_server(folder, COLD_URL=f"file://{folder}/cold", WEB_CONCURRENCY="2") as (client, _):
        DecidedConversation(client, str(uuid4()))
        yield client


@pytest.fixture
def browsers(server):
    """Makes browsers, which end with the test: browsers(dark=True), or browsers(base_url="http://…")."""
    made = []

    def make(**options):
        made.append(Browser(**{"base_url": str(server.base_url).rstrip("/"), **options}))
        return made[-1]

    yield make
    for browser in made:
        browser.close()


@pytest.fixture
def browser(browsers):
    """A browser, whose scripts must not fail and whose requests must not leave the server."""
    browser = browsers()
    yield browser
    assert browser.errors() == []


@pytest.fixture
def waits(server):
    """Makes conversations whose actions wait, until the test ends: waits(*actions, title="Clean up")."""
    made = []

    def make(*actions, **members):
        made.append(DecidedConversation(server, str(uuid4()), **members))
        made[-1].appends(*actions)
        return made[-1]

    yield make
    for conversation in made:
        server.delete(f"/api/conversations/{conversation.id}").raise_for_status()


@pytest.fixture(scope="package")
def furnished(tmp_path_factory):
    """A whole server whose every view shows something, also texts that mean harm."""
    with furnished_server(tmp_path_factory.mktemp("furnished")) as one:
        yield one

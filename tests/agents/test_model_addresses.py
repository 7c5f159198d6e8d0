"""Base URLs of models in a client's own body: services of the sandbox's spec take the place of loopback ones."""

from dataclasses import replace

import pytest

from agents.model_addresses import within_reach
from settings.egress import Service
from settings.specs import Specs

EGRESS = "http://127.0.0.1:1023"
SERVICES = (
    Service("model", "http://localhost:11434/v1", {"Authorization": "Bearer the-servers-key"}, is_model=True),
    Service("gitea", "http://127.0.0.1:3000"),
)


@pytest.fixture
def spec():
    bundled = Specs.load("").of_own_agents
    return replace(bundled, id="box", egress="named", isolation="auto", runtime="process", services=SERVICES)


def body(url: str, key: str = "the clients own key") -> dict:
    return {"agent": {"kind": "Agent", "llm": {"model": "m", "base_url": url, "api_key": key}}, "tags": {}}


@pytest.mark.parametrize(
    ("url", "inside"),
    [
        ("http://localhost:11434/v1", f"{EGRESS}/model"),
        ("http://127.0.0.1:11434/v1/", f"{EGRESS}/model"),
        ("http://[::1]:11434/v1", f"{EGRESS}/model"),
        ("HTTP://LOCALHOST:11434/v1/beta", f"{EGRESS}/model/beta"),
        ("http://127.0.0.1:3000", f"{EGRESS}/gitea"),
    ],
)
def test_a_loopback_url_that_an_operator_has_named_becomes_the_address_of_its_service(spec, url, inside):
    changed, [told] = within_reach(body(url), spec, EGRESS)

    assert changed == body(inside)
    assert told.startswith("agent.llm.base_url: the agent reaches ")
    assert "the-servers-key" not in str((changed, told))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:6379",
        "http://127.0.0.1:8000/v1",
        "http://localhost:11434",
        "http://localhost:11434/v10",
        "http://localhost:11434/",
        "https://localhost:11434/v1",
        "http://localhost:11434/v1/../admin",
        "http://localhost:11434/v1/%2e%2e/admin",
        "http://localhost:11434/v1?next=http://127.0.0.1:6379",
        "http://localhost:11434/v1#x",
        "http://user:secret-word@localhost:11434/v1",
        "http://localhost:11434\\@127.0.0.1:6379/v1",
        "http://127.0.0.2:11434/v1",
        "http://evil.localhost:11434/v1",
        "http://local\thost:11434/v1",
        "http://localhost:99999/v1",
        "http://localhost:114\n34/v1",
    ],
)
def test_any_other_loopback_url_stays_as_it_is_and_the_start_is_told(spec, url):
    changed, told = within_reach(body(url), spec, EGRESS)

    assert changed == body(url)
    assert all("the sandbox does not reach" in one and "LLM_BASE_URL" in one for one in told)
    assert "secret-word" not in str(told)


@pytest.mark.parametrize(
    "url", ["https://api.openai.com/v1", "http://2130706433:11434/v1", "http://10.0.0.7:11434/v1", "", "x", "http://["]
)
def test_a_url_that_is_not_on_loopback_is_left_alone(spec, url):
    assert within_reach(body(url), spec, EGRESS) == (body(url), [])


def test_every_model_of_a_body_is_looked_at_and_nothing_outside_of_its_agent(spec):
    url = "http://localhost:11434/v1"
    llm, other = {"model": "m", "base_url": url}, {"model": "m", "base_url": f"{EGRESS}/model"}
    given = {"agent": {"llm": llm, "condenser": {"llm": llm}, "fallbacks": [llm]}, "tags": llm, "secrets": {"a": llm}}

    changed, told = within_reach(given, spec, EGRESS)

    assert changed == {**given, "agent": {"llm": other, "condenser": {"llm": other}, "fallbacks": [other]}}
    assert len(told) == 3


def test_a_sandbox_with_the_loopback_of_the_server_gets_the_url_as_it_is(spec):
    given = body("http://127.0.0.1:9999/v1")
    assert within_reach(given, replace(spec, isolation="none", egress="open", services=()), "") == (given, [])


def test_a_sandbox_without_a_way_out_is_given_no_service(spec):
    changed, [told] = within_reach(body("http://localhost:11434/v1"), spec, "")
    assert (changed, "does not reach" in told) == (body("http://localhost:11434/v1"), True)

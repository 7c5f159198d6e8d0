"""What every list of conversations shows of one has a bound, wherever it comes from."""

import pytest

from tests.blueprints import API, refused

LONG = "x" * (256 * 1024)


@pytest.mark.parametrize(
    "member", ["workspace", "security_analyzer", "hook_config", "client_tools", "tool_module_qualnames"]
)
def test_a_start_with_a_member_that_would_make_every_list_long_is_refused(client, conversation, member):
    value = [LONG] if member == "client_tools" else {"a": LONG}

    response = client.post(API, json={"conversation_id": conversation, member: value})

    assert refused(response, member)
    assert "At most 262144 bytes of JSON are kept of it" in response.get_json()["detail"][0]["msg"]
    assert client.get(f"{API}/{conversation}").status_code == 404


def test_an_agent_may_have_more_since_its_skills_are_in_it(client, conversation):
    assert refused(client.post(API, json={"conversation_id": conversation, "agent": {"a": "x" * 1024 * 1024}}), "agent")


def test_a_security_analyzer_that_would_make_every_list_long_is_refused(client, url):
    earlier = client.get(url).get_json()

    assert refused(
        client.post(f"{url}/security_analyzer", json={"security_analyzer": {"a": LONG}}), "security_analyzer"
    )

    assert client.get(url).get_json() == earlier

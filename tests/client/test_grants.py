"""`agentctl grants`: what people may do where is listed, added and revoked."""

import pytest


@pytest.fixture(autouse=True)
def _no_grants(client):
    """The grants of other tests are revoked."""
    for grant in listed(client):
        client.delete(f"/api/v1/grants/{grant['id']}")


def listed(client) -> list[dict]:
    return client.get("/api/v1/grants").json


def test_a_grant_is_added_listed_and_revoked_by_the_beginning_of_its_id(ctl, client):
    assert "agentctl grants add --person" in ctl("grants").stderr

    tags = ("--tag", "team=payments", "--tag", "live")
    said = ctl("grants", "add", "--group", "payments", "--role", "approve", *tags).stderr

    [grant] = listed(client)
    assert (grant["group"], grant["person"], grant["role"]) == ("payments", None, "approve")
    assert grant["tags"] == {"team": "payments", "live": None}
    assert f"Added grant {grant['id']}: @payments, approve where live and team=payments" in said
    [row] = [line.split("\t") for line in ctl("grants").stdout.splitlines()]
    assert row[:4] == [grant["id"], "@payments", "approve", "where live and team=payments"]
    assert ctl("grants", "ls").stdout == ctl("grants").stdout

    assert f"Revoked: {grant['id']}" in ctl("grants", "rm", grant["id"][:8]).stderr
    assert listed(client) == []


def test_a_grant_without_tags_holds_everywhere(ctl, client):
    said = ctl("grants", "add", "--person", "ada@example.org", "--role", "steer").stderr
    assert "ada@example.org, steer everywhere" in said
    assert listed(client)[0]["tags"] is None


@pytest.mark.parametrize(
    "options", [(), ("--person", "ada", "--group", "payments"), ("--person", "ada, bob"), ("--person", "")]
)
def test_a_grant_of_nobody_or_of_both_or_of_no_name_is_refused_and_makes_nothing(ctl, client, options):
    code = 1 if len(options) == 2 else 2
    ctl("grants", "add", *options, "--role", "ask", code=code)
    assert listed(client) == []

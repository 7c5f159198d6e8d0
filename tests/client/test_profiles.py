"""Which server agentctl talks to."""

import pytest
from agent_server_client.cli.profiles import BadProfile, are_private, listed, target, without_password


@pytest.fixture
def environment(tmp_path):
    """An environment whose file has two profiles."""
    path = tmp_path / "agentctl/config.toml"
    path.parent.mkdir()
    path.write_text('[default]\nurl = "http://home"\nkey = "home"\n[work]\nurl = "http://work"\nkey = "work"\n')
    path.chmod(0o600)
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def test_the_environment_comes_first_and_gets_no_key_of_a_profile(environment):
    assert target("", {**environment, "AGENT_SERVER_URL": "http://other"}) == ("http://other", "")
    assert target("", {**environment, "AGENT_SERVER_KEY": "mine"}) == ("http://home", "mine")
    assert target("", environment) == ("http://home", "home")


def test_what_is_no_url_is_refused_by_the_name_of_what_has_it(environment, tmp_path):
    with pytest.raises(BadProfile, match="AGENT_SERVER_URL should begin with http:// or https://, not 'nonsense'"):
        target("", {"AGENT_SERVER_URL": "nonsense"})
    (tmp_path / "agentctl/config.toml").write_text('[default]\nurl = "home:8000"\n')
    with pytest.raises(BadProfile, match=r"`url` in .*config.toml should begin with"):
        target("", environment)


@pytest.mark.parametrize("user", ["", "me", "me@home", "me:too"])
def test_a_url_is_shown_without_its_password(user):
    shown = without_password(f"https://{user}:sesame@home/a@b:c")

    assert "sesame" not in shown
    assert shown.endswith("@home/a@b:c")


def test_a_named_profile_comes_before_the_environment(environment):
    named = {**environment, "AGENT_SERVER_URL": "http://other", "AGENT_SERVER_KEY": "other"}
    assert target("work", named) == ("http://work", "work")
    with pytest.raises(BadProfile, match=r"no profile play: add a table \[play\]"):
        target("play", named)


def test_the_profile_that_a_command_uses_is_marked(environment):
    def used(profile="", **more):
        return [one.name for one in listed(profile, {**environment, **more}) if one.is_used]

    assert (used(), used("work"), used(AGENT_SERVER_URL="http://other")) == (["default"], ["work"], [])
    assert are_private(environment)
    assert listed("", {"XDG_CONFIG_HOME": "/nowhere"}) == []


@pytest.mark.parametrize("password", ["hunter2", "a:b@c", ""])
def test_a_list_of_profiles_shows_no_password_of_a_url(environment, tmp_path, password):
    (tmp_path / "agentctl/config.toml").write_text(f'[default]\nurl = "https://me:{password}@home:8000/below?at=1@2"\n')

    assert listed("", environment)[0].url == "https://me:**********@home:8000/below?at=1@2"
    assert target("", environment).url == f"https://me:{password}@home:8000/below?at=1@2"


def test_a_key_that_others_can_read_is_refused(environment, tmp_path):
    (tmp_path / "agentctl/config.toml").chmod(0o644)
    with pytest.raises(BadProfile, match="chmod 600"):
        target("", environment)


def test_a_file_that_is_not_toml_is_named(environment, tmp_path):
    (tmp_path / "agentctl/config.toml").write_text("[default")
    with pytest.raises(BadProfile, match=r"config\.toml"):
        target("", environment)
    assert target("", {"XDG_CONFIG_HOME": str(tmp_path / "none")}) == ("", "")

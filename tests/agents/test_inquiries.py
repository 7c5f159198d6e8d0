"""What an agent server is asked about a conversation's folder, and what of its responses clients get."""

from types import SimpleNamespace

import pytest

from agents.client import AgentRefused, AgentUnreachable
from agents.inquiries import (
    PathOutside,
    RouteLacking,
    folder_of,
    git_changes,
    git_diff,
    hooks,
    kept_folder,
    linked_folder,
    seen_folder,
    skills,
    within,
    without_place,
)
from tests.agents import scripted_agent
from tests.refusals import taken


@pytest.fixture
def agent():
    with scripted_agent() as agent:
        yield agent


@pytest.mark.parametrize("status", [404, 405])
def test_a_route_that_the_agent_server_lacks_is_named(agent, status):
    agent.statuses = [status]

    with pytest.raises(RouteLacking, match="does not serve /api/hooks"):
        hooks(agent.server(), ".")


def test_what_the_agent_server_refuses_is_told_in_its_own_words(agent):
    agent.statuses = [400]

    with pytest.raises(AgentRefused, match="answered 400: as scripted"):
        git_changes(agent.server(), "/work", "repo", "no-such-ref")


def test_what_git_refuses_of_a_folder_is_shown_in_the_agent_servers_words(agent):
    for ask in (git_changes, git_diff):
        agent.statuses = [409]
        with pytest.raises(AgentRefused) as refused:
            ask(agent.server(), "/work", "a", None)
        assert (refused.value.status, refused.value.shown) == (409, "as scripted")


def test_a_refusal_names_the_folder_as_clients_do_and_not_its_place_on_the_host():
    state = {"sandbox": SimpleNamespace(id="box", working_dir="/srv/box/work", linked_dir="/data/work"), "info": {}}

    for place in ("/srv/box/work", "/data/work"):
        with pytest.raises(AgentRefused) as refused, without_place(state):
            raise AgentRefused(400, f"{place}/src is in no repository")
        assert str(refused.value) == "The agent server answered 400: /workspace/project/src is in no repository"
        with pytest.raises(AgentRefused) as refused, without_place(state):
            raise AgentRefused(409, shown=f"{place}/src is in no repository")
        assert refused.value.shown == "/workspace/project/src is in no repository"


def test_a_response_of_another_shape_is_none(agent):
    for reply in ([], {}, {"skills": {}}, {"hook_config": []}, "text", None):
        agent.replies = {"/skills": reply, "/diff": [reply], "/changes": {"changes": reply}}

        with pytest.raises(AgentUnreachable, match="response is no"):
            skills(agent.server(), ".", None)
        with pytest.raises(AgentUnreachable, match="response is no"):
            git_diff(agent.server(), ".", "a", None)
        with pytest.raises(AgentUnreachable, match="response is no"):
            git_changes(agent.server(), ".", "a", None)


def test_skills_have_the_members_of_the_app_server_wire_and_public_ones_are_loaded_for_agents_that_do(agent):
    skill = {"name": "greet", "type": "knowledge", "content": "Hi", "triggers": ["hello", 3], "source": "/root/x"}
    agent.replies = {"/skills": {"skills": [skill, "no skill"]}}

    expected = [{"name": "greet", "type": "knowledge", "content": "Hi", "triggers": ["hello"]}]
    assert skills(agent.server(), "/work", {"agent_context": {"load_public_skills": True}}) == expected
    assert skills(agent.server(), "/work", None) == expected
    assert [body["load_public"] for body in agent.posted("/skills")] == [True, False]
    assert {body["project_dir"] for body in agent.posted("/skills")} == {"/work"}


def test_hooks_stand_by_the_event_that_calls_them(agent):
    matcher = {"matcher": "*", "hooks": [{"type": "command", "command": "true", "timeout": 60, "async": False}]}
    agent.replies = {"/hooks": {"hook_config": {"stop": [matcher], "pre_tool_use": []}}}

    assert hooks(agent.server(), ".") == [{"event_type": "stop", "matchers": [matcher]}]
    agent.replies = {"/hooks": {"hook_config": None}}
    assert hooks(agent.server(), ".") == []


INSIDE = [
    (".", "a/b", "a/b"),
    (".", ".", "."),
    (".", "", "."),
    (".", "/workspace/project/a", "a"),
    (".", "/workspace/project", "."),
    ("/work/of", "/work/of/a/../b", "b"),
    ("/work/of", "/workspace/project/a", "a"),
    ("/work/of", "./a//b", "a/b"),
]


def test_a_path_in_the_folder_becomes_relative_to_it():
    assert [(folder, path, within(folder, path)) for folder, path, _ in INSIDE] == INSIDE


@pytest.mark.parametrize(
    ("cwd", "named", "seen"),
    [("/s/work", ".", "/s/work"), ("/s/work", "a/b", "/s/work/a/b"), ("/s/work", "/other", "/other"), ("", ".", ".")],
)
def test_the_folder_of_a_conversation_is_seen_where_its_agent_prints_it(cwd, named, seen):
    state = {
        "info": {"workspace": {"working_dir": named}},
        "sandbox": SimpleNamespace(id="box", working_dir=cwd, linked_dir=""),
    }

    assert seen_folder(state) == seen


@pytest.mark.parametrize("named", ["sub", "/app/sub", "/data/real/sub"], ids=["relative", "by its spec", "by pwd"])
def test_the_folder_is_found_by_the_path_that_pwd_prints_and_by_the_one_with_a_symlink_in_the_way(named):
    state = {
        "info": {"workspace": {"working_dir": named}},
        "sandbox": SimpleNamespace(id="box", working_dir="/data/real", linked_dir="/app"),
    }

    assert (seen_folder(state), linked_folder(state)) == ("/data/real/sub", "/app/sub")
    assert kept_folder(state) == "/app/sub"  # a runtime knows the folder by the path of its spec
    for path in ("/data/real/sub/a", "/app/sub/a", "/app/sub/x/../a", "a"):
        assert within(seen_folder(state), path, linked=linked_folder(state)) == "a"
    for path in ("/app", "/app/subs", "/data/real", "/app/sub/../x"):
        with pytest.raises(PathOutside):
            within(seen_folder(state), path, linked=linked_folder(state))
    state["sandbox"].linked_dir = ""
    assert (linked_folder(state), kept_folder(state)) == ("", named if named == "/app/sub" else "sub")


def test_the_folder_that_pwd_prints_is_the_folder_itself_and_no_folder_beside_it():
    state = {"info": {}, "sandbox": SimpleNamespace(id="box", working_dir="/s/work", linked_dir="")}

    assert [within(seen_folder(state), path) for path in ("/s/work", "/s/work/", "/s/work/a/b")] == [".", ".", "a/b"]
    for path in ("/s/workshop", "/s", "/s/work/../other", "/S/work"):
        with pytest.raises(PathOutside):
            within(seen_folder(state), path)


def test_a_path_that_leads_out_of_the_folder_is_refused():
    paths = ("..", "../a", "a/../..", "/", "/etc", "/work/other", "/work/of/../x", "//work", "a\0b")
    assert taken(paths, lambda path: within("/work/of", path), PathOutside) == []


OLD, NEW = "/old/sandboxes/h/b0x/work", "/new/sandboxes/h/b0x/work"


@pytest.mark.parametrize("started", [False, True])
def test_a_folder_that_was_restored_below_another_data_folder_is_found_before_its_sandbox_starts_and_after(started):
    """Until its start a restored sandbox has the path that its agent printed last."""
    box = SimpleNamespace(id="b0x", working_dir=NEW if started else OLD, linked_dir="")
    state = {"sandbox": box, "info": {"workspace": {"working_dir": f"{OLD}/project"}}}
    assert folder_of(state) == f"{box.working_dir}/project"
    assert kept_folder(state) == "project"


def test_a_folder_elsewhere_stays_as_it_is():
    box = SimpleNamespace(id="b0x", working_dir=NEW, linked_dir="")
    state = {"sandbox": box, "info": {"workspace": {"working_dir": "/home/me/project"}}}
    assert folder_of(state) == kept_folder(state) == "/home/me/project"

"""The folder of a sandbox that stands for the one which a client's own body asks for."""

import pytest

from agents.requests import folder_for, own_request


@pytest.mark.parametrize(
    ("asked", "folder"),
    [
        ("/home/somebody/project", "/box/work"),
        ("/", "/box/work"),
        ("/box", "/box/work"),
        ("/box/workshop", "/box/work"),
        ("/box/work/../..", "/box/work"),
        ("../../etc", "/box/work"),
        ("sub/../../other", "/box/work"),
        ("", "/box/work"),
        (".", "/box/work"),
        ("C:/Users/x", "/box/work"),
        ("C:\\Users\\x", "/box/work"),
        ("odd\0name", "/box/work"),
        ("/box/work", "/box/work"),
        ("/box/work/project", "/box/work/project"),
        ("/box/work/a/../b/", "/box/work/b"),
        ("workspace/project", "/box/work/workspace/project"),
    ],
)
def test_a_folder_inside_the_sandboxs_is_kept_and_any_other_is_the_sandboxs_own(asked, folder):
    assert folder_for(asked, "/box/work") == folder


def test_a_sandbox_of_an_older_release_whose_folder_is_unknown_is_where_its_agent_server_runs():
    assert folder_for("/home/x", ".") == folder_for("x/y", ".") == "."


def test_a_body_without_a_workspace_stays_without():
    assert own_request("id", {"agent": {}, "odd": 1}, "/w") == {"agent": {}, "odd": 1, "conversation_id": "id"}

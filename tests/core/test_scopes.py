"""Where conversations begin, as rules name it; and which rules hold there."""

import pytest

from core.scopes import (
    NOWHERE,
    Origin,
    folder_fault,
    folder_name,
    holds_in,
    repository_fault,
    repository_name,
    scopes_of,
)


@pytest.mark.parametrize(
    ("repository", "provider", "name"),
    [
        ("ada/shop", None, "github.com/ada/shop"),
        ("ada/shop", "gitlab", "gitlab.com/ada/shop"),
        ("group/sub/shop", "gitlab", "gitlab.com/group/sub/shop"),
        ("https://github.com/ada/shop", None, "github.com/ada/shop"),
        ("https://GitHub.com/ada/shop.git/", None, "github.com/ada/shop"),
        ("https://ada@git.example.org:8443/team/shop.git", None, "git.example.org:8443/team/shop"),
        ("git@github.com:ada/shop.git", None, "github.com/ada/shop"),
        ("ssh://git@github.com/ada/shop", None, "github.com/ada/shop"),
        ("ada/shop", "azure_devops", ""),
        ("shop", None, ""),
        ("https://github.com/ada/..", None, ""),
        ("https://github.com/ada/shop?x=/..", None, ""),
        ("/srv/git/shop", None, ""),
        ("", None, ""),
        (None, None, ""),
    ],
)
def test_a_repository_has_one_name_however_it_is_cloned(repository, provider, name):
    assert repository_name(repository, provider) == name
    assert not name or repository_fault(name) is None


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home/ada/shop", "/home/ada/shop"),
        ("/home/ada//shop/./", "/home/ada/shop"),
        ("//srv/shop", "/srv/shop"),
        ("/home/ada/../bob", ""),
        ("/", ""),
        ("/.", ""),
        ("shop", ""),
        ("", ""),
        ("/a\0b", ""),
        (None, ""),
        ("/" + "x" * 2000, ""),
    ],
)
def test_a_folder_is_absolute_and_has_no_way_up(path, name):
    assert folder_name(path) == name
    assert not name or folder_fault(name) is None


def test_a_rule_of_a_scope_holds_nowhere_that_is_not_known():
    for member in ("key_id", "repository", "folder"):
        scope = {"key_id": None, "repository": None, "folder": None, member: "/x/y"}
        for is_wide in (False, True):
            assert not holds_in(NOWHERE, **scope, is_wide=is_wide)


def test_the_scopes_of_a_conversation_are_those_that_are_known_and_each_holds_there():
    origin = Origin("key-1", "github.com/ada/shop", "/home/ada/shop")
    scopes = scopes_of("5f1c", origin, "ada")
    assert [one.name for one in scopes] == ["conversation", "folder", "repository", "key", "everywhere"]
    for scope in scopes[1:]:
        members = {name: scope.members.get(name) for name in ("key_id", "repository", "folder")}
        assert holds_in(origin, **members)
    assert [one.name for one in scopes_of("5f1c", NOWHERE, "")] == ["conversation", "everywhere"]

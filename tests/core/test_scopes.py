"""Where conversations begin, as rules name it; and which rules hold there."""

import pytest

from core.scopes import (
    NOWHERE,
    Origin,
    folder_fault,
    folder_name,
    holds_in,
    narrowest_useful,
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


def test_a_scoped_rule_does_not_hold_for_an_unknown_origin():
    for member in Origin._fields:
        for is_wide in (False, True):
            assert not holds_in(NOWHERE, {member: "/x/y"}, is_wide)


def test_a_conversation_offers_each_scope_of_its_known_origin():
    origin = Origin("key-1", "github.com/ada/shop", "/home/ada/shop")
    scopes = scopes_of("5f1c", origin, "ada")
    assert [one.name for one in scopes] == ["conversation", "folder", "repository", "key", "everywhere"]
    for scope in scopes[1:]:
        assert holds_in(origin, scope.members)
    assert [one.name for one in scopes_of("5f1c", NOWHERE, "")] == ["conversation", "everywhere"]


def test_an_external_agent_is_offered_its_key_first_and_its_reported_origin_only_with_that_key():
    origin = Origin("key-1", "", "/home/ada/shop", "laptop", "ada", "claude-code")
    scopes = scopes_of("5f1c", origin, "hooks")
    assert narrowest_useful(scopes).name == "key"
    assert [one.name for one in scopes] == [
        *("conversation", "folder", "machine", "person", "agent", "key", "everywhere"),
    ]
    folder, machine = scopes[1:3]
    assert dict(folder.members) == {"folder": "/home/ada/shop", "machine": "laptop", "key_id": "key-1"}
    words = "in every conversation in the folder `/home/ada/shop` on the machine `laptop` that the key `hooks` starts"
    assert folder.words == words
    assert dict(machine.members) == {"machine": "laptop", "key_id": "key-1"}
    for scope in scopes[1:-1]:
        assert holds_in(origin, scope.members)
        assert not holds_in(origin._replace(key_id="key-2"), scope.members)


def test_without_keys_the_folder_on_its_machine_is_offered_first():
    scopes = scopes_of("5f1c", Origin("", "", "/home/ada/shop", "laptop", "ada", "claude-code"), "")
    assert dict(narrowest_useful(scopes).members) == {"folder": "/home/ada/shop", "machine": "laptop"}


def test_a_rule_for_a_machine_approves_by_its_exact_name_and_rejects_whatever_its_case():
    origin = Origin(machine="Laptop", person="ada", agent="claude-code")
    assert not holds_in(origin, {"machine": "laptop"})
    assert holds_in(origin, {"machine": "laptop"}, is_wide=True)
    assert not holds_in(origin, {"machine": "lap"}, is_wide=True)


def test_an_external_asker_is_described_in_a_line_and_a_sandbox_is_not():
    assert Origin("k", "", "/w", "laptop", "ada", "codex").asker == "codex · ada@laptop · /w"
    assert Origin("k", "", "/w", "laptop", "", "codex").asker == "codex · laptop · /w"
    assert Origin("k", "github.com/ada/shop", "/w").asker == ""

"""What can be the repository of a start, by the table that the console's rule is tested against too."""

import json
import re
from pathlib import Path

import pytest

from core.repositories import CLONED, REPOSITORY_FAULT, clone_fault, clone_folder, clone_host, clone_url

TABLE = json.loads(Path(__file__).with_name("repositories.json").read_text())


@pytest.mark.parametrize("repository", TABLE["accepted"])
def test_what_git_can_clone_is_accepted_and_has_the_name_of_a_folder(repository):
    assert clone_fault(repository, None) == ""
    assert re.fullmatch(r"[\w.][\w.-]*", clone_folder(repository), re.ASCII)
    assert clone_folder(repository) not in (".", "..", ".git")


@pytest.mark.parametrize("repository", TABLE["refused"])
def test_what_can_be_no_repository_is_refused(repository):
    assert clone_fault(repository, None) == REPOSITORY_FAULT


def test_the_rule_takes_time_that_grows_with_the_text_alone():
    assert not re.fullmatch(CLONED, "https://" + "a/" * 500 + "?")


@pytest.mark.parametrize(
    ("repository", "provider", "url", "host"),
    [
        ("owner/name", None, "https://github.com/owner/name.git", "github.com"),
        ("owner/name.git", "github", "https://github.com/owner/name.git", "github.com"),
        ("owner/name/", None, "https://github.com/owner/name.git", "github.com"),
        ("group/sub/name", "gitlab", "https://gitlab.com/group/sub/name.git", "gitlab.com"),
        ("https://git.example.org:8443/a/b", None, "https://git.example.org:8443/a/b", "git.example.org"),
        ("git@Git.example.org:a/b.git", "gitlab", "git@Git.example.org:a/b.git", "git.example.org"),
        ("file:///srv/name", None, "file:///srv/name", ""),
    ],
)
def test_a_repository_is_cloned_from_its_provider_or_its_url(repository, provider, url, host):
    assert (clone_url(repository, provider), clone_host(repository, provider)) == (url, host)


def test_a_short_name_at_a_provider_without_a_known_host_needs_its_url():
    assert clone_fault("owner/name", "forgejo") == "Write its URL: this server does not know where forgejo is"
    assert clone_fault("https://forge.example.org/owner/name", "forgejo") == ""
    assert clone_fault("owner/name", "bitbucket") == ""

"""Files that usually hold secrets: no wildcard of a rule that approves stands for them."""

import pytest

from core.effects import seen
from core.paths import fits_path, rejects_path
from core.shell import read_line
from core.shell.rules import allowed, command_pattern

#: Names of each kind: some once were known to the rules alone, others to what the server sees alone.
SECRETS = [
    *(".env", ".env.test", ".env.local", "a/.envrc", "_netrc", ".netrc", ".my.cnf", ".vault-token", ".htpasswd"),
    *("config/secrets.yml", "secret.json", "authorized_keys", "a.keystore", "a.ppk", "id_rsa_old", "x.kdbx"),
    *("/etc/shadow", "/etc/shadow-", "/etc/sudoers.d/a", "/proc/1/environ", "/srv/etc/shadow", "/run/secrets/db"),
    *("/root/.config/gh/hosts.yml", "/root/.cargo/credentials.toml", "/root/.terraform.d/x", "/root/.docker/x"),
    *("/root/.ssh/id_rsa.pub", "/root/.azure/a", "/root/.kube/config", "a/.aws/config", "src/credentials/a.txt"),
    *("http://169.254.169.254/latest", "metadata.google.internal/x"),
]


@pytest.mark.parametrize("path", SECRETS)
def test_rules_and_effects_recognise_the_same_secret_files(path):
    line = f"cat {path}"
    assert "credentials" in seen("terminal", {"command": line}, "/w").names
    assert "credentials" in seen("file_editor", {"command": "view", "path": path}, "/w").names
    assert not allowed(command_pattern("cat *"), read_line(line))
    assert not fits_path("/**" if path.startswith("/") else "**", path)
    assert fits_path(path, path) or ":" in path


@pytest.mark.parametrize("path", [".env.example", "a/.env.sample", "src/a.py", "keys.md", "environment.ts", "etc/a"])
def test_neither_rules_nor_effects_take_an_ordinary_file_for_a_secret_one(path):
    assert "credentials" not in seen("terminal", {"command": f"cat {path}"}, "/w").names
    assert fits_path("**", path)


@pytest.mark.parametrize(
    "line",
    [
        *("cat .env", "cat src/.env.production", "cat ~/.ssh/id_rsa", "cat /root/.aws/credentials", "cat .npmrc"),
        *(
            "cat /etc/shadow",
            "cat /proc/1/environ",
            "cat a.py key.pem",
            "cat .e*",
            "cat < .netrc",
            "bash -c 'cat .env'",
        ),
    ],
)
def test_no_wildcard_of_a_command_pattern_matches_a_secret_file(line):
    assert not allowed(command_pattern("cat *"), read_line(line)) or read_line(line).doubts


@pytest.mark.parametrize(
    "line", ["cat a.py", "cat .env.example", "cat src/*.py", "cat environment.py", "cat ../a", "cat $x"]
)
def test_other_files_are_covered(line):
    assert allowed(command_pattern("cat *"), read_line(line))


def test_a_pattern_that_names_the_file_allows_it():
    assert allowed(command_pattern("cat .env"), read_line("cat .env"))


def test_a_path_pattern_matches_a_secret_file_only_in_a_rejecting_rule():
    assert not fits_path("src/**", "src/.env")
    assert not fits_path("src/**", "src/keys/a.pem")
    assert rejects_path("src/**", "src/.env") is True

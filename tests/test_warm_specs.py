"""How many warm sandboxes a spec keeps, and its version, by which those of an earlier text of the spec are known."""

import pytest

from config import ConfigError
from specs import MOST_WARM, Specs

SPEC = """
[[spec]]
id = "one"
command = ["agent"]
created_at = 2026-11-21T00:00:00Z
"""


@pytest.fixture
def spec(tmp_path):
    """The spec of that text, with more lines."""

    def load(*lines: str):
        path = tmp_path / "specs.toml"
        path.write_text("\n".join((SPEC, *lines)))
        return Specs.load(str(path)).all[0]

    return load


def test_a_spec_keeps_none_warm_unless_it_says_so(spec):
    assert spec().warm == 0
    assert spec(f"warm = {MOST_WARM}").warm == MOST_WARM


@pytest.mark.parametrize("number", ["-1", str(MOST_WARM + 1), "1.5", '"2"', "true"])
def test_another_number_is_refused_by_name(spec, number):
    with pytest.raises(ConfigError, match="warm: "):
        spec(f"warm = {number}")


def test_the_version_is_the_same_for_the_same_spec_and_for_another_number(spec):
    assert spec().version == spec().version == spec("warm = 3").version


@pytest.mark.parametrize(
    "line",
    ["idle_pause_seconds = 1", 'initial_env = { A = "1" }', 'secret_env = { A = "1" }', "ports = { AGENT_SERVER = 1 }"],
)
def test_another_text_is_another_version(spec, line):
    assert spec(line).version != spec().version


def test_another_secret_is_another_version_which_does_not_show_it(spec, monkeypatch):
    monkeypatch.setenv("GIVEN", "a secret")
    before = spec('secret_env = { A = "{env:GIVEN}" }').version
    monkeypatch.setenv("GIVEN", "another secret")

    assert spec('secret_env = { A = "{env:GIVEN}" }').version != before
    assert "secret" not in before

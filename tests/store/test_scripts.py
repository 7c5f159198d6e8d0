"""The scripts' contracts: every head is complete, and no script touches keys of another conversation."""

import re

import pytest

from store.scripts import DecidingScript, Scripts
from store.scripts.texts import sources
from tests.conftest import as_events, event
from tests.servers import PROJECT

FOLDER = PROJECT / "store" / "scripts"
SCRIPTS = sources()


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_head_is_a_contract(name):
    text = (FOLDER / f"{name}.lua").read_text()
    head = text[: re.search(r"^(?!--)", text, re.MULTILINE).start()]

    assert head.startswith(f"-- {name}: ")
    assert re.findall(r"^-- (KEYS|ARGV|Returns|Cost|Idempotent)  \S", head, re.MULTILINE) == [
        "KEYS",
        "ARGV",
        "Returns",
        "Cost",
        "Idempotent",
    ]
    assert re.search(r"^-- Cost  O\(", head, re.MULTILINE)


#: scripts that name all their keys, and that no cluster is asked to run
OF_MANY_SLOTS = {"read_versions"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_only_keys_below_the_root_are_touched(name):
    code = re.sub(r"--.*", "", SCRIPTS[name])

    if name not in OF_MANY_SLOTS:
        assert re.findall(r"KEYS\[(\d+)\]", code) == ["1"]
    assert not re.search(r"'(KEYS|SCAN|FLUSHALL|FLUSHDB|RANDOMKEY)'", code)
    local = {"key"}  # built as root .. ':at:' .. pair by the caller
    for command, key in re.findall(r"(?:redis\.call|call_with_all)\('(\w+)',\s*([^,)]+)", code):
        assert key.startswith("root") or key.strip() in local, f"{command} {key}"


def test_every_script_is_declared_and_no_other():
    assert set(Scripts.__annotations__) == set(SCRIPTS)


def test_scripts_stay_short():
    for path in FOLDER.glob("*.lua"):
        code = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("--")]
        assert len(code) <= 90, path.name


def test_events_whose_names_look_like_keys_are_counted_apart(store, conversation):
    # Given names that look like keys
    odd = [event("a:b", "c"), event("a", "b:c"), event("{x}", "*"), event("%3A", "{conv}")]
    store.events.append(conversation, as_events(odd))

    # Then each name is counted apart
    for one in odd:
        assert store.events.count(conversation, kind=one["kind"], source=one["source"]) == 1
    assert store.events.count(conversation, kind="*") == 0
    assert store.events.count(conversation, source="*") == 1


#: scripts of sandboxes whose callers still compare bytes
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_whose_head_names_outcomes_is_declared_as_deciding(name):
    returns = re.search(r"^-- Returns  (.*?)\n-- Cost", (FOLDER / f"{name}.lua").read_text(), re.M | re.S)[1]

    assert (Scripts.__annotations__[name] is DecidingScript) == ('"' in returns)


def test_a_script_that_the_server_has_forgotten_is_sent_again(store, conversation):
    store.events.append(conversation, as_events([event()]))
    store.conversations._redis.script_flush()

    store.events.append(conversation, as_events([event()]))

    assert store.events.count(conversation) == 2

"""The scripts' heads: each says what its script does, and no script touches keys of another conversation."""

import re
from uuid import uuid4

import pytest

from core.bounds import AS_REDIS
from docs import script_calls
from store.errors import NewerData, StoreFull
from store.keys import DATA_VERSION, VERSION
from store.scripts import Scripts, ScriptSource, read_head, sources
from store.scripts.calls import Calls
from store.scripts.heads import preamble
from tests.conftest import as_events, event, limits_of, store_of
from tests.servers import PROJECT, store_server

FOLDER = PROJECT / "store" / "scripts"
SCRIPTS = sources()


#: the keys below a conversation's root that a freezing moves
KEYS_OF_A_LOG = re.compile(r"':(?:(?:log|seqs|ids|peaks)'|(?:at|text):)")

#: the commands by which scripts read
READING = {
    *("EXISTS", "GET", "MEMORY", "PTTL", "STRLEN", "TIME", "HEXISTS", "HGET", "HGETALL", "HKEYS", "HLEN", "HMGET"),
    *("LINDEX", "LLEN", "LRANGE", "SCARD", "SMEMBERS", "SMISMEMBER", "XLEN", "XRANGE", "XREVRANGE"),
    *("ZCARD", "ZCOUNT", "ZMSCORE", "ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE", "ZREVRANGE", "ZREVRANGEBYLEX", "ZSCORE"),
}

#: built as root .. ':at:' .. pair, root .. ':box:' .. sandbox
LOCAL = {"key", "box"}

#: a head with all its lines, by name
COMPLETE = {
    **{"KEYS": "1 root", "ARGV": "1 id", "Returns": "1", "Cost": "O(1)", "Idempotent": "by id"},
    **{"Log": "needed", "Kept": "not proven: it is done again", "Brings": "bytes"},
}


def calls(code: str) -> list[tuple[str, str]]:
    """Each command of a script's code, with its first argument."""
    return re.findall(r"(?:redis\.call|call_with_all)\(\s*'(\w+)',?\s*([^,)]*)", code)


def hidden(script: ScriptSource) -> set[str]:
    """The locals of the shared code that an argument of the script hides."""
    if not script.contract.arguments:
        return set()
    shared = script.text.partition(preamble(script.contract))[0]
    names = set(re.findall(r"^local (?:function )?(\w+)", shared, re.MULTILINE))
    return names & {one.name for one in script.contract.arguments}


def faults(name: str) -> list[str]:
    """What is wrong with a script and its head."""
    script, own = SCRIPTS[name], (FOLDER / f"{name}.lua").read_text()
    code, says = re.sub(r"--.*", "", script.text), script.head.get("Log")
    touched = calls(code)
    own_commands = {command for command, _ in calls(re.sub(r"--.*", "", own))}
    names_log = KEYS_OF_A_LOG.search(code) is not None
    guards = script.as_sent(AS_REDIS, in_cluster=False).count("'COLD '") - script.text.count("'COLD '")
    right = {
        "begins with its name": own.startswith(f"-- {name}: "),
        "has one key": re.findall(r"KEYS\[(\d+)\]", code) == ["1"],
        "asks for no keys of others": not re.search(r"'(KEYS|SCAN|FLUSHALL|FLUSHDB|RANDOMKEY)'", code),
        "takes no name of what it includes for an argument": not hidden(script),
        "writes nothing where it says so": script.writes or own_commands <= READING,
        "names keys of a log where it says so": says == "guarded here" or names_log == ("Log" in script.head),
        "looks at `cold` where it guards itself": says != "guarded here" or "'cold'" in code,
        "has the guard where it needs the log, and nowhere else": guards == (says == "needed"),
    }
    outside = [key for _, key in touched if key and not key.startswith("root") and key.strip() not in LOCAL]
    return [what for what, holds in right.items() if not holds] + [f"touches {key}" for key in outside]


def test_every_head_says_what_its_script_does_and_each_touches_keys_below_its_root_alone():
    assert {name: found for name in SCRIPTS if (found := faults(name))} == {}


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ({"Cost": None}, "has the lines KEYS, .*, Returns, Idempotent, Log, .* and should have .* Returns, Cost, Idem"),
        ({"Idempotent": "reads only"}, "should have KEYS, ARGV, Returns, Cost, Idempotent, Log$"),
        ({"Idempotent": "reads only", "Log": None, "Kept": None}, "Brings, and should have .* Cost, Idempotent$"),
        ({"Owner": "nobody"}, "has the lines .*, Owner, and should have"),
        ({"Brings": "bytes\n-- a word"}, "has the line '-- a word', which is none of KEYS, "),
        ({"Brings": "bytes\n-- Log  needed"}, "has the lines .* Brings, Log, and should have"),
        ({"Log": "maybe"}, "its line Log says 'maybe', and may say needed"),
        ({"Log": "none"}, "its line Log says 'none', and may say needed"),
        ({"Log": "not guarded: "}, "its line Log says 'not guarded:"),
        ({"Kept": "not proven"}, "its line Kept says 'not proven', and may say not proven: "),
        ({"Kept": "proven"}, "its line Kept says 'proven', and may say not proven: "),
        ({"Cost": "little"}, "its line Cost says 'little'"),
    ],
)
def test_a_head_that_is_not_complete_ends_the_start_with_its_name(lines, problem):
    head = "".join(f"-- {line}  {says}\n" for line, says in {**COMPLETE, **lines}.items() if says is not None)

    with pytest.raises(ValueError, match=f"^do_it.lua: .*{problem}"):
        read_head("do_it.lua", f"-- do_it: do it.\n{head}return 1\n")


def test_a_line_of_a_head_goes_on_below_itself():
    described = {**COMPLETE, "ARGV": "1 id\n--       2 name", "Kept": "not proven: it is\n--   done again"}
    head = "".join(f"-- {line}  {says}\n" for line, says in described.items())

    read = read_head("do_it.lua", f"-- do_it: do it.\n-- And well.\n{head}-- include: _log.lua\n-- code begins\n")

    assert read == {**COMPLETE, "ARGV": "1 id 2 name", "Kept": "not proven: it is done again"}


def test_every_script_is_called_by_its_own_method_and_takes_its_arguments_by_name():
    methods = {name for name in vars(Calls) if not name.startswith("_")}
    assert methods == set(SCRIPTS)
    assert {f"_{name}" for name in SCRIPTS} == set(vars(Scripts(None)))
    bodies = {path.name: re.sub(r"--.*", "", path.read_text()) for path in FOLDER.glob("*.lua")}
    assert [name for name, body in bodies.items() if "ARGV" in body] == []


def test_the_scripts_that_bring_something_ask_for_room_and_no_other_does(store):
    def full():
        raise StoreFull(99, 100)

    scripts = Scripts(store.conversations._redis, require_room=full)

    asking = set()
    for name in SCRIPTS:
        script = getattr(scripts, f"_{name}")
        script._send = lambda _: None
        try:
            script(["{nowhere}"], [])
        except StoreFull:
            asking.add(name)
    assert asking == {name for name, script in SCRIPTS.items() if script.brings_bytes}
    assert asking >= {
        "append_events",
        "send_message",
        "create_conversation",
        "start_sandbox",
        "put_secrets",
        "thaw_piece",
        "ask_destination",
    }
    assert not asking & {"decide_pending", "change_status", "delete_conversation", "revoke_access_key", "stop_sandbox"}


def test_scripts_that_write_behind_an_effect_go_on_in_a_full_redis_and_bring_nothing():
    going = {name for name, script in SCRIPTS.items() if script.goes_on}

    assert going >= {"note_conversation", "note_approvals", "end_idempotency_claim", "close_delivery"}
    assert not {name for name in going if SCRIPTS[name].brings_bytes}
    for name, script in SCRIPTS.items():
        first = {script.as_sent(AS_REDIS, in_cluster=one).partition("\n")[0] for one in (True, False)}
        assert (first == {"#!lua flags=allow-oom"}) == (name in going)


def test_no_script_writes_to_data_of_a_newer_release(tmp_path):
    with store_server(tmp_path) as (url, _):
        store = store_of(url, limits_of(1, pause_idlest=False, host_seconds=60, start_seconds=60))
        conversation = str(uuid4())
        store.conversations.create(conversation)
        store.events.append(conversation, as_events([event()]))
        store.conversations._redis.set(DATA_VERSION, VERSION + 1)

        with pytest.raises(NewerData, match=f"version {VERSION + 1}, but this server knows version {VERSION}"):
            store.events.append(conversation, as_events([event()]))
        with pytest.raises(NewerData):
            store.events.send(conversation, content=[], run=False)
        with pytest.raises(NewerData):
            store.conversations.delete(conversation)
        assert store.events.count(conversation) == 1


def test_the_calls_are_made_while_an_annotation_names_a_class_that_they_do_not_have_yet():
    calls = script_calls._AnyCalls("calls")

    assert calls.SendChunk.Closed | None


def test_scripts_stay_short():
    lines = {path.name: path.read_text().splitlines() for path in FOLDER.glob("*.lua")}
    code = {name: [line for line in text if line.strip() and not line.startswith("--")] for name, text in lines.items()}
    assert {name: len(text) for name, text in code.items() if len(text) > 300} == {}


def test_events_whose_names_look_like_keys_are_counted_apart(store, conversation):
    # Given names that look like keys
    odd = [event("a:b", "c"), event("a", "b:c"), event("{x}", "*"), event("%3A", "{conv}")]
    store.events.append(conversation, as_events(odd))

    # Then each name is counted apart
    for one in odd:
        assert store.events.count(conversation, kind=one["kind"], source=one["source"]) == 1
    assert store.events.count(conversation, kind="*") == 0
    assert store.events.count(conversation, source="*") == 1


def test_a_script_that_the_server_has_forgotten_is_sent_again(store, conversation):
    store.events.append(conversation, as_events([event()]))
    store.conversations._redis.script_flush()

    store.events.append(conversation, as_events([event()]))

    assert store.events.count(conversation) == 2

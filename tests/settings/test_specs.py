"""The file of sandbox specs: its valid content, and the sentence with which an invalid file stops the start.

Also what a spec of a pod may say, how many warm sandboxes a spec keeps, and its version, by which those of an earlier
text of the spec are known.
"""

from datetime import UTC, datetime

import pytest

from settings import ConfigError
from settings.specs import BUNDLED, MOST_WARM, SpecNotFound, Specs, _Spec
from tests.refusals import is_refused, taken

GOOD = {"id": '"a"', "command": '["run", "{AGENT_SERVER}"]', "created_at": "2026-11-21T10:00:00+02:00"}


def written(tmp_path, text: str) -> str:
    path = tmp_path / "specs.toml"
    path.write_text(text)
    return str(path)


def one(**members: str) -> str:
    return "[[spec]]\n" + "".join(f"{key} = {value}\n" for key, value in {**GOOD, **members}.items() if value)


def test_the_bundled_file_runs_the_reference_agent():
    specs = Specs.load("")
    assert specs.get(None).id == "reference-agent"
    assert "reference_agent" in specs.get(None).command
    assert specs.get(None).conversation["confirmation_policy"] == {"kind": "AlwaysConfirm"}


def test_every_key_is_explained_in_the_bundled_file():
    explained = {line[2:].split(" ")[0] for line in BUNDLED.read_text().splitlines() if line.startswith("# ")}
    assert explained >= set(_Spec().fields)


def test_an_absent_key_has_its_default(tmp_path):
    [spec] = Specs.load(written(tmp_path, one())).all
    assert (spec.runtime, spec.working_dir, spec.initial_env, spec.secret_env) == ("process", ".", {}, {})
    assert (spec.isolation, spec.readable, spec.network) == ("auto", (), None)
    assert spec.disk_bytes == 10_240 << 20
    assert spec.ports == {"AGENT_SERVER": 8000}
    assert (spec.idle_pause_seconds, spec.max_seconds) == (0, 0)
    assert (spec.memory_bytes, spec.cpus, spec.processes, spec.image) == (None, None, None, None)
    assert spec.confirmation_seconds is None
    assert spec.created_at == datetime(2026, 11, 21, 8, tzinfo=UTC)


def a_container(**members: str) -> str:
    return one(runtime='"docker"', image='"some/image:1"', **members)


def test_a_container_is_hardened_unless_its_spec_loosens_it(tmp_path):
    [spec] = Specs.load(written(tmp_path, a_container())).all
    assert (spec.read_only, spec.capabilities, spec.new_privileges, spec.network) == (True, (), False, None)


def test_a_spec_can_loosen_each_hardening_of_a_container(tmp_path):
    loose = {"read_only": "false", "capabilities": '["NET_RAW"]', "new_privileges": "true", "network": '"mine"'}
    [spec] = Specs.load(written(tmp_path, a_container(**loose, working_dir='"/workspace"'))).all
    assert (spec.read_only, spec.capabilities, spec.new_privileges, spec.network) == (False, ("NET_RAW",), True, "mine")


def test_limits_are_read(tmp_path):
    [spec] = Specs.load(written(tmp_path, one(limits="{ memory_mb = 512, cpus = 1.5, processes = 64 }"))).all
    assert (spec.memory_bytes, spec.cpus, spec.processes) == (512 << 20, 1.5, 64)


def test_a_limit_of_zero_is_lifted(tmp_path):
    [spec] = Specs.load(written(tmp_path, one(limits="{ memory_mb = 0, processes = 0, disk_mb = 0 }"))).all
    assert (spec.memory_bytes, spec.processes, spec.disk_bytes) == (0, 0, None)


def test_no_value_of_an_environment_is_in_the_repr_of_a_spec(tmp_path):
    environments = {"secret_env": '{ A = "planted" }', "initial_env": '{ API_KEY = "planted too" }'}
    [spec] = Specs.load(written(tmp_path, one(**environments))).all
    assert "planted" not in repr(spec)
    assert spec.secret_env == {"A": "planted"}


def test_a_variable_of_the_server_reaches_what_no_response_shows_and_one_that_is_unset_is_left_out(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("A_KEY", "planted {env:HOME}")
    monkeypatch.setenv("EMPTY", "")
    hidden = '{ A = "{env:A_KEY}", B = "{env:EMPTY}", C = "{env:UNSET}", D = "{env:A_KEY}/{env:UNSET}", E = "plain" }'
    agent = '{ agent = { llm = { model = "openai/{env:A_KEY}", api_key = "{env:UNSET}" }, tools = ["{env:A_KEY}"] } }'
    text = one(secret_env=hidden, conversation=agent, initial_env='{ F = "{env:A_KEY}" }')
    [spec] = Specs.load(written(tmp_path, text)).all

    assert spec.secret_env == {"A": "planted {env:HOME}", "E": "plain"}
    assert spec.conversation["agent"] == {"llm": {"model": "openai/planted {env:HOME}"}, "tools": ["{env:A_KEY}"]}
    assert spec.initial_env == {"F": "{env:A_KEY}"}  # which clients can read
    assert "planted" not in repr(spec)


def test_the_name_of_a_model_is_told_and_its_key_and_a_password_in_its_address_are_not(tmp_path):
    model = 'LLM_MODEL = "openai/named", LLM_API_KEY = "a-key", LLM_BASE_URL = "http://user:a-password@model.example"'
    [spec] = Specs.load(
        written(tmp_path, one(secret_env=f"{{ {model}, MODEL_PRICES = 'named=1/2', OTHER = 'a-text' }}"))
    ).all

    assert sorted(spec.secret_texts) == ["a-key", "a-password", "a-text"]


def test_the_first_spec_is_the_default_and_an_unknown_spec_is_not_found(tmp_path):
    specs = Specs.load(written(tmp_path, one() + one(id='"b"')))
    assert [specs.get(None).id, specs.get("b").id] == ["a", "b"]
    with pytest.raises(SpecNotFound):
        specs.get("c")
    assert specs.find("c") is None


INVALID = [
    (one(id=""), r"spec 1: id: "),
    (one(id='"a b"'), r"spec 1 \(a b\): id: "),
    (one(command=""), r"spec 1 \(a\): command: "),
    (one(command='"ls"'), r"command: "),
    (one(command="[]"), r"command: "),
    (one(created_at=""), r"created_at: "),
    (one(created_at='"2026-11-21T10:00:00Z"'), r"created_at: Must be a date and time with a zone, unquoted"),
    (one(created_at="2026-11-21T10:00:00"), r"created_at: "),
    (one(runtime='"vm"'), r"runtime: Must be one of: process, docker, kubernetes"),
    (one(runtime='"docker"'), r"image: Missing"),
    (a_container(isolation='"required"'), r"isolation: Only for the process runtime"),
    (a_container(readable='["/opt"]'), r"readable: Only for the process runtime"),
    (
        a_container(working_dir='"src"'),
        r"working_dir: Must be \"\.\" \(the image's own\) or an absolute",
    ),
    (a_container(working_dir='"/"'), r"working_dir: Must be"),
    (a_container(read_only='"no"'), r"read_only: "),
    (a_container(capabilities='"NET_RAW"'), r"capabilities: "),
    (
        a_container(capabilities='["net raw"]'),
        r"capabilities\.0: Must be the name of a capability",
    ),
    (a_container(network='"host"'), r"network: Must be a network that publishes ports, neither host nor none"),
    (a_container(network='"container:x"'), r"network: Must be the name of a network of the engine"),
    (a_container(limits="{ memory_mb = 5 }"), r"limits\.memory_mb: Must be at least 6"),
    (one(read_only="false"), r"read_only: Only for the docker and kubernetes runtimes"),
    (one(capabilities='["NET_RAW"]'), r"capabilities: Only for the docker and kubernetes runtimes"),
    (one(new_privileges="true"), r"new_privileges: Only for the docker and kubernetes runtimes"),
    (one(network='"mine"'), r"network: Must be \"internet\" or \"none\" for the process runtime"),
    (one(network='"none"', isolation='"none"'), r"network: Must be absent with isolation"),
    (one(isolation='"bubblewrap"'), r"isolation: Must be one of: auto, required, none"),
    (one(isolated="true"), r"isolated: Replaced by isolation = "),
    (one(readable='["opt"]'), r"readable\.0: Must be an absolute path other than /"),
    (one(readable='["/"]'), r"readable\.0: Must be an absolute path other than /"),
    (one(secret_env="{ A = 1 }"), r"secret_env\.A\.value: "),
    (one(secret_env='{ A = "1" }', initial_env='{ A = "2" }'), r"secret_env: initial_env has A too"),
    (a_container(limits="{ processes = 0 }"), r"limits\.processes: Must be at least 1 for a container"),
    (one(initial_env="{ A = 1 }"), r"initial_env\.A\.value: "),
    (one(ports="{ VSCODE = 8001 }"), r"ports: AGENT_SERVER"),
    (one(ports="{ AGENT_SERVER = 0 }"), r"ports\.AGENT_SERVER\.value: "),
    (one(limits="{ memory = 5 }"), r"limits\.memory: Unknown field"),
    (one(limits="{ memory_mb = -1 }"), r"limits\.memory_mb: "),
    (one(idle_pause_seconds="-1"), r"idle_pause_seconds: "),
    (
        one(conversation='{ agent = { kind = "ACPAgent" }, confirmation_policy = { kind = "AlwaysConfirm" } }'),
        r"conversation: Nothing that an ACPAgent does is held",
    ),
    (
        one(
            conversation='{ agent_settings = { agent_kind = "acp" }, confirmation_policy = { kind = "AlwaysConfirm" } }'
        ),
        r"conversation: Nothing that an ACPAgent does is held",
    ),
    (one(surprise="1"), r"surprise: Unknown field"),
    (one() + one(), r"spec 2 \(a\): id: another spec has the same id"),
    ("", r"spec: the file must only have tables \[\[spec\]\]"),
    ("other = 1\n" + one(), r"other: the file must only have tables"),
    ("spec = 1", r"spec: the file must only have tables"),
    ("[[spec", r"is not TOML"),
]


def test_an_invalid_file_is_refused_with_file_key_and_reason(tmp_path):
    def is_named(text: str, sentence: str) -> bool:
        both = rf"(?s)(?=.*{tmp_path}/specs\.toml).*{sentence}"
        return is_refused(Specs.load, written(tmp_path, text), error=ConfigError, words=both)

    assert [row for row in INVALID if not is_named(*row)] == []


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.toml cannot be read: No such file"):
        Specs.load(str(tmp_path / "nowhere.toml"))


def a_pod(**members: str) -> str:
    return one(**{"runtime": '"kubernetes"', "image": '"some/image:1"', **members})


def test_a_pod_is_hardened_unless_its_spec_loosens_it(tmp_path):
    loose = {"read_only": "false", "capabilities": '["NET_RAW"]', "new_privileges": "true"}
    [plain] = Specs.load(written(tmp_path, a_pod())).all
    assert (plain.read_only, plain.capabilities, plain.new_privileges) == (True, (), False)
    [other] = Specs.load(written(tmp_path, a_pod(**loose))).all
    assert (other.read_only, other.capabilities, other.new_privileges) == (False, ("NET_RAW",), True)


def test_the_limit_of_its_files_is_the_size_of_its_volume(tmp_path):
    [spec] = Specs.load(written(tmp_path, a_pod(limits="{ disk_mb = 100 }"))).all
    assert spec.disk_bytes == 100 << 20


DECIDED = [
    ({"image": '""'}, "image: Missing: the kubernetes runtime needs an image"),
    ({"network": '"mine"'}, "network: Only for the other runtimes: NetworkPolicies"),
    ({"limits": "{ processes = 9 }"}, r"limits\.processes: Only for the other runtimes: podPidsLimit"),
    ({"limits": "{ memory_mb = 1 }"}, r"limits\.memory_mb: Must be at least 6"),
    ({"working_dir": '"/"'}, "working_dir: Must be"),
    ({"isolation": '"required"'}, "isolation: Only for the process runtime"),
]


def test_what_a_cluster_decides_is_refused_by_its_name(tmp_path):
    for members, sentence in DECIDED:
        with pytest.raises(ConfigError, match=sentence):
            Specs.load(written(tmp_path, a_pod(**members)))


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


def test_another_number_is_refused_by_name(spec):
    numbers = ("-1", str(MOST_WARM + 1), "1.5", '"2"', "true")
    assert taken(numbers, lambda number: spec(f"warm = {number}"), ConfigError, "warm: ") == []


def test_the_version_is_the_same_for_the_same_spec_and_for_another_number(spec):
    assert spec().version == spec().version == spec("warm = 3").version


CHANGES = [
    "idle_pause_seconds = 1",
    'initial_env = { A = "1" }',
    'secret_env = { A = "1" }',
    "ports = { AGENT_SERVER = 1 }",
]


def test_another_text_is_another_version(spec):
    assert [line for line in CHANGES if spec(line).version == spec().version] == []


def test_another_secret_is_another_version_which_does_not_show_it(spec, monkeypatch):
    monkeypatch.setenv("GIVEN", "a secret")
    before = spec('secret_env = { A = "{env:GIVEN}" }').version
    monkeypatch.setenv("GIVEN", "another secret")

    assert spec('secret_env = { A = "{env:GIVEN}" }').version != before
    assert "secret" not in before

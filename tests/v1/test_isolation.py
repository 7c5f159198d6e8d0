"""What a whole server says of its sandboxes' isolation, and how conversations run in each."""

from uuid import uuid4

import httpx
import psutil
import pytest

from runtimes.isolation.abilities import abilities
from tests.runtimes.host import lacking
from tests.servers import program, supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.conftest import AGENT

pytestmark = pytest.mark.process("starts two servers whose sandboxes are isolated")

PLANTED = f"planted-{uuid4().hex}"  # no other test's process has it in its command line

SECRETS = AGENT.replace(
    "initial_env = {", f'secret_env = {{ MODEL_SECRET = "{PLANTED}" }}\ninitial_env = {{ A_TOKEN = "{PLANTED}",'
)

SPECS = f"""
[[spec]]
id = "asks"
{SECRETS}

[[spec]]
id = "must"
isolation = "required"
{AGENT}

[[spec]]
id = "bare"
isolation = "none"
{AGENT}
"""


@pytest.fixture(scope="module", params=["bubblewrap", "landlock"])
def whole(request, tmp_path_factory):
    """A server's api and the isolation that its sandboxes have; it does not find bubblewrap where that is Landlock."""
    environment = {}
    if request.param == "bubblewrap":
        program("bwrap")
        if abilities().bubblewrap:
            lacking(abilities().bubblewrap)
    else:
        environment["PATH"] = "/nowhere"
        if not abilities().landlock:
            lacking("this kernel has no Landlock")
    folder = tmp_path_factory.mktemp("isolation")
    (folder / "specs.toml").write_text(SPECS)
    with supervised_server(folder, SANDBOX_SPECS=str(folder / "specs.toml"), **environment) as (client, _):
        yield WireApi(client), request.param, folder


@pytest.fixture
def api(whole):
    yield whole[0]
    whole[0].clean()


def test_server_info_says_what_isolates_the_sandboxes_of_each_host(whole):
    api, kind, folder = whole
    wait_until(lambda: api.client.get("/server_info").json()["isolation"], "the probe of the host")
    info = api.client.get("/server_info").json()

    [host] = info["isolation"]
    assert set(host) == {"host", "kind", "network", "reaches", "lacks", "specs"}
    assert host["kind"] == kind
    assert ("Landlock alone" in (info["notice"] or "")) == (kind == "landlock")
    if kind == "landlock":
        assert any("169.254.169.254" in sentence for sentence in host["reaches"])
        assert "bwrap" in host["lacks"][0]
    words = {"bubblewrap": "are isolated by bubblewrap", "landlock": "are confined by Landlock alone"}
    assert f"the sandboxes of asks {words[kind]}" in (folder / "log").read_text()
    assert "the sandboxes of bare are NOT ISOLATED" in (folder / "log").read_text()
    assert [(one["spec"], one["kind"]) for one in host["specs"]][::2] == [("asks", kind), ("bare", "none")]
    assert "Sandboxes of the spec bare" in info["notice"]


def test_a_conversation_runs_and_its_sandbox_says_what_isolates_it(whole, api):
    first = {"content": [{"type": "text", "text": "run: printf '%s' $MODEL_SECRET$A_TOKEN | wc -c; echo $A_TOKEN"}]}
    conversation = api.app_conversation(initial_message=first)
    wait_until(lambda: api.count(conversation["id"], kind="ObservationEvent") == 1, "the observation")
    [seen] = api.events(conversation["id"], kind__eq="ObservationEvent")

    assert seen["observation"]["content"][0]["text"] == f"{2 * len(PLANTED)}\n<secret-hidden>\n"
    sandbox = api.sandbox(conversation["sandbox_id"])
    assert sandbox["isolation"]["kind"] == whole[1]
    [url] = sandbox["exposed_urls"]
    assert httpx.get(f"{url['url']}/alive").status_code == 200


def test_a_sandbox_that_requires_isolation_runs_in_bubblewrap_alone(whole, api):
    started = api.start_sandbox("must")
    if whole[1] == "bubblewrap":
        assert api.wait_for(started["id"], "RUNNING")["isolation"]["kind"] == "bubblewrap"
    else:
        detail = api.wait_for(started["id"], "ERROR")["status_detail"]
        assert "required" in detail
        assert "bubblewrap does not work here: the program bwrap" in detail


def test_a_sandbox_whose_spec_wants_none_says_that_nothing_isolates_it(api):
    assert api.running_sandbox("bare")["isolation"]["kind"] == "none"


def test_no_planted_value_is_shown(whole, api):
    sandbox = api.running_sandbox()
    spec, *_ = api.call("GET", "/v1/sandbox-specs/search")["items"]
    assert spec["initial_env"]["A_TOKEN"] == spec["initial_env"]["MODEL_SECRET"] == "**********"
    assert spec["initial_env"]["LANG"] == "C.UTF-8"

    shown = [api.client.get(path).text for path in ("/server_info", "/openapi.json", "/api/v1/sandboxes/search")]
    shown.append((whole[2] / "log").read_text())
    shown += [" ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])]
    assert sandbox["id"] in " ".join(shown)
    assert [text for text in shown if PLANTED in text] == []

"""The way out that a spec names: hosts, presets, services, and what stands in a sandbox for the model's key."""

import pytest

from settings import ConfigError
from settings.egress import PLACEHOLDER, secrets_inside
from settings.specs import Missing, Specs, lacks_model, model_of
from tests.refusals import taken

HEAD = '[[spec]]\nid = "a"\ncommand = ["run"]\ncreated_at = 2026-11-21T10:00:00Z\n'
NAMED = 'egress = "named"\n'
MODEL = """\
[spec.secret_env]
LLM_MODEL = "{env:LLM_MODEL}"
LLM_API_KEY = "{env:LLM_API_KEY}"
LLM_BASE_URL = "{env:LLM_URL}"
"""


@pytest.fixture
def load(tmp_path):
    def load(text: str):
        (tmp_path / "specs.toml").write_text(HEAD + text)
        return Specs.load(str(tmp_path / "specs.toml")).get(None)

    return load


def service(**members: str) -> str:
    given = {"name": '"git"', "base_url": '"https://git.example/api"', **members}
    return NAMED + "[[spec.service]]\n" + "".join(f"{name} = {value}\n" for name, value in given.items() if value)


def test_without_a_word_the_way_out_is_open_and_with_no_network_there_is_none(load):
    assert load("").egress == "open"
    assert load('network = "none"\n').egress == "none"
    assert load('egress = "none"\n').egress == "none"


def test_containers_and_pods_have_each_way_out(load):
    for runtime in ("docker", "kubernetes"):
        for egress in ("named", "none", "open"):
            assert load(f'egress = "{egress}"\nruntime = "{runtime}"\nimage = "i"\n').egress == egress


def test_a_named_way_out_has_all_presets_unless_it_says_which(load):
    spec = load(NAMED)
    assert any(host.allows("pypi.org", 443) for host in spec.allowed_hosts)
    assert (
        load(NAMED + 'presets = []\nhosts = ["example.org"]\n').allowed_hosts
        == load(NAMED + 'presets = []\nhosts = ["EXAMPLE.org:443"]\n').allowed_hosts
    )


def test_what_no_sandbox_can_have_is_refused(load):
    wrong = [NAMED + 'hosts = ["*"]', NAMED + 'hosts = ["*.org"]', NAMED + 'hosts = ["1.2.3.4"]', 'egress = "all"']
    wrong += [NAMED + 'presets = ["everything"]', 'hosts = ["a.org"]', 'presets = ["pypi"]', NAMED + 'network = "none"']
    wrong += [NAMED + 'isolation = "none"', 'runtime = "docker"\nimage = "i"\nnetwork = "named"']
    wrong += [service().replace(NAMED, ""), service() + service().removeprefix(NAMED)]
    assert taken(wrong, load, ConfigError, r"egress|hosts|presets|network|service") == []


def test_a_service_that_could_show_its_headers_or_send_them_elsewhere_is_refused(load):
    urls = [
        "http://git.example",
        "ftp://git.example",
        "https://",
        "https://u:p@git.example",
        "https://git.example/?a=b",
    ]
    urls += [
        "https://git.example/a/../b",
        "https://git.example/%2e%2e",
        "https://git.example/#f",
        "https://a b.example",
    ]
    wrong = [service(base_url=f'"{url}"') for url in urls]
    wrong += [service(name='"Git"'), service(name='"a/b"'), service(headers='{ Host = "x" }')]
    wrong += [service(headers='{ "A B" = "x" }'), service(headers='{ A = "x\\r\\nB: y" }'), service(more='"x"')]
    assert taken(wrong, load, ConfigError, "service") == []


def test_a_service_of_this_machine_or_a_near_one_may_be_plain(load):
    for url in ("http://127.0.0.1:11434/v1", "http://[::1]:8080", "http://ollama:11434", "http://192.168.1.5/v1"):
        [made] = load(service(base_url=f'"{url}/"')).services
        assert made.base_url == url


def test_a_services_headers_come_from_the_servers_environment_and_are_shown_nowhere(load, monkeypatch):
    monkeypatch.setenv("GIT_TOKEN", "canary-git-token")
    spec = load(service(headers='{ Authorization = "Bearer {env:GIT_TOKEN}", X-Other = "{env:NOT_SET}" }'))

    [made] = spec.services
    assert made.headers == {"Authorization": "Bearer canary-git-token"}
    assert "canary" not in repr(spec)
    assert "canary" not in str(spec.environment)
    assert "canary-git-token" in spec.secret_texts  # so it is masked where a service echoes it


def test_a_header_names_a_secret_of_the_conversation_whose_agent_gets_a_placeholder(load):
    spec = load(service(headers='{ Authorization = "token {secrets.GIT}", X-Other = "{secrets.NOT_GIVEN}" }'))
    [made] = spec.services

    assert made.with_secrets({"GIT": "canary"}).headers == {"Authorization": "token canary"}
    looked_up = {"kind": "LookupSecret", "url": "https://vault.example/git"}
    given = {"GIT": {"kind": "StaticSecret", "value": "canary"}, "NOT_GIVEN": looked_up, "MINE": "inside"}
    assert secrets_inside(given, spec.services) == {"GIT": PLACEHOLDER, "NOT_GIVEN": looked_up, "MINE": "inside"}
    assert secrets_inside(given, ()) == given
    assert not [text for text in spec.secret_texts if "{secrets" in text]  # a template hides nothing


def test_a_header_that_names_a_secret_wrongly_is_refused(load):
    wrong = [
        service(headers=f'{{ A = "{text}" }}') for text in ("{secrets.}", "{secrets.a b}", "{secrets}", "{secrets.A")
    ]
    assert taken(wrong, load, ConfigError, "service") == []


def test_a_service_whose_address_is_not_set_is_left_out(load):
    assert load(service(base_url='"{env:NOT_SET}"')).services == ()


def test_only_the_bundled_agent_lacks_a_model_where_none_is_set(load, monkeypatch):
    monkeypatch.delenv("LLM_MODEL", raising=False)
    bundled = Specs.load("").get(None)
    assert (lacks_model(bundled), lacks_model(load(NAMED + MODEL))) == (True, False)
    assert bundled.missing == Missing(
        "model",
        "No model is set: the agent only runs lines that begin with `run: `.",
        "LLM_MODEL=gpt-5.5 LLM_API_KEY=sk-… make run",
    )
    monkeypatch.setenv("LLM_MODEL", "gpt")
    assert not lacks_model(Specs.load("").get(None))
    assert Specs.load("").get(None).missing is None


def test_the_model_is_a_service_and_its_key_stays_outside(load, monkeypatch):
    monkeypatch.setenv("LLM_MODEL", "gpt")
    monkeypatch.setenv("LLM_API_KEY", "canary-model-key")
    monkeypatch.setenv("LLM_URL", "http://127.0.0.1:11434/v1/")
    spec = load(NAMED + MODEL)

    [model] = spec.services
    assert (model.name, model.base_url) == ("model", "http://127.0.0.1:11434/v1")
    assert model.headers == {"Authorization": "Bearer canary-model-key"}
    assert spec.environment == {"LLM_MODEL": "gpt", "LLM_API_KEY": PLACEHOLDER, "LLM_BASE_URL": "{EGRESS}/model"}
    assert model_of(spec) == ("gpt", None, PLACEHOLDER)
    assert load(MODEL).environment["LLM_API_KEY"] == "canary-model-key"  # an open way out changes nothing


def test_a_model_without_an_address_is_at_its_provider(load, monkeypatch):
    for model, url, header in (
        ("gpt", "https://api.openai.com/v1", "Authorization"),
        ("openai/gpt", "https://api.openai.com/v1", "Authorization"),
        ("anthropic/claude", "https://api.anthropic.com", "x-api-key"),
    ):
        monkeypatch.setenv("LLM_MODEL", model)
        monkeypatch.setenv("LLM_API_KEY", "canary")
        [made] = load(NAMED + MODEL).services
        assert (made.base_url, list(made.headers)) == (url, [header])


def test_a_provider_whose_address_is_unknown_is_refused(load, monkeypatch):
    monkeypatch.setenv("LLM_MODEL", "unheard/of")
    with pytest.raises(ConfigError, match="set LLM_BASE_URL"):
        load(NAMED + MODEL)


def test_without_a_model_no_key_is_inside_either(load, monkeypatch):
    monkeypatch.setenv("LLM_API_KEY", "canary")
    spec = load(NAMED + MODEL)
    assert spec.services == ()
    assert spec.environment == {}


def test_the_service_of_the_model_is_counted_and_another_where_the_spec_says_so(load, monkeypatch):
    monkeypatch.setenv("LLM_MODEL", "gpt")
    assert [one.is_model for one in load(NAMED + MODEL).services] == [True]
    assert [one.is_model for one in load(service()).services] == [False]
    assert [one.is_model for one in load(service(model="true")).services] == [True]
    assert [one.is_model for one in load(service(name='"model"')).services] == [True]
    assert [one.is_model for one in load(service(name='"model"', model="false")).services] == [False]
    assert taken([service(model='"yes"')], load, ConfigError, "service") == []


TEMPLATE = """\
[spec.conversation.agent]
kind = "Agent"
llm = { model = "anthropic/claude", api_key = "{env:LLM_API_KEY}", usage_id = "agent" }

[spec.conversation.agent.condenser]
llm = { model = "anthropic/claude", api_key = "{env:LLM_API_KEY}", usage_id = "condenser" }

[spec.conversation.agent.critic]
llm = { model = "openai/small", base_url = "http://127.0.0.1:9/v1/" }
"""


def test_the_models_of_a_template_are_services_and_their_keys_stay_outside(load, monkeypatch):
    monkeypatch.setenv("LLM_API_KEY", "canary-model-key")
    spec = load(NAMED + TEMPLATE)

    first, second = spec.services
    assert (first.name, first.base_url, first.headers) == (
        "agent-model",
        "https://api.anthropic.com",
        {"x-api-key": "canary-model-key"},
    )
    assert (second.name, second.base_url, second.headers) == ("agent-model-2", "http://127.0.0.1:9/v1", {})
    assert first.is_model
    assert second.is_model
    agent = spec.conversation["agent"]
    inside = {"base_url": "{EGRESS}/agent-model", "api_key": PLACEHOLDER}
    assert agent["llm"] == {"model": "anthropic/claude", "usage_id": "agent", **inside}
    assert agent["condenser"]["llm"] == {"model": "anthropic/claude", "usage_id": "condenser", **inside}
    assert agent["critic"]["llm"]["base_url"] == "{EGRESS}/agent-model-2"
    assert "canary" not in str(spec.conversation)
    assert model_of(spec) == ("anthropic/claude", None, PLACEHOLDER)
    assert (
        load(TEMPLATE).conversation["agent"]["llm"]["api_key"] == "canary-model-key"
    )  # an open way out changes nothing


def test_a_model_of_a_template_whose_address_is_unknown_is_refused(load):
    with pytest.raises(ConfigError, match=r"llm\.model names the provider unheard: set llm\.base_url"):
        load(NAMED + '[spec.conversation.agent]\nllm = { model = "unheard/of" }\n')

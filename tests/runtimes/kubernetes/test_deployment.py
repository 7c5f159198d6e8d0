"""The manifests of deploy/kubernetes: each is what a cluster takes, and all of them fit each other and the server."""

import re
import shutil
import subprocess
from dataclasses import fields

import pytest
import yaml

from app import create_app
from runtimes.containers import CARRIER, SANDBOX
from runtimes.kubernetes.manifests import EGRESS_PORT, EGRESS_SERVICE, HELD, POLICY
from settings.config import Config, groups
from settings.specs import Specs
from tests.conftest import SECRET_KEY
from tests.kubernetes_api.schemas import NEWEST, OLDEST, fault
from tests.runtimes.kubernetes.conftest import DEPLOY, documents
from tests.servers import PROJECT

FILES = sorted(path.name for path in DEPLOY.glob("*.yaml") if path.name != "kustomization.yaml")
NAMES = {(one["kind"], one["metadata"]["name"]) for name in FILES for one in documents(name)}


def named(kind: str, name: str = "agent-server") -> dict:
    [found] = [
        one for file in FILES for one in documents(file) if (one["kind"], one["metadata"]["name"]) == (kind, name)
    ]
    return found


def workload(name: str) -> dict:
    return named("StatefulSet" if name == "agent-server-supervisor" else "Deployment", name)["spec"]


def pod_of(name: str) -> dict:
    return workload(name)["template"]


def container_of(name: str) -> dict:
    [container] = pod_of(name)["spec"]["containers"]
    return container


WORKLOADS = ["agent-server", "agent-server-supervisor", "agent-server-egress"]


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_a_manifest_has_the_fields_that_kubernetes_publishes_for_its_kind_and_no_other(version):
    faults = {f"{name} {one['kind']}": fault(one, version) for name in FILES for one in documents(name)}
    assert {where: said for where, said in faults.items() if said} == {}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"replica": 2}, r'"spec": Additional properties are not allowed .*replica'),
        ({"replicas": "two"}, "\"spec.replicas\": 'two' is not of type"),
        ({"strategy": {"type": 1}}, '"spec.strategy.type": 1 is not of type'),
    ],
)
def test_a_field_that_kubernetes_does_not_publish_is_found(change, sentence):
    deployment = named("Deployment")
    assert re.match(sentence, fault({**deployment, "spec": {**deployment["spec"], **change}}))


def test_the_base_names_every_file():
    base = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    assert sorted([*base["resources"], "autoscaler.yaml"]) == FILES
    [generated] = base["configMapGenerator"]
    mounted = {
        one["configMap"]["name"] for name in WORKLOADS for one in pod_of(name)["spec"]["volumes"] if "configMap" in one
    }
    assert mounted == {generated["name"]}
    assert base["namespace"] == named("Namespace", "agents")["metadata"]["name"]


@pytest.mark.process("starts a program")
def test_kustomize_builds_the_base():
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH: the files are checked one by one")
    ran = subprocess.run(["kubectl", "kustomize", str(DEPLOY)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    objects = list(yaml.safe_load_all(ran.stdout))
    assert [fault(one) for one in objects] == [""] * len(objects)
    built = {(one["kind"], one["metadata"]["name"]) for one in objects}
    assert built >= NAMES - {("HorizontalPodAutoscaler", "agent-server")}


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_selects_its_own_pods_and_is_hardened(name):
    labels = pod_of(name)["metadata"]["labels"]
    assert workload(name)["selector"]["matchLabels"].items() <= labels.items()
    spec, container = pod_of(name)["spec"], container_of(name)
    assert spec["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_sets_settings_that_there_are_and_mounts_what_they_name(name, monkeypatch):
    container = container_of(name)
    values = {one["name"]: one["value"] for one in container["env"]}
    assert values.keys() <= {field.name.upper() for group in groups().values() for field in fields(group)}
    for variable, value in values.items():
        monkeypatch.setenv(variable, value)
    config = Config.from_env()
    mounts = [one["mountPath"] for one in container["volumeMounts"]]
    assert any(config.host.sandbox_specs.startswith(f"{path}/") for path in mounts)
    [data] = [line for line in (PROJECT / "Dockerfile").read_text().split() if line.startswith("DATA_DIR=")]
    assert data.removeprefix("DATA_DIR=") in mounts


def test_a_server_that_ends_has_time_for_the_requests_that_it_has(monkeypatch):
    container = container_of("agent-server")
    for one in container["env"]:
        monkeypatch.setenv(one["name"], one["value"])
    config = Config.from_env()
    assert config.http.drain_seconds >= 5
    needed = config.http.drain_seconds + config.http.graceful_timeout
    assert pod_of("agent-server")["spec"]["terminationGracePeriodSeconds"] >= 2 * needed
    [spread] = pod_of("agent-server")["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"] == workload("agent-server")["selector"]


def test_the_service_leads_to_the_servers_at_the_address_that_webhooks_are_posted_to():
    service, labels = named("Service")["spec"], pod_of("agent-server")["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    assert named("PodDisruptionBudget")["spec"]["selector"]["matchLabels"].items() <= labels.items()
    [port] = service["ports"]
    assert port["targetPort"] in {one["name"] for one in container_of("agent-server")["ports"]}
    for name in ("agent-server", "agent-server-supervisor"):
        [url] = [one["value"] for one in container_of(name)["env"] if one["name"] == "WEBHOOK_BASE_URL"]
        assert url == f"http://agent-server:{port['port']}/api/v1/webhooks"


def test_the_probes_ask_what_the_server_answers_without_a_key_whatever_its_name(redis_url):
    keys = {"api_keys": ("0123456789abcdef",), "allowed_hosts": ("example.org",)}
    server = create_app(Config.of(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, **keys)).test_client()
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container_of("agent-server")[probe]["httpGet"]
        headers = {one["name"]: one["value"] for one in asked["httpHeaders"]}
        assert server.get(asked["path"], headers=headers).status_code == 200, probe
    assert server.get("/alive", headers={"Host": "10.1.2.3:8000"}).status_code == 421


def test_one_supervisor_speaks_for_the_cluster_and_leaves_its_sandboxes_running():
    assert workload("agent-server-supervisor")["replicas"] == 1
    values = {one["name"]: one["value"] for one in container_of("agent-server-supervisor")["env"]}
    assert values["STOP_SANDBOXES"] == "0"
    assert {one["name"]: one["value"] for one in container_of("agent-server")["env"]}["SUPERVISOR"] == "0"


def test_the_supervisor_alone_has_an_account_and_it_is_the_one_with_the_rights():
    assert pod_of("agent-server")["spec"]["automountServiceAccountToken"] is False
    account = pod_of("agent-server-supervisor")["spec"]["serviceAccountName"]
    [subject] = named("RoleBinding", account)["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": account}
    assert ("ServiceAccount", account) in NAMES
    assert ("Role", named("RoleBinding", account)["roleRef"]["name"]) in NAMES


def test_a_sandbox_reaches_the_servers_and_no_private_network_and_is_reached_by_them_alone():
    policy = named("NetworkPolicy", POLICY)["spec"]
    chosen = [{"key": SANDBOX, "operator": "Exists"}, {"key": HELD, "operator": "DoesNotExist"}]
    assert policy["podSelector"]["matchExpressions"] == chosen
    [source] = policy["ingress"]
    [among] = source["from"]
    for name in ("agent-server", "agent-server-supervisor"):
        assert among["podSelector"]["matchLabels"].items() <= pod_of(name)["metadata"]["labels"].items()
    _, webhooks, internet = policy["egress"]
    [to] = webhooks["to"]
    assert to["podSelector"]["matchLabels"].items() <= pod_of("agent-server")["metadata"]["labels"].items()
    assert webhooks["ports"][0]["port"] == container_of("agent-server")["ports"][0]["containerPort"]
    [block] = internet["to"]
    assert {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"} <= set(block["ipBlock"]["except"])
    carriers = named("NetworkPolicy", "agent-server-carriers")["spec"]
    assert carriers["podSelector"]["matchExpressions"] == [{"key": CARRIER, "operator": "Exists"}]
    assert not carriers.keys() & {"ingress", "egress"}


def selects(selector: dict, labels: dict[str, str]) -> bool:
    """Whether a label selector of these manifests selects a pod. Source: the API's LabelSelector."""
    ways = {"Exists": lambda key: key in labels, "DoesNotExist": lambda key: key not in labels}
    of_labels = selector.get("matchLabels", {}).items() <= labels.items()
    return of_labels and all(ways[one["operator"]](one["key"]) for one in selector.get("matchExpressions", []))


def reached(labels: dict[str, str]) -> set[object]:
    """What the policies together let a pod reach: names of pods of these manifests, with ports, or what is no pod."""
    pods = {name: pod_of(name)["metadata"]["labels"] for name in WORKLOADS}
    found: set[object] = set()
    for policy in (
        one["spec"] for one in documents("network-policy.yaml") if selects(one["spec"]["podSelector"], labels)
    ):
        for rule in policy.get("egress", []):
            for to in rule["to"]:
                names = [name for name in pods if "podSelector" in to and selects(to["podSelector"], pods[name])]
                ports = [one["port"] for one in rule.get("ports", [])]
                found |= {(name, port) for name in names for port in ports} or {next(iter(to))}
    return found


def test_a_sandbox_with_a_named_way_out_reaches_the_webhooks_and_the_proxy_and_no_resolver():
    webhooks, proxy = ("agent-server", 8000), ("agent-server-egress", 8080)
    assert reached({SANDBOX: "a"}) == {"namespaceSelector", "ipBlock", webhooks}
    assert reached({SANDBOX: "a", HELD: "none"}) == {webhooks}
    assert reached({SANDBOX: "a", HELD: "named"}) == {webhooks, proxy}
    [policy] = [one["spec"] for one in documents("network-policy.yaml") if one["metadata"]["name"] == EGRESS_SERVICE]
    [among] = policy["ingress"][0]["from"]
    assert [word for word in ("named", "none") if selects(among["podSelector"], {HELD: word})] == ["named"]
    assert not selects(among["podSelector"], {SANDBOX: "a"})


def test_the_proxy_listens_where_pods_look_for_it_and_the_supervisor_names_its_image():
    service, container = named("Service", EGRESS_SERVICE)["spec"], container_of("agent-server-egress")
    assert service["selector"].items() <= pod_of("agent-server-egress")["metadata"]["labels"].items()
    assert service["ports"][0]["port"] == EGRESS_PORT == container["ports"][0]["containerPort"]
    assert container["args"] == ["python", "-m", "egress", f"0.0.0.0:{EGRESS_PORT}"]
    values = {one["name"]: one["value"] for one in container_of("agent-server-supervisor")["env"]}
    [image] = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["images"]
    assert values["KUBERNETES_EGRESS_IMAGE"] == f"{image['newName']}:{image['newTag']}"


def test_the_specs_start_pods():
    specs = Specs.load(str(DEPLOY / "specs.toml")).all
    assert {spec.runtime for spec in specs} == {"kubernetes"}
    base = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    [image] = base["images"]
    assert {spec.image for spec in specs} == {f"{image['newName']}:{image['newTag']}"}

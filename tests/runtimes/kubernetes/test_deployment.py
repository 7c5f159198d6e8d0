"""The manifests of deploy/kubernetes: each is what a cluster takes, and all of them fit each other and the server."""

import re
import shutil
import subprocess
from dataclasses import fields

import pytest
import yaml

from app import create_app
from runtimes.containers import SANDBOX
from runtimes.kubernetes.manifests import CARRIER, POLICY
from settings.config import Config
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
    return named({"agent-server": "Deployment"}.get(name, "StatefulSet"), name)["spec"]


def pod_of(name: str) -> dict:
    return workload(name)["template"]


def container_of(name: str) -> dict:
    [container] = pod_of(name)["spec"]["containers"]
    return container


WORKLOADS = ["agent-server", "agent-server-supervisor"]


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
    assert values.keys() <= {field.name.upper() for field in fields(Config)}
    for variable, value in values.items():
        monkeypatch.setenv(variable, value)
    config = Config.from_env()
    mounts = [one["mountPath"] for one in container["volumeMounts"]]
    assert any(config.sandbox_specs.startswith(f"{path}/") for path in mounts)
    [data] = [line for line in (PROJECT / "Dockerfile").read_text().split() if line.startswith("DATA_DIR=")]
    assert data.removeprefix("DATA_DIR=") in mounts


def test_a_server_that_ends_has_time_for_the_requests_that_it_has(monkeypatch):
    container = container_of("agent-server")
    for one in container["env"]:
        monkeypatch.setenv(one["name"], one["value"])
    config = Config.from_env()
    assert config.drain_seconds >= 5
    needed = config.drain_seconds + config.graceful_timeout
    assert pod_of("agent-server")["spec"]["terminationGracePeriodSeconds"] >= 2 * needed
    [spread] = pod_of("agent-server")["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"] == workload("agent-server")["selector"]


def test_the_service_leads_to_the_servers_at_the_address_that_webhooks_are_posted_to():
    service, labels = named("Service")["spec"], pod_of("agent-server")["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    assert named("PodDisruptionBudget")["spec"]["selector"]["matchLabels"].items() <= labels.items()
    [port] = service["ports"]
    assert port["targetPort"] in {one["name"] for one in container_of("agent-server")["ports"]}
    for name in WORKLOADS:
        [url] = [one["value"] for one in container_of(name)["env"] if one["name"] == "WEBHOOK_BASE_URL"]
        assert url == f"http://agent-server:{port['port']}/api/v1/webhooks"


def test_the_probes_ask_what_the_server_answers_without_a_key_whatever_its_name(redis_url):
    keys = {"api_keys": ("0123456789abcdef",), "allowed_hosts": ("example.org",)}
    server = create_app(Config(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, **keys)).test_client()
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
    assert policy["podSelector"]["matchExpressions"] == [{"key": SANDBOX, "operator": "Exists"}]
    [source] = policy["ingress"]
    [among] = source["from"]
    for name in WORKLOADS:
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


def test_the_specs_start_pods():
    specs = Specs.load(str(DEPLOY / "specs.toml")).all
    assert {spec.runtime for spec in specs} == {"kubernetes"}
    base = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    [image] = base["images"]
    assert {spec.image for spec in specs} == {f"{image['newName']}:{image['newTag']}"}

"""The image with the packages of EXTRA, on a real Docker engine: it starts pods, and sends traces."""

import sys
from uuid import uuid4

import httpx
import pytest

from runtimes.kubernetes.manifests import name_of
from tests.chance import RARE
from tests.engine import alone
from tests.image import NO_KEEPALIVE
from tests.runtimes.kubernetes.conftest import cluster_of_module
from tests.runtimes.kubernetes.test_sandboxes import SPEC, left
from tests.servers import PROJECT, free_port, wait_until
from tests.spans import SpansReceiver
from tests.v1 import WireApi

pytestmark = pytest.mark.docker("builds the image and starts containers of it")

__all__ = ["cluster_of_module"]

KEY = uuid4().hex


@pytest.fixture
def receiver():
    made = SpansReceiver()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture(scope="module")
def image(engine, image) -> str:
    """Of the usual image it has every layer but that of the packages."""
    with alone("build"):
        return engine.build("agent-server-ci/extra", extra="kubernetes otel")


@RARE
def test_the_image_with_both_extras_runs_a_sandbox_as_a_pod_and_sends_its_traces(
    engine, image, cluster_of_module, receiver, tmp_path
):
    port, agent_port = free_port(), free_port()
    place = {"python": sys.executable, "project": PROJECT, "agent_port": agent_port}
    specs, kubeconfig = tmp_path / "specs.toml", cluster_of_module.kubeconfig(tmp_path / "kubeconfig")
    specs.write_text(SPEC.format(id="pod", image="agent:1", restarts=0, **place))
    settings = {
        "PORT": str(port),
        "SESSION_API_KEY": KEY,
        "SANDBOX_SPECS": "/specs.toml",
        "KUBECONFIG": "/kubeconfig",
        "WEBHOOK_BASE_URL": f"http://127.0.0.2:{port}/api/v1/webhooks",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
    }
    mounted = {str(path): {"bind": f"/{path.name}", "mode": "ro"} for path in (specs, kubeconfig)}
    # The network of the machine: the cluster and the receiver of the traces are processes of this one.
    container = engine.client.containers.run(
        image, detach=True, network_mode="host", environment=settings, volumes=mounted
    )
    try:
        url, headers = f"http://127.0.0.1:{port}", {"X-Session-API-Key": KEY, **NO_KEEPALIVE}
        with httpx.Client(base_url=url, timeout=20, headers=headers, trust_env=False) as client:
            wait_until(lambda: client.get("/ready").status_code == 200, "the server in the container")
            api = WireApi(client)
            sandbox = api.running_sandbox()
            pod = cluster_of_module.objects.get("pods", name_of(sandbox["id"]))
            assert pod["status"]["phase"] == "Running"
            receiver.some(name="GET /api/v1/sandboxes")
            api.clean()
            wait_until(lambda: left(cluster_of_module) == [], "the end of every object")
    finally:
        print(container.logs(tail=200).decode(errors="replace"))
        container.remove(force=True, v=True)

"""The life of a sandbox on a real cluster: the one of KUBECONFIG, with an image that KUBERNETES_TEST_IMAGE names.

Its namespace has `kubectl apply -k deploy/kubernetes`, and the image is this project's.
"""

import os
from dataclasses import replace
from uuid import uuid4

import pytest

from runtimes import Launch, ProcessState
from runtimes.kubernetes import KubernetesRuntime
from tests.servers import wait_until

pytestmark = pytest.mark.kubernetes("starts pods in a real cluster")

IMAGE = os.environ.get("KUBERNETES_TEST_IMAGE", "")

PRINTS_AND_STAYS = (
    "import pathlib, time; p = pathlib.Path('kept'); print(p.exists(), flush=True); p.touch(); time.sleep(600)"
)


@pytest.fixture
def runtime():
    if not os.environ.get("KUBECONFIG") or not IMAGE:
        pytest.skip("KUBECONFIG and KUBERNETES_TEST_IMAGE name no cluster and no image")
    return KubernetesRuntime(f"tests-{uuid4().hex[:8]}")


def test_a_sandbox_starts_pauses_goes_on_with_its_files_and_is_removed(runtime):
    command = ("python", "-c", PRINTS_AND_STAYS)
    launch = Launch(f"box-{uuid4().hex[:8]}", command, {}, ".", image=IMAGE, memory_bytes=128 << 20, disk_bytes=1 << 30)
    try:
        handle = runtime.start(launch)
        wait_until(lambda: runtime.logs(handle, 9) == "False", "the first line")
        assert runtime.observe(handle).state is ProcessState.RUNNING
        assert list(runtime.names(launch, ".")) == [b"kept"]
        runtime.pause(handle)
        assert runtime.observe(handle).state is ProcessState.GONE
        archive = b"".join(runtime.pack(launch))

        handle = runtime.start(replace(launch, start=2))

        wait_until(lambda: runtime.logs(handle, 9) == "True", "the first line of the second start")
        assert [one["sandbox_id"] for one in runtime.known()] == [launch.sandbox_id]
        other = replace(launch, sandbox_id=f"{launch.sandbox_id}-2")
        runtime.unpack(other, [archive])
        try:
            assert list(runtime.names(other, ".")) == [b"kept"]
        finally:
            runtime.remove(other.sandbox_id)
    finally:
        runtime.remove(launch.sandbox_id)
    assert runtime.known() == []

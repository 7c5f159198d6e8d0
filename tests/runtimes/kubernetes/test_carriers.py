"""A pod that was made to read a volume, and that somebody deletes meanwhile."""

from types import SimpleNamespace

import pytest

from runtimes import RuntimeCallFailed
from runtimes.kubernetes import KubernetesRuntime
from runtimes.kubernetes.cluster import ObjectKind


def test_a_volume_whose_carrier_is_deleted_before_it_runs_is_a_failure_that_says_so(launch):
    runtime = KubernetesRuntime("host")
    runtime._cluster = SimpleNamespace(
        find=lambda kind, _: {} if kind is ObjectKind.CLAIM else None,
        create=lambda *_: None,
        delete=lambda *_, **__: None,
    )
    with pytest.raises(RuntimeCallFailed, match=f"{launch.sandbox_id} cannot be read: .* was deleted meanwhile"):
        next(runtime.pack(launch))

"""Specs whose sandboxes are pods: what they may say, and what the cluster decides instead."""

import pytest

from config import ConfigError
from specs import Specs
from tests.test_specs import one, written


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


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"image": '""'}, "image: Missing: the kubernetes runtime needs one"),
        ({"network": '"mine"'}, "network: Only for the other runtimes: NetworkPolicies"),
        ({"limits": "{ processes = 9 }"}, r"limits\.processes: Only for the other runtimes: podPidsLimit"),
        ({"limits": "{ memory_mb = 1 }"}, r"limits\.memory_mb: Must be at least 6"),
        ({"working_dir": '"/"'}, "working_dir: Must be"),
        ({"isolation": '"required"'}, "isolation: Only for the process runtime"),
    ],
)
def test_what_a_cluster_decides_is_refused_by_its_name(tmp_path, members, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Specs.load(written(tmp_path, a_pod(**members)))

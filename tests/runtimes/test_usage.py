"""What the kernel counts of a cgroup, read from files as it writes them."""

from runtimes.cgroup import Cgroup

MEMORY = "anon 52428800\nfile 12288000\ninactive_file 8388608\nactive_file 3899392\n"
TIMES = "usage_usec 1500000\nuser_usec 1200000\nsystem_usec 300000\nnr_periods 0\n"


def test_the_memory_of_a_cgroup_is_without_the_files_that_the_kernel_can_drop(tmp_path):
    (tmp_path / "memory.current").write_text("62914560\n")
    (tmp_path / "memory.stat").write_text(MEMORY)

    assert Cgroup(tmp_path).memory_bytes() == 62914560 - 8388608


def test_the_processor_time_of_a_cgroup_is_in_seconds(tmp_path):
    (tmp_path / "cpu.stat").write_text(TIMES)

    assert Cgroup(tmp_path).cpu_seconds() == 1.5


def test_a_cgroup_without_a_controller_or_that_is_gone_tells_nothing(tmp_path):
    (tmp_path / "memory.stat").write_text(MEMORY)

    for folder in (tmp_path, tmp_path / "gone"):
        assert Cgroup(folder).memory_bytes() is None
        assert Cgroup(folder).cpu_seconds() is None

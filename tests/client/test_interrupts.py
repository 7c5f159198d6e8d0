"""Ctrl-C while agentctl is still being loaded, and after."""

import os
import signal
import subprocess
import sys

import pytest

from tests.servers import PROJECT, wait_until

pytestmark = pytest.mark.process("starts the command")

#: a module that says that it is being imported, and takes long
SLOW = """
import pathlib, time
pathlib.Path(__file__).with_name("reached").touch()
time.sleep(60)
"""


@pytest.mark.parametrize("module", ["httpx", "click", "agent_server_client.cli.chat"])
def test_ctrl_c_while_the_command_is_loaded_ends_it_without_a_word(tmp_path, module):
    finder = f"""
import sys, importlib.abc, importlib.util
class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            return importlib.util.spec_from_file_location(name, {str(tmp_path / "slow.py")!r})
sys.meta_path.insert(0, Slow())
"""
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "sitecustomize.py").write_text(finder)
    started = subprocess.Popen(
        [sys.executable, "-m", "agentctl", "ls"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(PROJECT / "client/src")))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_until((tmp_path / "reached").exists, "the import")

    started.send_signal(signal.SIGINT)

    assert started.communicate(timeout=30) == (b"", b"")
    assert started.returncode == 130

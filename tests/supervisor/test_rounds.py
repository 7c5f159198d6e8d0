"""What a round of the supervisor's loop gives to its threads."""

import threading
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import MagicMock

from supervisor.loop import Loop
from tests.supervisor.conftest import handle


def test_a_sandbox_of_another_folder_takes_no_start_of_the_host(sandboxes, one_store, reconciler, archives, host):
    reconciler._host = replace(host, folder="mine")
    old = sandboxes.start("spec")
    assert sandboxes.claim("h") == old.id
    assert sandboxes.begin(old.id, "h", "supervisor", "scripted", "another folder")
    assert sandboxes.report(old.id, "h", "supervisor", "RUNNING", handle=handle(old.id), agent_url="http://a")
    assert sandboxes.stopped(sandboxes.get(old.id), "supervisor", "it rests")
    reconciler.reconcile(sandboxes.get(old.id))
    sandboxes.ask(old.id, "resume")
    reconciler.reconcile(sandboxes.get(old.id))
    assert (sandboxes.get(old.id).status, sandboxes.get(old.id).wanted) == ("MISSING", "running")

    tasks = MagicMock(archives=archives, sandboxes=reconciler)
    tasks.strays.due.return_value = []
    lease = SimpleNamespace(host="h", renew=lambda: sandboxes.beat("h", "supervisor"))
    loop = Loop(one_store, tasks, lease, stop=threading.Event(), most_starts=1)
    loop._claim_starts = lambda: None
    new = sandboxes.start("spec")
    loop._round()
    loop._drain()

    assert sandboxes.get(new.id).host == "h"

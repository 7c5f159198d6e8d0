"""A sandbox's folder at an earlier moment: in a fork, and in place. The same promises of each runtime that records."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from runtimes import Handle, Launch, Runtime, RuntimeCallFailed
from runtimes.docker import DockerRuntime
from runtimes.git import NotRecorded
from runtimes.process import ProcessRuntime
from runtimes.shadow import ForkMoment, TurnBack
from tests.engine import ran

#: what lies in the folder: names, modes, owners, links, times and contents
SHOWN = """
find . -path ./.agent-server -prune -o -type d -exec stat -c '%n %A %u %g' {} + | sort
find . -path ./.agent-server -prune -o ! -type d -exec stat -c '%N %A %u %g %h %s %y' {} + | sort
find . -path ./.agent-server -prune -o -type f -exec cksum {} + | sort
"""

#: what changes the folder before each of its three moments: modes, links, empty folders, odd names, a repository's own
STEPS = (
    "mkdir -p d/e void .git/refs; echo one > d/a; ln -s a d/l; ln d/a d/same; chmod 711 d; echo ref > .git/HEAD",
    "echo x > \"$(printf 'o\\nd')\"; chmod 500 void; echo two > d/a; rm d/l; ln -s /etc/passwd d/l",
    "rm -r d .git; echo three > d; chmod 600 d; mkdir -p new/er",
)


class KeptRecall(NamedTuple):
    """A sandbox of a runtime, and how commands run in it."""

    runtime: Runtime
    launch: Launch
    folder: str  #: as its agent names it
    run: Callable[[Handle, str], str]
    home: Path  #: what the runtime keeps of its sandboxes

    def started(self, launch: Launch, number: int = 1) -> Handle:
        return self.runtime.start(replace(launch, start=number))

    def fork(self) -> Launch:
        return replace(self.launch, sandbox_id=f"{self.launch.sandbox_id}-fork")

    def returned(self, seq: int, last: int) -> None:
        note = b'"%d to %d"' % (last, seq)
        back = TurnBack("c", seq, last, [f"e{last}"], b".agent-server/c/returned.json", note)
        self.shadow().turn_back(back)

    def shadow(self):
        return self.runtime.shadow(self.launch, self.folder)


def in_process(handle: Handle, text: str) -> str:
    words = ["sh", "-c", text]
    return subprocess.run(words, cwd=Path(handle["folder"], "work"), capture_output=True, text=True, check=True).stdout


@pytest.fixture(
    params=[
        pytest.param("process", marks=pytest.mark.process("starts sandboxes")),
        pytest.param("docker", marks=pytest.mark.docker("starts containers")),
    ]
)
def kept(request, tmp_path):
    if request.param == "docker":
        host, engine = request.getfixturevalue("host"), request.getfixturevalue("engine")
        launch = request.getfixturevalue("launch")
        runtime = DockerRuntime(host, tmp_path)
        yield KeptRecall(runtime, launch, ".", lambda handle, text: ran(engine.container_of(handle), text), tmp_path)
        return
    runtime = ProcessRuntime(tmp_path, grace=0.5)
    yield KeptRecall(runtime, Launch("box", ("/bin/sleep", "600"), {}, "."), ".", in_process, tmp_path)
    for handle in runtime.known():
        runtime.stop(handle)


@pytest.fixture
def recorded(kept):
    """The handle of a sandbox whose folder has a moment after each of the STEPS, and what it was there, by seq."""
    handle, shown = kept.started(kept.launch), {}
    for seq, step in enumerate(STEPS, 1):
        kept.run(handle, step)
        kept.shadow().record("c", seq, lambda _, seq=seq: [f"e{seq}"])
        shown[seq] = kept.run(handle, SHOWN)
    assert len({*shown.values()}) == len(STEPS)
    return handle, shown


def test_a_moment_names_the_events_at_which_the_folder_was_at_rest(kept):
    handle = kept.started(kept.launch)
    kept.run(handle, STEPS[0])

    kept.shadow().record("c", 1, lambda _: ["e0", "e1"])
    kept.shadow().record("c", 2)  # which the folder may have changed since

    assert kept.shadow().moments("c") == [ForkMoment(1, ["e0", "e1"])]
    assert kept.shadow().moments("another") == []


@pytest.mark.parametrize("seq", [1, 2, 3])
def test_a_fork_has_the_files_of_a_moment_and_goes_on_beside_the_original(kept, recorded, seq):
    handle, shown = recorded

    kept.runtime.recall(kept.fork(), kept.launch.sandbox_id, kept.folder, "c", seq)
    fork = kept.started(kept.fork())

    assert kept.run(fork, SHOWN) == shown[seq]
    kept.run(fork, "chmod 700 void; echo mine > void/mine; rm -rf d")
    assert kept.run(handle, SHOWN) == shown[3]


def test_a_sandbox_that_rests_is_forked_too(kept, recorded):
    handle, shown = recorded
    kept.runtime.stop(handle)

    kept.runtime.recall(kept.fork(), kept.launch.sandbox_id, kept.folder, "c", 2)

    assert kept.run(kept.started(kept.fork()), SHOWN) == shown[2]
    assert kept.run(kept.started(kept.launch, 2), SHOWN) == shown[3]


def test_a_fork_that_is_filled_stays_as_it_is(kept, recorded):
    _, shown = recorded

    for seq in (1, 2):  # a supervisor that was killed in between makes the fork again
        kept.runtime.recall(kept.fork(), kept.launch.sandbox_id, kept.folder, "c", seq)

    assert kept.run(kept.started(kept.fork()), SHOWN) == shown[1]


def test_a_fork_from_an_event_without_a_record_is_refused_and_leaves_nothing(kept, recorded):
    for conversation, seq in (("c", 7), ("another", 1)):
        with pytest.raises(NotRecorded, match=f"not recorded at event {seq}"):
            kept.runtime.recall(kept.fork(), kept.launch.sandbox_id, kept.folder, conversation, seq)

    with pytest.raises(RuntimeCallFailed):
        for _ in kept.runtime.pack(kept.fork()):
            pass


def test_a_folder_returns_to_each_moment_and_to_the_present_by_steps_that_are_moments_themselves(kept, recorded):
    handle, files = recorded
    now = files[3]

    for last, seq in ((4, 1), (5, 3), (6, 2), (7, 4), (8, 5)):
        kept.runtime.stop(handle)
        files[last] = now
        kept.returned(seq, last)

        handle = kept.started(kept.launch, last)
        now = files[seq]
        assert kept.run(handle, SHOWN) == now
        assert kept.run(handle, "cat .agent-server/c/returned.json") == f'"{last} to {seq}"'
    assert [one.seq for one in kept.shadow().moments("c")] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_return_that_is_repeated_changes_nothing(kept, recorded):
    handle, shown = recorded
    kept.runtime.stop(handle)
    kept.returned(1, 4)
    handle = kept.started(kept.launch, 2)
    kept.run(handle, "echo later > later")
    later = kept.run(handle, SHOWN)
    kept.runtime.stop(handle)

    kept.returned(1, 4)

    assert kept.run(kept.started(kept.launch, 3), SHOWN) == later != shown[1]


def test_a_return_to_an_event_without_a_record_is_refused_and_changes_nothing(kept, recorded):
    handle, shown = recorded
    kept.runtime.stop(handle)

    with pytest.raises(NotRecorded, match="not recorded at event 7"):
        kept.returned(7, 8)

    assert kept.run(kept.started(kept.launch, 2), SHOWN) == shown[3]


def test_a_fork_from_the_event_before_a_return_has_the_files_before_it(kept, recorded):
    handle, shown = recorded
    kept.runtime.stop(handle)
    kept.returned(2, 4)

    kept.runtime.recall(kept.fork(), kept.launch.sandbox_id, kept.folder, "c", 4)

    assert kept.run(kept.started(kept.fork()), SHOWN) == shown[3]  # the present before the return is its last moment
    assert kept.run(kept.started(kept.launch, 2), SHOWN) == shown[2]


def test_the_moments_end_with_their_sandbox(kept, recorded):
    kept.runtime.remove(kept.launch.sandbox_id)

    assert [*kept.home.glob(f"*{kept.launch.sandbox_id}*")] == []

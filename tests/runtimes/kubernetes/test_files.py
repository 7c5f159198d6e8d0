"""The kept files of pods: read and filled by the real tar, in the sandbox's pod or in one that only waits."""

import io
import itertools
import tarfile
from dataclasses import replace

import pytest

from runtimes import FileOverLimit, FolderNotKept, RuntimeCallFailed
from runtimes.containers import CARRIER
from runtimes.kubernetes import KubernetesRuntime
from runtimes.kubernetes.manifests import FILLING, name_of
from runtimes.tar_stream import MemberRefused, TarUnreadable
from tests.runtimes.kubernetes.conftest import resources
from tests.runtimes.kubernetes.test_pods import until_running
from tests.servers import wait_until

pytestmark = pytest.mark.kubernetes("starts pods that read and write files")


def folder_of(cluster, sandbox_id: str):
    return cluster.node.claim_folder(name_of(sandbox_id))


@pytest.fixture
def kept(runtime, cluster, launch):
    """The folder of a sandbox that runs, with a file and a link."""
    until_running(runtime, cluster, launch)
    folder = folder_of(cluster, launch.sandbox_id)
    (folder / "below").mkdir()
    (folder / "below" / "note").write_bytes(b"kept\0" * 50_000)
    (folder / "link").symlink_to("/etc/passwd")
    return folder


def packed(runtime, launch) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(b"".join(runtime.pack(launch))))


def archive(*members: tuple[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return made.getvalue()


def carriers(cluster) -> list[dict]:
    return [pod for pod in cluster.objects.all("pods") if CARRIER in pod["metadata"]["labels"]]


def test_a_sparse_file_does_not_make_an_archive_endless(runtime, launch, kept):
    with (kept / "holes").open("wb") as sparse:
        sparse.truncate(1 << 40)

    with pytest.raises(RuntimeCallFailed, match=r"holes takes the files beyond 20000000 bytes"):
        for _ in runtime.pack(replace(launch, disk_bytes=10_000_000)):
            pass


@pytest.mark.parametrize("paused", [False, True])
def test_files_are_packed_while_the_sandbox_runs_and_while_it_rests(runtime, cluster, launch, kept, paused):
    if paused:
        [handle] = runtime.known()
        runtime.stop(handle)

    tar = packed(runtime, launch)

    assert tar.extractfile("./below/note").read() == b"kept\0" * 50_000
    assert tar.getmember("./link").linkname == "/etc/passwd"
    assert {(member.uid, member.gid) for member in tar} == {(0, 0)}
    assert not carriers(cluster) or all("deletionTimestamp" in pod["metadata"] for pod in carriers(cluster))


def test_the_folder_is_known_by_the_path_that_a_process_of_the_pod_prints_and_by_that_of_its_spec(
    runtime, cluster, launch
):
    """The node has the volume elsewhere than the spec says, as an image does whose working folder is a symlink."""
    handle = until_running(runtime, cluster, launch)

    real = str(folder_of(cluster, launch.sandbox_id).resolve())
    assert runtime.folders(handle) == {"working_dir": real, "linked_dir": "/workspace"}


@pytest.mark.parametrize("printed", ["", "yes /workspace", "printf 'relative'", "printf '/\\377'", "exit 1"])
def test_a_pod_that_cannot_tell_its_folder_is_known_by_the_path_of_its_spec(
    runtime, cluster, launch, tmp_path, printed
):
    if printed:
        (tmp_path / "pwd").write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{printed}\n")
        (tmp_path / "pwd").chmod(0o755)
    handle = until_running(runtime, cluster, replace(launch, env={"PATH": str(tmp_path)}))

    assert runtime.folders(handle) == {"working_dir": "/workspace", "linked_dir": ""}


def test_names_and_single_files_are_read(runtime, launch, kept):
    (kept / "node_modules").mkdir()
    (kept / "node_modules" / "tool").touch()

    assert sorted(runtime.names(launch, "/workspace")) == [b"below/note"]
    assert list(runtime.names(launch, "below")) == [b"note"]
    assert runtime.content(launch, "below", "note", 1 << 20) == b"kept\0" * 50_000
    assert runtime.content(launch, ".", "nothing", 9) is None
    with pytest.raises(FileOverLimit):
        runtime.content(launch, ".", "below/note", 9)
    with pytest.raises(FolderNotKept):
        list(runtime.names(launch, "/etc"))


def test_a_new_sandbox_gets_the_files_of_an_archive_and_starts_with_them(runtime, cluster, other):
    runtime.unpack(other, [archive(("./a", b"1"), ("b/c/d", b"2" * 100_000))])
    runtime.unpack(other, [archive(("./late", b"3"))])  # one that is filled stays

    until_running(runtime, cluster, other)
    folder = folder_of(cluster, other.sandbox_id)
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == ["a", "b/c/d"]
    assert (folder / "b/c/d").read_bytes() == b"2" * 100_000


def test_a_copy_has_the_files_of_its_source(runtime, cluster, launch, other, kept):
    runtime.copy(other, launch.sandbox_id)

    folder = folder_of(cluster, other.sandbox_id)
    assert (folder / "below/note").read_bytes() == (kept / "below/note").read_bytes()
    assert (folder / "link").is_symlink()


@pytest.mark.parametrize(
    ("chunks", "refusal"),
    [
        ([b"no tar" * 200], TarUnreadable),
        ([archive(("./a", b"1"))[:600]], TarUnreadable),
        ([archive(("../out", b"1"))], MemberRefused),
        ([archive(("/etc/out", b"1"))], MemberRefused),
    ],
)
def test_a_refused_archive_leaves_no_volume(runtime, cluster, other, chunks, refusal):
    with pytest.raises(refusal):
        runtime.unpack(other, chunks)
    wait_until(lambda: resources(cluster) == set(), "the end of the carrier and of the volume")


def test_a_half_filled_volume_of_a_killed_supervisor_is_filled_anew_and_never_started_in(
    runtime, cluster, host, other, monkeypatch
):
    def killed(*_: object) -> None:
        raise SystemExit

    def broken_off():
        yield archive(("./a", b"1"), ("./b", b"2"))[:1024]
        killed()

    with monkeypatch.context() as dies:
        dies.setattr(runtime._cluster, "delete", killed)
        with pytest.raises(SystemExit):
            runtime.unpack(other, broken_off())
    [claim] = cluster.objects.all("persistentvolumeclaims")
    assert FILLING in claim["metadata"]["labels"]
    with pytest.raises(RuntimeCallFailed, match="half filled"):
        runtime.start(other)
    assert len(carriers(cluster)) == 1
    following = KubernetesRuntime(host)
    following.known()  # as each supervisor does in its first round

    following.unpack(other, [archive(("./whole", b"3"))])

    assert [path.name for path in folder_of(cluster, other.sandbox_id).iterdir()] == ["whole"]


def test_files_of_a_sandbox_without_a_volume_are_a_sentence(runtime, launch):
    with pytest.raises(RuntimeCallFailed, match=r"the files of sandbox .* cannot be read: it has no volume"):
        list(runtime.pack(launch))


def test_a_pod_without_an_image_to_read_with_says_so(runtime, cluster, launch, kept):
    [handle] = runtime.known()
    runtime.stop(handle)
    with pytest.raises(RuntimeCallFailed, match="no pod can read its volume: its image cannot be pulled"):
        list(runtime.pack(replace(launch, image="no-such-image")))


def test_a_command_that_fails_says_why(runtime, cluster, launch, kept):
    with pytest.raises(RuntimeCallFailed, match=r"its command failed: tar: /nowhere: Cannot open"):
        list(runtime.pack(replace(launch, working_dir="/nowhere")))


def test_what_has_changed_in_a_pods_folder_is_known_until_its_removal(cluster, host, launch, tmp_path):
    runtime = KubernetesRuntime(host, tmp_path, clock=itertools.count().__next__)
    handle = until_running(runtime, cluster, launch)
    folder = folder_of(cluster, launch.sandbox_id)
    (folder / "note").write_text("one")
    runtime.shadow(launch, "/workspace").record("c", 0)
    (folder / "note").write_text("two")
    (folder / "below").mkdir()
    (folder / "below" / "new").touch()

    found = runtime.shadow(launch, ".").changes("c", 0)
    assert [tuple(one) for one in found] == [("ADDED", "below/new"), ("UPDATED", "note")]
    runtime.stop(handle)
    assert runtime.shadow(launch, ".").contents("c", "note", 0) == (b"one", b"two")
    with pytest.raises(FolderNotKept):
        runtime.shadow(launch, "/etc")
    runtime.remove(launch.sandbox_id)
    assert list(tmp_path.glob(".*.shadow*")) == []
    with pytest.raises(RuntimeCallFailed):
        runtime.shadow(launch, ".").record("c", 1)
    assert list(tmp_path.glob(".*.shadow*")) == []

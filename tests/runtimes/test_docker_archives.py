"""Archives and copies of what a container sandbox keeps, made by a real Docker engine while nothing runs."""

import io
import tarfile
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import pytest

from runtimes import RuntimeCallFailed
from runtimes.docker import DockerRuntime
from runtimes.docker.engine import volume
from tests.engine import ran

pytestmark = pytest.mark.docker("starts containers")

#: makes a file, a link of each kind, a fifo, a socket, a folder without rights, and a name that is not UTF-8
MAKES_FILES = r"""
cd /workspace && mkdir -p d/e .hidden && echo one > d/f && ln d/f d/hard && ln -s /etc/passwd out && ln -s d/f in
mkfifo fifo && echo "$(printf 'n%.0s' $(seq 200))" > "$(printf 'n%.0s' $(seq 200))" && : > "$(printf 'bad\377name')"
chmod 4755 d/f && : > d/e/empty && chmod 500 d/e && python -c "import socket; socket.socket(1).bind('s')"
"""


@pytest.fixture
def runtime(host):
    return DockerRuntime(host)


def members(chunks) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks)), errors="surrogateescape") as archive:
        return {member.name: member for member in archive}


#: without the sizes of folders, which are a matter of the file system and of what was once in them
LISTS = r"find . ! -name s ! -type p -printf '%p %y %l %M %U ' \( -type d -printf '\n' -o -printf '%s\n' \) | sort"


@pytest.fixture
def source(runtime, engine, launch):
    """A stopped sandbox with files of every type; the list of those that archives have."""
    handle = runtime.start(launch)
    ran(engine.container_of(handle), MAKES_FILES)
    listed = ran(engine.container_of(handle), LISTS)
    runtime.stop(handle)
    return listed


def test_a_stopped_sandbox_is_packed_with_relative_names_and_links_as_links(runtime, engine, launch, source):
    packed = members(runtime.pack(launch))

    assert all(name == "." or name.startswith("./") for name in packed)
    assert {"./d/f", "./d/e/empty", "./.hidden", f"./{'n' * 200}", "./bad\udcffname"} <= set(packed)
    assert packed["./out"].linkname == "/etc/passwd"
    assert packed["./d/hard"].islnk()
    assert packed["./d/hard"].linkname == "./d/f"
    assert engine.holders(launch.sandbox_id) == []


def test_an_unpacked_archive_is_the_packed_folder(runtime, engine, launch, other, source):
    runtime.unpack(other, runtime.pack(launch))

    assert engine.holders(other.sandbox_id) == []
    container = engine.container_of(runtime.start(other))
    assert ran(container, LISTS) == source.replace("-rwsr-xr-x", "-rwxr-xr-x")  # set-user-id is dropped
    assert ran(container, "cat d/f; [ d/f -ef d/hard ] && echo same") == "one\nsame\n"


def test_a_copy_has_the_files_and_each_goes_its_own_way(runtime, engine, launch, other, source):
    runtime.copy(other, launch.sandbox_id)

    assert engine.holders(launch.sandbox_id) == engine.holders(other.sandbox_id) == []
    copy = engine.container_of(runtime.start(other))
    assert ran(copy, LISTS) == source.replace("-rwsr-xr-x", "-rwxr-xr-x")
    ran(copy, "echo two > d/f")
    assert ran(engine.container_of(runtime.start(replace(launch, start=2))), "cat d/f") == "one\n"


def test_an_unpacked_archive_belongs_to_the_owner_of_the_images_folder_and_replaces_its_content(
    runtime, engine, launch, made_image
):
    image = made_image("USER root", "RUN echo given > /workspace/a && chown 777:778 /workspace", "USER 777")
    launch = replace(launch, image=image)

    runtime.unpack(launch, [archive({"deep/er/b": b"theirs"}, uid=1234)])

    container = engine.container_of(runtime.start(launch))
    assert ran(container, "stat -c %u:%g . deep deep/er deep/er/b").split() == ["777:778"] * 4
    assert ran(container, "find . -type f; echo mine > deep/er/b").split() == ["./deep/er/b"]


def archive(files: dict[str, bytes], **attributes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as written:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            for attribute, value in attributes.items():
                setattr(member, attribute, value)
            written.addfile(member, io.BytesIO(data))
    return made.getvalue()


@pytest.mark.parametrize(
    ("chunks", "sentence"),
    [
        ([archive({"../out": b"x"})], "is outside of the folder"),
        ([archive({"a": b"x" * 5000})[:3000]], "ends too early"),
        ([b"no archive" * 100], "is not a tar archive"),
    ],
)
def test_an_archive_that_is_refused_leaves_nothing(runtime, engine, launch, chunks, sentence):
    with pytest.raises(RuntimeCallFailed, match=sentence):
        runtime.unpack(launch, chunks)

    assert runtime.known() == []
    assert engine.holders(launch.sandbox_id) == []


def test_a_filled_volume_stays_as_it_is(runtime, launch, other):
    runtime.unpack(launch, [archive({"a": b"first"})])
    runtime.unpack(other, [archive({"b": b"second"})])

    runtime.unpack(launch, [archive({"b": b"second"})])
    runtime.copy(launch, other.sandbox_id)

    assert set(members(runtime.pack(launch))) == {".", "./a"}


def test_a_source_that_fails_is_a_failure_in_words_and_leaves_nothing(runtime, engine, launch):
    def broken() -> Iterator[bytes]:
        yield archive({"a": b"x"})[:100]
        raise ConnectionResetError("the client left")

    with pytest.raises(RuntimeCallFailed, match="the archive cannot be read: the client left"):
        runtime.unpack(launch, broken())

    assert runtime.known() == []


@pytest.mark.parametrize("next_call", ["known", "start", "unpack"])
def test_a_volume_that_a_killed_supervisor_had_half_filled_is_never_used(host, engine, launch, monkeypatch, next_call):
    with monkeypatch.context() as killed:
        killed.setattr("runtimes.docker.remove_container", die)
        killed.setattr("runtimes.docker._remove_volume", die)
        with pytest.raises(SystemExit):
            DockerRuntime(host).unpack(launch, [archive({"half": b"x"}), b""])
    assert engine.holders(launch.sandbox_id)

    runtime = DockerRuntime(host)
    if next_call == "start":
        assert ran(engine.container_of(runtime.start(launch)), "ls") == ""
    elif next_call == "unpack":
        runtime.unpack(launch, [archive({"whole": b"x"})])
        assert "./half" not in members(runtime.pack(launch))
    else:
        assert runtime.known() == []
        assert engine.client.volumes.list(filters={"name": launch.sandbox_id}) == []


def die(*_: object) -> None:
    raise SystemExit


def test_a_link_of_an_archive_leads_nowhere_outside_of_the_sandbox(runtime, engine, launch, tmp_path):
    hostile = archive({"link": b""}, type=tarfile.SYMTYPE, linkname=str(tmp_path))[:512] + archive({"link/x": b"in"})

    runtime.unpack(launch, [hostile])

    assert list(tmp_path.iterdir()) == []
    assert members(runtime.pack(launch))["./link/x"].size == 2


def test_a_full_disk_is_a_failure_in_words_and_leaves_nothing(runtime, engine, launch, monkeypatch):
    def small(*words, **options):
        mount = volume(*words, **options)
        mount["VolumeOptions"]["DriverConfig"] = {
            "Name": "local",
            "Options": {"type": "tmpfs", "device": "tmpfs", "o": "size=1m"},
        }
        return mount

    monkeypatch.setattr("runtimes.docker.volume", small)
    with pytest.raises(RuntimeCallFailed, match="no space left on device"):
        runtime.unpack(launch, [archive({"a": b"x" * (8 << 20)})])

    assert runtime.known() == []
    assert engine.holders(launch.sandbox_id) == []


def test_a_sandbox_without_files_cannot_be_packed_or_copied_and_gets_none(runtime, engine, launch, other):
    with pytest.raises(RuntimeCallFailed, match=r"cannot be read: .*no such volume"):
        list(runtime.pack(launch))
    with pytest.raises(RuntimeCallFailed, match=r"cannot be read: .*no such volume"):
        runtime.copy(other, launch.sandbox_id)

    assert runtime.known() == []


def test_a_reader_that_leaves_early_leaves_no_carrier(runtime, engine, launch):
    ran(engine.container_of(runtime.start(launch)), "head -c 50000000 /dev/urandom > big")
    packing = runtime.pack(launch)
    for _ in range(3):
        next(packing)

    packing.close()

    assert engine.holders(launch.sandbox_id) == [f"agent-server-{launch.sandbox_id}"]


def test_the_carrier_of_a_killed_supervisor_is_removed_by_the_next_one(host, engine, launch):
    killed = DockerRuntime(host)
    killed.unpack(launch, [archive({"a": b"kept"})])
    packing = killed.pack(launch)
    next(packing)
    [carrier] = engine.holders(launch.sandbox_id)

    assert DockerRuntime(f"{host}-other").known() == []
    assert [handle["container"] for handle in killed.known()] == [None]
    assert engine.holders(launch.sandbox_id) == [carrier]  # it is in use
    assert [handle["container"] for handle in DockerRuntime(host).known()] == [None]
    assert engine.holders(launch.sandbox_id) == []


def test_archives_are_streamed_in_bounded_memory(runtime, launch, other):
    tracemalloc.start()
    try:
        runtime.unpack(launch, zeros(200))
        assert sum(len(chunk) for chunk in runtime.pack(launch)) > 200 << 20
        runtime.copy(other, launch.sandbox_id)
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
    finally:
        tracemalloc.stop()


def zeros(count: int) -> Iterator[bytes]:
    """An archive of one file of so many mebibytes."""
    member = tarfile.TarInfo("big")
    member.size = count << 20
    yield member.tobuf()
    for _ in range(count):
        yield bytes(1 << 20)
    yield bytes(1024)

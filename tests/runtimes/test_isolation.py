"""What a sandbox reaches from inside, in each isolation: its own, the webhooks, the internet; nothing of the host."""

import contextlib
import errno
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

import runtimes.starts
from runtimes import ProcessState, RuntimeCallFailed
from runtimes.isolation import Abilities, kernel
from runtimes.isolation.abilities import abilities
from runtimes.starts import EGRESS_SOCKET
from tests.runtimes.host import (
    FAR,
    HOOK_KEY,
    METADATA,
    NEAR,
    PLANTED,
    a_launch,
    a_terminal,
    api,
    greeting,
    internet,
    lacking,
    metadata_service,
    require,
    runtime_in,
    secret_process,
    tried,
)
from tests.servers import wait_until

pytestmark = pytest.mark.process("starts sandboxes")


@pytest.fixture(params=[pytest.param("bubblewrap", marks=pytest.mark.process("the same in bubblewrap")), "landlock"])
def kind(request, monkeypatch):
    require(request.param, monkeypatch)
    return request.param


@pytest.fixture
def data(tmp_path):
    """The folder of a server's data, with a key in it."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    (folder / "key").write_text(PLANTED)
    (folder / "key").chmod(0o600)
    return folder


@pytest.fixture
def runtime(data):
    with runtime_in(data) as runtime:
        yield runtime


@pytest.fixture
def server():
    with api() as server:
        yield server


def test_nothing_of_the_host_is_reached(kind, runtime, data, server):
    other, _ = tried(runtime, a_launch("other"), [("write", "write", "mine")])
    theirs = Path(other["folder"]) / "work" / "mine"
    theirs.write_text(PLANTED)
    (data / "archive").mkdir()
    abstract = f"\0{PLANTED}-{uuid4().hex}"
    with (
        secret_process() as pid,
        greeting(socket.AF_UNIX, str(data / "redis.sock")),
        greeting(socket.AF_UNIX, abstract),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
        a_terminal() as terminal,
    ):
        datagrams.bind(str(data / "datagrams"))
        tries = [
            ("a terminal of the server's user", "terminal", terminal),
            ("the server's environment", "read", f"/proc/{pid}/environ"),
            ("the launcher's environment", "read", f"/proc/{other['pid']}/environ"),
            ("a key file", "read", str(data / "key")),
            ("another sandbox's file", "read", str(theirs)),
            ("another sandbox's folder", "entries", str(theirs.parent)),
            ("its own log", "read", str(data / "sandboxes" / "host" / "box" / "log")),
            ("a file of /etc", "read", "/etc/shadow"),
            ("the home of root", "entries", str(Path.home() / ".ssh")),
            ("the server's code", "read", str(Path(runtimes.starts.__file__))),
            ("the server's specs", "read", str(Path(__file__).parent.parent.parent / "specs.toml")),
            ("a program's place", "write", "/usr/bin/planted"),
            ("the store's socket", "unix", str(data / "redis.sock")),
            ("an abstract socket", "unix", "@" + abstract[1:]),
            ("a datagram socket", "datagram", str(data / "datagrams")),
            ("names of another sandbox's files", "watch", str(theirs.parent)),
            ("names of the server's files", "watch", str(data / "archive")),
            ("the API on loopback", "connect", "127.0.0.1", server.port),
            ("the API by another name", "connect", "localhost", server.port),
            ("the API by MPTCP", "multipath", "127.0.0.1", server.port),
            ("the API by fast open", "fast_open", "127.0.0.1", server.port),
            ("a process", "kill", pid),
            ("the launcher", "kill", other["pid"]),
            ("a process's limits", "call", 302, pid, 7, 0, 0),
            ("the keyring", "call", 250, 0, -3, 0, 0, 0),
            ("a new user namespace", "call", 272, 0x1000_0000),
            ("io_uring", "call", 425, 1, 0),
            ("fanotify, as a user without rights may have it", "call", 300, 0x200, 0),
            ("a mark of fanotify", "call", 301, -1, 0x101, 0x2, -100, 0),
            ("BPF", "call", 321, 0, 0, 0),
        ]
        _, outcomes = tried(runtime, a_launch(webhooks=server.hooks), tries)

    reached = {name: outcome for name, outcome in outcomes.items() if outcome.startswith("reached")}
    assert reached == {}
    assert PLANTED not in str(outcomes)
    assert server.requests == []


def test_under_landlock_a_sandbox_opens_the_terminals_that_it_was_given_and_no_others(runtime, monkeypatch):
    require("landlock", monkeypatch)
    _, other = tried(runtime, a_launch("other"), [("given", "given_terminals")])
    theirs = other["given"].removeprefix("reached: ").split()
    tries = [("given", "given_terminals"), ("new", "own_terminal"), ("another sandbox's", "terminal", theirs[0])]

    _, outcomes = tried(runtime, a_launch(), tries)

    assert len({*theirs, *outcomes["given"].removeprefix("reached: ").split()}) == 64
    assert outcomes["new"].startswith("refused")
    assert outcomes["another sandbox's"].startswith("refused")


def test_under_landlock_a_sandbox_listens_on_a_port_that_the_kernel_chooses_and_says_so(runtime, monkeypatch):
    """A limitation: Landlock checks a bind, and a listener that was not bound has none."""
    require("landlock", monkeypatch)
    tries = [("a port of its choice", "bind", "127.0.0.1", 0), ("a port of the kernel's", "listen")]
    handle, outcomes = tried(runtime, a_launch(), tries)

    says_so = any("port of the host that the kernel chooses" in one for one in handle["isolation"]["reaches"])
    assert says_so is outcomes["a port of the kernel's"].startswith("reached")
    if abilities().landlock >= kernel.TCP:
        assert outcomes["a port of its choice"].startswith("refused")


def test_no_file_gets_the_bits_set_uid_and_set_gid(kind, runtime):
    tries = [
        ("chmod", "change_mode", "a", 0o4755),
        ("chmod of the group", "change_mode", "a", 0o2755),
        ("open", "make", "b", 0o4755),
        ("a file without a name", "make", ".", 0o4755, os.O_TMPFILE),
        ("mknod", "make_node", "c", 0o4755),
        ("openat2", "call", 437, -100, 0, 0, 24),
        ("an ordinary mode", "change_mode", "d", 0o1755),
        ("an ordinary file", "make", "e", 0o755),
    ]
    handle, outcomes = tried(runtime, a_launch(), tries)

    reached = {name for name, outcome in outcomes.items() if outcome.startswith("reached")}
    assert reached == {"an ordinary mode", "an ordinary file"}
    assert not [path for path in (Path(handle["folder"]) / "work").iterdir() if path.stat().st_mode & 0o6000]


def test_under_landlock_no_attribute_is_set_and_connected_pairs_of_sockets_work(runtime, monkeypatch):
    require("landlock", monkeypatch)
    _, outcomes = tried(runtime, a_launch(), [("an attribute", "attribute", "a"), ("a pair", "pair")])

    assert outcomes["an attribute"].startswith("refused")
    assert outcomes["a pair"] == "reached: bytes"


def test_no_names_of_files_elsewhere_are_told_by_fanotify(kind, runtime):
    reports_ids = 0x200  # FAN_REPORT_FID, with which the kernel lets any user watch
    _, outcomes = tried(runtime, a_launch(), [("fanotify", "of_libc", "fanotify_init", reports_ids, 0)])

    assert f"[Errno {errno.EPERM}]" in outcomes["fanotify"], kind


def test_under_landlock_no_memory_queue_or_semaphore_is_made_that_outlives_its_sandbox(runtime, monkeypatch):
    require("landlock", monkeypatch)
    private, mode = 0, 0o1600  # IPC_PRIVATE; IPC_CREAT with a mode
    tries = [
        ("memory", "of_libc", "shmget", private, 4096, mode),
        ("a queue", "of_libc", "msgget", private, mode),
        ("semaphores", "of_libc", "semget", private, 1, mode),
        ("an attachment", "of_libc", "shmat", 0, 0, 0),
        ("a queue by name", "of_libc", "mq_open", "/planted", os.O_CREAT | os.O_RDWR, 0o600, 0),
    ]
    _, outcomes = tried(runtime, a_launch(), tries)

    refused = {name for name, outcome in outcomes.items() if f"[Errno {errno.EPERM}]" in outcome}
    assert refused == {name for name, *_ in tries}


def test_under_landlock_calls_that_are_newer_than_libseccomp_are_refused_too(runtime, monkeypatch):
    require("landlock", monkeypatch)
    tries = [
        ("setxattrat", "call", 463, -100, 0, 0, 0, 0, 0),
        ("removexattrat", "call", 466, -100, 0, 0, 0),
        ("file_setattr", "call", 469, -100, 0, 0, 0, 0),
        ("open_tree_attr", "call", 467, -100, 0, 0, 0, 0),
        ("mount_setattr", "call", 442, -100, 0, 0, 0, 0),
        ("quotactl_fd", "call", 443, -1, 0, 0, 0),
        ("fchmodat2, set-uid", "call", 452, -100, 0, 0o4755, 0),
        ("fchmodat2, set-gid", "call", 452, -100, 0, 0o2755, 0),
        ("fchmodat2", "call", 452, -100, 0, 0o755, 0),
    ]
    _, outcomes = tried(runtime, a_launch(), tries)

    refused = {name for name, outcome in outcomes.items() if f"[Errno {errno.EPERM}]" in outcome}
    assert refused == {name for name, *_ in tries} - {"fchmodat2"}  # which the kernel refuses itself: no path


@pytest.mark.skipif(not kernel.HAS_SECCOMP, reason="libseccomp is not installed")
def test_a_release_of_libseccomp_that_knows_no_call_of_the_last_years_makes_the_same_filter(monkeypatch):
    made = kernel.filter_program(shared=True, datagrams=False)

    class Older:
        def __getattr__(self, name):
            return getattr(library, name)

        def seccomp_syscall_resolve_name(self, name):
            number = library.seccomp_syscall_resolve_name(name)
            return -1 if number >= 424 else number

    library = kernel._SECCOMP
    monkeypatch.setattr(kernel, "_SECCOMP", Older())
    assert kernel.filter_program(shared=True, datagrams=False) == made


def test_the_sandboxs_own_files_agent_port_and_webhooks_are_reached(kind, runtime, server):
    tries = [
        ("its folder", "write", "mine"),
        ("a temporary file", "environment", "TMPDIR"),
        ("a webhook", "post", "^/events/abc"),
        ("another call of the API", "post", "^/../sandboxes"),
        ("a read of the API", "get", "^/events/abc"),
    ]
    handle, outcomes = tried(runtime, a_launch(webhooks=server.hooks), tries)

    assert outcomes["its folder"] == "reached: written"
    assert outcomes["a webhook"] == "reached: 200"
    assert "403" in outcomes["another call of the API"]
    assert "403" in outcomes["a read of the API"]
    [(method, path, headers, body)] = server.requests
    assert (method, path, body) == ("POST", "/api/v1/webhooks/events/abc", b"[]")
    assert headers["Authorization"] == f"Bearer {HOOK_KEY}"  # and not what the sandbox sent
    assert httpx.get(f"http://127.0.0.1:{handle['ports']['AGENT_SERVER']}").text == "the agent"
    assert (Path(handle["folder"]) / "work" / "mine").read_text() == "written by the sandbox"


@pytest.mark.process("makes networks, and waits for what they must not reach")
def test_the_internet_is_reached_where_the_spec_allows_it_and_the_host_and_metadata_services_are_not(kind, runtime):
    if kind == "bubblewrap" and abilities().pasta:
        lacking(abilities().pasta)
    with internet(), metadata_service(), greeting(socket.AF_INET, ("0.0.0.0", 0)) as listener:
        port = listener.getsockname()[1]
        tries = [
            ("the internet", "connect", FAR, 443),
            ("another port of it", "connect", FAR, 8443),
            ("a host's address", "connect", NEAR, port),
            ("the host's loopback", "connect", "127.0.0.1", port),
            ("metadata", "connect", METADATA, 80),
        ]
        handle, outcomes = tried(runtime, a_launch(network="internet"), tries)
        _, without = tried(runtime, a_launch("offline", network="none"), tries)

    assert outcomes["the internet"] == "reached: the internet"
    assert outcomes["another port of it"].startswith("reached: the" if kind == "bubblewrap" else "refused")
    assert outcomes["a host's address"].startswith("refused")
    assert outcomes["the host's loopback"].startswith("refused")
    says_so = any(METADATA in sentence for sentence in handle["isolation"]["reaches"])
    assert outcomes["metadata"].startswith("reached" if says_so else "refused")
    assert says_so == (kind == "landlock")
    assert all(outcome.startswith("refused") for name, outcome in without.items() if name != "done")


@contextlib.contextmanager
def proxy_in(folder: Path) -> Iterator[list[str]]:
    """What stands for the proxy: it notes what comes, and says that it did."""
    came: list[str] = []
    folder.mkdir(parents=True, exist_ok=True)
    (folder / EGRESS_SOCKET).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / EGRESS_SOCKET))
        listener.listen()

        def answer() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    text = b""
                    while b"\r\n\r\n" not in text and (piece := client.recv(4096)):
                        text += piece
                    came.append(text.decode())
                    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nproxy")

        threading.Thread(target=answer, daemon=True).start()
        yield came
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.process("makes networks, and waits for what they must not reach")
def test_a_way_out_by_name_leads_to_the_proxy_and_nothing_else_is_reached(kind, runtime, data):
    folder = data / "sandboxes" / "host"
    with (
        internet(),
        proxy_in(folder) as came,
        greeting(socket.AF_INET, ("0.0.0.0", 0)) as listener,
    ):
        port = listener.getsockname()[1]
        tries = [
            ("the proxy", "way_out", "/model/x"),
            ("the internet", "connect", FAR, 443),
            ("a host's address", "connect", NEAR, port),
            ("the host's loopback", "connect", "127.0.0.1", port),
            ("metadata", "connect", METADATA, 80),
            ("the proxy's socket", "unix", str(folder / EGRESS_SOCKET)),
            ("the proxy's port", "take_port_of_way_out"),
            ("UDP", "udp"),
            ("raw sockets", "raw"),
        ]
        handle, outcomes = tried(runtime, a_launch(network="named", env={"EGRESS": "{EGRESS}"}), tries)

    assert outcomes.pop("the proxy") == "reached: 200 proxy"
    del outcomes["done"]
    assert [name for name, outcome in outcomes.items() if not outcome.startswith("refused")] == []
    assert came[0].startswith(f"{HOOK_KEY}\nGET /model/x HTTP/1.1\r\n")
    assert handle["egress_url"].startswith("http://127.0.0.1:")
    assert (handle["isolation"]["kind"], handle["isolation"]["network"]) == (kind, "named")


def test_a_way_out_whose_proxy_does_not_run_says_so(kind, runtime):
    tries = [("the proxy", "way_out", "/model/x")]
    _, outcomes = tried(runtime, a_launch(network="named", env={"EGRESS": "{EGRESS}"}), tries)
    assert outcomes["the proxy"].startswith("reached: 503")
    assert "Try again" in outcomes["the proxy"]


def test_a_sandbox_that_nothing_holds_says_that_its_way_out_is_not_held(runtime, monkeypatch, data):
    monkeypatch.setattr(runtimes.starts, "abilities", lambda: Abilities("no bwrap here", "", 0, False, False))
    with proxy_in(data / "sandboxes" / "host"):
        launch = a_launch(network="named", env={"EGRESS": "{EGRESS}"})
        handle, outcomes = tried(runtime, launch, [("the proxy", "way_out", "/model/x")])
    assert outcomes["the proxy"] == "reached: 200 proxy"
    assert any("nothing prevents other connections" in sentence for sentence in handle["isolation"]["lacks"])


def test_a_sandbox_says_what_isolates_it(kind, runtime):
    handle, _ = tried(runtime, a_launch(), [])

    said = handle["isolation"]
    assert (said["kind"], said["network"]) == (kind, "none")
    assert bool(said["lacks"]) == (kind == "landlock")


def test_a_sandbox_without_isolation_says_so(runtime):
    handle, outcomes = tried(runtime, a_launch(isolation="none", network=None), [("a file", "entries", "/")])

    assert outcomes["a file"].startswith("reached")
    assert handle["isolation"]["kind"] == "none"
    assert "Nothing keeps it away" in handle["isolation"]["reaches"][0]


def test_auto_is_none_where_nothing_works_and_says_why(runtime, monkeypatch):
    monkeypatch.setattr(runtimes.starts, "abilities", lambda: Abilities("no bwrap here", "", 0, False, False))
    handle, _ = tried(runtime, a_launch(), [])

    assert handle["isolation"]["kind"] == "none"
    assert "no bwrap here" in handle["isolation"]["lacks"][0]


def test_a_sandbox_that_requires_isolation_does_not_start_without_bubblewrap(runtime, monkeypatch):
    monkeypatch.setattr(runtimes.starts, "abilities", lambda: Abilities("no bwrap here", "", 7, True, False))
    with pytest.raises(RuntimeCallFailed, match=r"required.*bubblewrap does not work here: no bwrap here"):
        runtime.start(a_launch(isolation="required"))
    assert runtime.known() == []


@pytest.mark.process("starts a sandbox in bubblewrap")
def test_without_pasta_a_sandbox_has_no_internet_and_says_so(runtime, monkeypatch):
    require("bubblewrap", monkeypatch)
    without = Abilities("", "pasta is not installed", 0, True, abilities().users)
    monkeypatch.setattr(runtimes.starts, "abilities", lambda: without)
    handle, _ = tried(runtime, a_launch(network="internet"), [])

    assert handle["isolation"]["network"] == "none"
    assert handle["isolation"]["lacks"] == ["It does not reach the internet: pasta is not installed."]


def test_a_readable_folder_is_seen_and_not_written(kind, runtime, tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    given.chmod(0o755)
    (given / "file").write_text("for all")
    launch = a_launch(readable=(*a_launch().readable, str(given)))
    tries = [("read", "read", str(given / "file")), ("write", "write", str(given / "other"))]

    _, outcomes = tried(runtime, launch, tries)

    assert outcomes["read"] == "reached: for all"
    assert outcomes["write"].startswith("refused")


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/no/such", "does not exist"),
        ("{data}", "which contains"),
        ("{data}/key", "the server's own"),
        ("{up}", "which contains"),
    ],
)
def test_a_readable_path_that_is_missing_or_shows_the_servers_data_is_refused(kind, runtime, data, path, sentence):
    named = path.format(data=data, up=data.parent)
    with pytest.raises(RuntimeCallFailed, match=sentence):
        runtime.start(a_launch(readable=(named,)))


def test_a_program_that_the_sandbox_does_not_see_is_named_with_the_remedy(kind, runtime):
    launch = a_launch()
    with pytest.raises(RuntimeCallFailed, match=r"inside.py cannot be run: .*readable"):
        runtime.start(replace(launch, command=launch.command[2:], readable=()))


@pytest.mark.process("starts a sandbox twice")
def test_a_confined_sandbox_pauses_resumes_stops_and_starts_again_with_its_files(kind, runtime):
    handle, _ = tried(runtime, a_launch(), [("write", "write", "mine")])
    url = f"http://127.0.0.1:{handle['ports']['AGENT_SERVER']}"

    runtime.pause(handle)
    assert runtime.observe(handle).state is ProcessState.PAUSED
    with pytest.raises(httpx.TimeoutException):
        httpx.get(url, timeout=0.3)
    runtime.resume(handle)
    wait_until(lambda: httpx.get(url).text == "the agent", "the resumed agent")
    runtime.stop(handle)
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)

    again, outcomes = tried(runtime, a_launch(start=2), [("read", "read", "mine")])
    assert outcomes["read"] == "reached: written by the sandbox"
    assert again["start"] == 2

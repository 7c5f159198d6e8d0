"""The files of the machine that a confined sandbox sees, beside its own: an allowlist, and all of it read-only."""

import os
import site
import sys
from collections.abc import Iterable
from pathlib import Path

from runtimes import RuntimeFailure

#: folders of programs and libraries; on most systems all but the first are links into it
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")

#: what programs need of /etc: names, certificates, time, the linker. Nothing here is secret
_ETC = """\
hosts host.conf gai.conf nsswitch.conf services protocols ld.so.cache ld.so.conf ld.so.conf.d localtime timezone
alternatives os-release debian_version mime.types inputrc bash.bashrc profile profile.d terminfo fonts
ssl/certs ssl/openssl.cnf pki/tls/certs pki/tls/openssl.cnf pki/ca-trust/extracted ca-certificates crypto-policies
python3 java-11-openjdk java-17-openjdk java-21-openjdk perl magic magic.mime
"""

PROJECT = Path(__file__).parent.parent.parent

#: what the reference agent needs of the server's folder
_AGENT = ("agents", "wire.py")


def system_files() -> list[str]:
    """What every sandbox sees of the system. Links are as the system has them."""
    return [path for path in (*SYSTEM, *(f"/etc/{name}" for name in _ETC.split())) if Path(path).exists()]


def interpreter() -> list[str]:
    """The server's Python, its packages, and the reference agent; each also under the path that its links lead to."""
    packages = [path for path in (*site.getsitepackages(), site.getusersitepackages()) if Path(path).is_dir()]
    program = Path(sys.executable)
    places = [sys.prefix, sys.base_prefix, *packages, *(str(PROJECT / name) for name in _AGENT)]
    while program.is_symlink():  # a virtual environment links to the interpreter that made it
        program = program.parent / program.readlink()
    places.append(str(program.parent))
    return [path for place in places for path in dict.fromkeys((place, str(Path(place).resolve())))]


def link_agent(folder: Path) -> None:
    """Make a folder of links to what the reference agent needs, and nothing else.

    Landlock allows a folder with all below it or not at all, and Python must list the folder that it imports from.
    """
    folder.mkdir(mode=0o700)
    for name in _AGENT:
        (folder / name).symlink_to(PROJECT / name)


def readable(extra: Iterable[str], private: Iterable[Path]) -> list[str]:
    """Everything that a sandbox may read, outermost paths only; `extra` are the paths that its spec names.

    private: what no sandbox may read. Raises RuntimeFailure for a path of `extra` that does not exist, and where one
    of these paths would show what is private.
    """
    named = [os.path.normpath(path) for path in extra]
    for path in named:
        if not Path(path).exists():
            raise RuntimeFailure(f"its spec's `readable` names {path}, which does not exist")
    paths = [*system_files(), *(path for path in interpreter() if path != "/"), *named]
    for secret in (path.resolve() for path in private):
        for path in named:
            if Path(path).resolve().is_relative_to(secret):
                raise RuntimeFailure(f"its spec's `readable` names {path}, in which the server keeps its own data")
        for path in paths:
            if secret.is_relative_to(Path(path).resolve()):
                raise RuntimeFailure(f"it could read {path}, in which the server keeps {secret}: move one of both")
    return _outermost(paths)


def is_seen(path: str, paths: Iterable[str]) -> bool:
    """Whether a path lies at or below one of these."""
    return any(Path(path).is_relative_to(outer) for outer in paths)


def _outermost(paths: Iterable[str]) -> list[str]:
    kept: list[str] = []
    for path in sorted(dict.fromkeys(paths), key=len):
        if not is_seen(path, kept):
            kept.append(path)
    return kept


def resolvers() -> str:
    """The content of /etc/resolv.conf for a sandbox with a network of its own.

    A resolver on the host's loopback cannot be reached from there, so those stand in that systemd-resolved asks; where
    it asks none, pasta forwards to the host's resolver what is sent to FORWARDER.
    """
    for file in ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"):
        try:
            lines = [line.split() for line in Path(file).read_text().splitlines()]
        except OSError:
            continue
        own = [words for words in lines if words and words[0] in ("search", "options")]
        servers = [words for words in lines if len(words) > 1 and words[0] == "nameserver" and _is_far(words[1])]
        if servers:
            return "".join(f"{' '.join(words)}\n" for words in servers + own)
    return f"nameserver {FORWARDER}\n"


#: an address that no machine has. Source: RFC 7600, IPv4 dummy address
FORWARDER = "192.0.0.8"


def _is_far(address: str) -> bool:
    return not address.lower().startswith(("127.", "::1", "169.254.", "fe80:"))

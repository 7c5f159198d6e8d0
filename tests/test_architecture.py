"""The layering and the size of things, as docs/architecture.md says."""

import ast
import functools
import gc
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.servers import PROJECT

HTTP = {"flask", "flask_smorest", "webargs", "schemas", "blueprints", "app"}
#: what each room may not import
ROOMS = {
    "core": {
        *HTTP,
        *("marshmallow", "redis", "store", "settings", "agents", "net", "runtimes", "supervisor", "telemetry"),
    },
    "settings": {*HTTP, "redis", "store", "agents", "runtimes", "supervisor", "telemetry", "notifications"},
    "net": {
        *HTTP,
        *("marshmallow", "redis", "store", "settings", "telemetry", "boot", "agents", "egress", "notifications"),
        *("runtimes", "supervisor"),
    },
    "telemetry": {*HTTP, "app", "marshmallow", "redis", "settings", "agents", "runtimes", "supervisor"},
    "boot": {*HTTP, "marshmallow", "redis", "store", "agents", "runtimes", "supervisor"},
    "store": {*HTTP, "marshmallow", "agents", "runtimes", "supervisor", "notifications", "boot"},
    "schemas": {"flask", "flask_smorest", "webargs", "redis", "store", "blueprints", "app", "settings", "agents"},
    "blueprints": {"redis", "fakeredis", "app", "runtimes", "supervisor"},
    "runtimes": {
        *HTTP,
        *("marshmallow", "redis", "store", "settings", "telemetry", "boot", "agents", "egress", "notifications"),
        "supervisor",
    },
    "notifications": {*HTTP, "marshmallow", "redis", "agents", "egress", "runtimes", "supervisor"},
    "supervisor": HTTP,
    "egress": {*HTTP, "marshmallow", "redis", "agents", "runtimes", "supervisor", "notifications"},
    "client": {
        *HTTP,
        *("admin", "agents", "boot", "core", "notifications", "redis", "runtimes", "settings", "store", "supervisor"),
        *("net", "telemetry", "wiring"),
    },
    "reference_agent": {
        *HTTP - {"flask"},
        "net",
        "redis",
        "store",
        "settings",
        "agents",
        "runtimes",
        "supervisor",
        "telemetry",
    },
}
FOLDERS = (*ROOMS, "admin", "agents")
#: the wings of the store from the ground up; its modules in no wing are for all of them
WINGS = ("link", "log", "sandboxes", "approvals", "conversations", "access")
SOURCES = [*PROJECT.glob("*.py"), *(path for folder in FOLDERS for path in PROJECT.glob(f"{folder}/**/*.py"))]


def named(path: Path) -> str:
    return str(path.relative_to(PROJECT))


@functools.cache
def module(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """Every node of a module, from the outermost in."""
    return list(ast.walk(module(path)))


@pytest.fixture(scope="module", autouse=True)
def parsed():
    """What the tests share: all modules are read once. The collector would look through all of them again and again."""
    gc.disable()
    for path in SOURCES:
        nodes(path)
    yield
    module.cache_clear()
    nodes.cache_clear()
    gc.enable()


def imported(found: Iterable[ast.AST]) -> set[str]:
    names = set()
    for node in found:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


def test_imports_point_one_way():
    faults = {
        named(path): upward
        for room, above in ROOMS.items()
        for path in (PROJECT / room).rglob("*.py")
        if (upward := imported(nodes(path)) & above)
    }
    assert faults == {}


def test_a_wing_of_the_store_imports_from_those_below_it():
    faults = []
    for number, wing in enumerate(WINGS):
        above = {f"store.{one}" for one in WINGS[number + 1 :]}
        for path in (PROJECT / "store" / wing).rglob("*.py"):
            modules = {node.module or "" for node in nodes(path) if isinstance(node, ast.ImportFrom)}
            faults += [f"{named(path)}: {module}" for module in modules if module.rpartition(".")[0] in above]
    assert faults == []


#: what the gunicorn master loads, and `admin` before a store is there
SHARED = [
    *(f"core/{name}.py" for name in ("bounds", "disk", "wire", "pauses", "origins", "program", "masking", "visible")),
    "settings/data_dir.py",
    *(f"telemetry/{name}.py" for name in ("meter", "traces", "logs")),
    *(f"boot/{name}.py" for name in ("children", "embedded", "http", "keeper")),
]


def test_the_shared_modules_import_the_standard_library_alone():
    allowed = {"boot", "core", "settings", "telemetry", *sys.stdlib_module_names}
    assert {name: more for name in SHARED if (more := imported(nodes(PROJECT / name)) - allowed)} == {}


@pytest.mark.process("starts a program")
def test_the_gunicorn_master_loads_nothing_that_gevent_must_patch_in_the_workers():
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, settings.config, settings.specs, boot.embedded, boot.http, boot.keeper, telemetry.logs; "
            "import boot.posture, telemetry.meter; "
            "print(*sys.modules)",
        ],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()

    assert not {"redis", "fakeredis", "gevent", "ssl", "flask"} & set(loaded)


def test_files_and_functions_stay_small_and_import_at_the_top():
    faults = []
    for path in SOURCES:
        if named(path) == "store/scripts/calls.py":  # made: it grows with the scripts and their outcomes
            continue
        # A bound against accidents alone: a file is split by subject, never to fit a number.
        is_made = path.read_text().partition("\n")[0].endswith("Made by docs/make.py from the heads.")
        if not is_made and (lines := len(path.read_text().splitlines())) > 1000:
            faults.append(f"{named(path)}: {lines} lines")
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef):
                if (lines := node.end_lineno - node.lineno) > 80:
                    faults.append(f"{named(path)}: {node.name}: {lines} lines")
                if imported(ast.walk(node)):
                    faults.append(f"{named(path)}: {node.name} imports")
    assert faults == []


def test_key_names_are_joined_in_store_keys_alone():
    parts = "log|ids|at|pending|calls|text|box|task|host|hosts|due|signal|created|updated|keys|reply|unclaimed"
    a_key = re.compile(
        rf"^conv:|conversations:\{{|\{{(all|sandboxes|starts)\}}|^\{{(approvals|rules|notify)\}}|^:({parts})\b|^follower:"
    )
    faults = [
        f"{named(path)}: {node.value[:80]}"
        for path in SOURCES
        if named(path) != "store/keys.py"
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and a_key.search(node.value)
    ]
    assert faults == []


def test_no_file_is_named_for_a_role():
    assert not [named(path) for path in SOURCES if re.search(r"util|helper|manager|base|common|misc", path.stem)]


def late_constants(path: Path) -> list[str]:
    """The constants and loggers that stand below the first definition of a module and need none of its definitions."""
    body, found = module(path).body, list[str]()
    definitions = ast.FunctionDef | ast.ClassDef
    own = {one.name for one in body if isinstance(one, definitions)}
    first = next((at for at, one in enumerate(body) if isinstance(one, definitions)), len(body))
    for one in body[first:]:
        if isinstance(one, ast.Assign | ast.AnnAssign) and one.value is not None:
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            names = {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
            used = {node.id for node in ast.walk(one) if isinstance(node, ast.Name)} - names
            is_logger = ast.unparse(one.value).startswith("logging.getLogger")
            if used & own or not (is_logger or all(re.fullmatch("_?[A-Z][A-Z0-9_]*", name) for name in names)):
                own |= names
            else:
                found += sorted(names)
    return found


def test_constants_and_loggers_stand_above_the_first_definition():
    assert {named(path): found for path in SOURCES if (found := late_constants(path))} == {}

"""The layering and the size of things, as the decisions say."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import PROJECT

HTTP = {"flask", "flask_smorest", "webargs", "schemas", "blueprints", "app"}
ROOMS = {
    "store": {*HTTP, "marshmallow", "config", "agents", "runtimes", "supervisor", "specs", "objects"},
    "schemas": {"flask", "flask_smorest", "webargs", "redis", "store", "blueprints", "app", "config", "agents"},
    "blueprints": {"redis", "fakeredis", "app", "config", "runtimes", "supervisor"},
    "runtimes": {*HTTP, "marshmallow", "redis", "store", "config", "agents", "supervisor", "specs"},
    "supervisor": HTTP,
    "notifications": {*HTTP, "marshmallow", "redis", "config", "runtimes", "supervisor", "specs"},
    "objects": {*HTTP, "marshmallow", "redis", "config", "agents", "runtimes", "supervisor", "specs", "notifications"},
    "approvals": {*HTTP, "marshmallow", "redis", "store", "config", "agents", "runtimes", "supervisor", "specs"},
    "settings": {*HTTP, "marshmallow", "redis", "store", "config", "agents", "runtimes", "supervisor", "specs"},
    "specs": {*HTTP, "redis", "store", "agents", "supervisor"},
    "boot": {*HTTP, "marshmallow", "redis", "store", "config", "agents", "runtimes", "supervisor", "specs"},
}
FOLDERS = (
    *("agents", "approvals", "blueprints", "boot", "notifications", "objects", "runtimes", "schemas", "settings"),
    *("specs", "store", "supervisor"),
)
#: the wings of the store from the ground up; its modules in no wing are for all of them
WINGS = ("link", "log", "sandboxes", "approvals", "conversations", "access", "notifications")
SOURCES = [*PROJECT.glob("*.py"), *(path for folder in FOLDERS for path in PROJECT.glob(f"{folder}/**/*.py"))]


def named(path: Path) -> str:
    return str(path.relative_to(PROJECT))


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_one_way(room):
    for path in (PROJECT / room).rglob("*.py"):
        assert not imported(ast.parse(path.read_text())) & ROOMS[room], named(path)


@pytest.mark.parametrize("wing", WINGS)
def test_a_wing_of_the_store_imports_from_those_below_it(wing):
    above = {f"store.{one}" for one in WINGS[WINGS.index(wing) + 1 :]}
    for path in (PROJECT / "store" / wing).rglob("*.py"):
        modules = {
            node.module or "" for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)
        }
        assert not {module.rpartition(".")[0] for module in modules} & above, named(path)


@pytest.mark.parametrize(
    "name",
    [
        "wire.py",
        "origins.py",
        "meter.py",
        *(
            f"boot/{name}.py"
            for name in (
                "backoff",
                "draining",
                "embedded",
                "folder",
                "json_lines",
                "routes",
                "headers",
                "keeper",
                "lifeline",
                "masking",
                "otel",
                "program",
                "restarts",
                "tallies",
            )
        ),
    ],
)
def test_the_shared_modules_import_the_standard_library_alone(name):
    assert imported(ast.parse((PROJECT / name).read_text())) - {"boot"} <= sys.stdlib_module_names


def test_the_gunicorn_master_loads_nothing_that_gevent_must_patch_in_the_workers():
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, config, specs, boot.embedded, boot.headers, boot.keeper, boot.masking, boot.posture; "
            "import boot.draining, boot.tallies; "
            "print(*sys.modules)",
        ],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()

    assert not {"redis", "fakeredis", "gevent", "ssl", "flask"} & set(loaded)


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_files_and_functions_stay_small_and_import_at_the_top(path):
    tree = ast.parse(path.read_text())

    assert len(path.read_text().splitlines()) <= 300
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno <= 50, node.name
            assert not imported(ast.Module(node.body, [])), f"{node.name} imports"


KEY_MODULES = [f"store/{name}.py" for name in ("keys", "approval_keys", "change_keys", "cold_keys", "warm_keys")]


def test_key_names_are_joined_in_the_key_modules_alone():
    parts = "log|ids|at|pending|calls|text|box|task|host|hosts|due|signal|created|updated|keys|reply|unclaimed"
    a_key = re.compile(
        rf"^conv:|conversations:\{{|\{{(all|sandboxes|starts)\}}|^\{{(approvals|rules|notify)\}}|^:({parts})\b|^follower:"
    )
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if is_text and named(path) not in KEY_MODULES:
                assert not a_key.search(node.value), f"{named(path)}: {node.value[:80]}"


def test_no_file_is_named_for_a_role():
    assert not [named(path) for path in SOURCES if re.search(r"util|helper|manager|base|common|misc", path.stem)]

"""The image has every file that the server needs. No engine is asked."""

import ast
import functools
from pathlib import Path

from docker.utils.build import exclude_paths

from blueprints.api import OPENAPI
from settings.specs import BUNDLED
from tests.servers import PROJECT

#: modules that are started by name: by gunicorn, the health check, the documentation, or `python -m` in the project
STARTED = {
    "app",
    "settings.config",
    "admin.audit",
    "admin.conversations",
    "admin.keys",
    "admin.migrate",
    "gunicorn.conf",
    "supervisor",
    "reference_agent",
    "runtimes.launch",
    "blueprints.tracing",
    "store.objects.s3",
}

#: files that are read without being imported
DATA = [BUNDLED, OPENAPI, PROJECT / "requirements.txt", PROJECT / "core/shell/programs.toml"]
DATA += [*(PROJECT / "store/scripts").glob("*.lua")]
DATA += (PROJECT / "store/log/dictionaries").glob("*.zdict")
DATA += [path for path in (PROJECT / "blueprints/pages").iterdir() if path.is_file()]
DATA += [path for path in (PROJECT / "console").rglob("*") if path.is_file() and not path.match("*.d.*ts")]


@functools.cache
def admitted() -> set[Path]:
    """The files that .dockerignore lets into a build, as Docker's own library reads it."""
    patterns = [line for line in (PROJECT / ".dockerignore").read_text().splitlines() if line[:1] not in ("", "#")]
    return {PROJECT / name for name in exclude_paths(str(PROJECT), patterns)}


def files_of(module: str) -> list[Path]:
    """The files of a module of the project and of the packages around it; none for any other module."""
    if module == "gunicorn.conf":
        return [PROJECT / "gunicorn.conf.py"]
    path = PROJECT.joinpath(*module.split("."))
    found = [path.with_suffix(".py"), *(folder / "__init__.py" for folder in [path, *path.parents])]
    return [file for file in [*found, path / "__main__.py"] if file.is_relative_to(PROJECT) and file.is_file()]


def mentioned(file: Path) -> set[str]:
    """The modules that a file imports, or starts by `-m`."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Import(names=aliases):
                names |= {alias.name for alias in aliases}
            case ast.ImportFrom(module=str(module), names=aliases):
                names |= {module, *(f"{module}.{alias.name}" for alias in aliases)}
            case ast.List(elts=words):
                texts = [word.value if isinstance(word, ast.Constant) else None for word in words]
                names |= {str(texts[n + 1]) for n, text in enumerate(texts[:-1]) if text == "-m"}
    return names


@functools.cache
def needed() -> set[Path]:
    """Every file of the project that the started modules reach."""
    files: set[Path] = set()
    modules, seen = set(STARTED), set()
    while modules:
        module = modules.pop()
        seen.add(module)
        for file in set(files_of(module)) - files:
            files.add(file)
            modules |= mentioned(file) - seen
    return files | set(DATA)


def test_the_walk_reaches_modules_that_are_started_by_name_and_imported_modules():
    names = {str(file.relative_to(PROJECT)) for file in needed()}

    assert names >= {
        "store/link/fake.py",
        "store/keys.py",
        "boot/keeper.py",
        "reference_agent/conversation.py",
        "core/wire.py",
    }
    assert names >= {"gunicorn.conf.py", "settings/specs.toml", "runtimes/launch.py", "store/scripts/append_events.lua"}
    assert not {name for name in names if name.startswith("tests/")}


def test_dockerignore_admits_every_file_that_the_server_needs():
    assert sorted(str(file.relative_to(PROJECT)) for file in needed() - admitted()) == []


def test_dockerignore_admits_no_tests_no_history_and_no_data():
    others = {"tests", "bench", "docs", "examples", "data", ".git", ".venv", ".ci", "README.md"}

    assert [file for file in admitted() if file.relative_to(PROJECT).parts[0] in others] == [OPENAPI]
    assert not [file for file in admitted() if "__pycache__" in file.parts]


def test_the_dockerfile_copies_the_admitted_files_and_names_no_other():
    copies = [line.split()[1:] for line in (PROJECT / "Dockerfile").read_text().splitlines() if line[:5] == "COPY "]

    requirements = [["requirements.txt", "/"], ["requirements", "/requirements"]]
    assert [words for words in copies if not words[0].startswith("--from=")] == [*requirements, [".", "."]]

"""Fetches the files of other projects from npm by name:  python -m docs.vendor  (or `make vendor`)

`console/vendor/README.md` lists their release, licence, and the SHA-256 of each file. A test compares it with the
files. `npm` is required; no server and no test fetches anything.
"""

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

PROJECT = Path(__file__).parent.parent
TABLE = PROJECT / "console/vendor/README.md"


_HEAD = """# Files of other projects

`/docs` and `/console/` load these files and `page/`; nothing is fetched from elsewhere. axe-core checks the
console in tests. `make vendor` fetches the releases that `docs/vendor.py` names from npm and writes this table.

| file | package | release | licence | SHA-256 |
|---|---|---|---|---|
"""


class Package(NamedTuple):
    """Files of a package's release, stored in a folder of this repository."""

    name: str
    release: str
    files: tuple[str, ...]
    folder: str
    #: the package's icons by their names in the console, written as one module
    icons: dict[str, str] | None = None

    @property
    def kept(self) -> list[Path]:
        names = [Path(file).name for file in self.files] + ["icons.js"] * bool(self.icons)
        return [PROJECT / self.folder / name for name in names]


#: Icons by their names in the console, with their names in Lucide.
ICONS = {
    "alert": "triangle-alert",
    "audit": "scroll-text",
    "branch": "git-branch",
    "check": "check",
    "chevron": "chevron-right",
    "clock": "clock",
    "conversations": "messages-square",
    "copy": "copy",
    "cross": "x",
    "download": "download",
    "edit": "pencil",
    "expand": "maximize-2",
    "file": "file",
    "folder": "folder",
    "globe": "globe",
    "inbox": "inbox",
    "keys": "key-round",
    "link": "link",
    "more": "ellipsis",
    "pause": "pause",
    "person": "user",
    "play": "play",
    "plus": "plus",
    "robot": "bot",
    "rules": "shield-check",
    "sandboxes": "box",
    "search": "search",
    "status": "activity",
    "terminal": "square-terminal",
}


#: The grammars of highlight.js that the console may load, one at a time.
LANGUAGES = (
    *("bash", "c", "cpp", "csharp", "css", "dockerfile", "go", "ini", "java", "javascript", "json", "kotlin", "lua"),
    *("makefile", "markdown", "php", "python", "ruby", "rust", "sql", "swift", "typescript", "xml", "yaml"),
)

PACKAGES = (
    Package("preact", "11.2.0", ("dist/preact.mjs", "hooks/dist/hooks.mjs", "LICENSE"), "console/vendor/preact"),
    Package("htm", "3.1.1", ("dist/htm.module.js", "LICENSE"), "console/vendor/htm"),
    Package("lucide-static", "1.62.0", ("LICENSE",), "console/vendor/lucide", ICONS),
    Package("uplot", "1.6.32", ("dist/uPlot.esm.js", "dist/uPlot.min.css", "LICENSE"), "console/vendor/uplot"),
    Package("ansi_up", "6.0.6", ("ansi_up.js", "LICENSE"), "console/vendor/ansi_up"),
    Package("diff", "9.0.0", ("libesm/diff/base.js", "libesm/diff/array.js", "LICENSE"), "console/vendor/diff"),
    Package(
        "@highlightjs/cdn-assets",
        "11.12.0",
        ("es/core.min.js", *(f"es/languages/{name}.min.js" for name in LANGUAGES), "LICENSE"),
        "console/vendor/highlight",
    ),
    Package("@xterm/xterm", "6.0.0", ("lib/xterm.mjs", "css/xterm.css", "LICENSE"), "console/vendor/xterm"),
    Package("@xterm/addon-fit", "0.11.0", ("lib/addon-fit.mjs", "LICENSE"), "console/vendor/xterm-fit"),
    Package(
        "markdown-it",
        "15.0.3",
        ("dist/browser/markdown-it.esm.min.mjs", "LICENSE"),
        "console/vendor/markdown-it",
    ),
    Package(
        "swagger-ui-dist",
        "5.35.0",
        ("swagger-ui-bundle.js", "swagger-ui.css", "LICENSE", "NOTICE"),
        "console/vendor/swagger-ui",
    ),
    Package("axe-core", "4.14.1", ("axe.min.js", "LICENSE", "LICENSE-3RD-PARTY.txt"), "tests/console/axe-core"),
)


def fetch(package: Package) -> str:
    """Fetch the files of a package, and return its licence from its package.json."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", f"{package.name}@{package.release}"], cwd=folder, check=True)
        [archive] = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        unpacked = Path(folder) / "package"
        for file, kept in zip(package.files, package.kept, strict=False):
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(unpacked / file, kept)
        if package.icons:
            package.kept[-1].write_text(_module(package, json.loads((unpacked / "icon-nodes.json").read_text())))
        licence: str = json.loads((unpacked / "package.json").read_text())["license"]
        return licence


def _module(package: Package, nodes: dict[str, Any]) -> str:
    """Return the module of a package's icons: by name, the elements as [name, attributes]."""
    shapes = {name: json.dumps(nodes[icon], separators=(",", ":")) for name, icon in (package.icons or {}).items()}
    lines = "".join(f"  {name}: {shape},\n" for name, shape in shapes.items())
    return f"// Icons of {package.name} {package.release}; see LICENSE.\nexport const ICONS = {{\n{lines}}};\n"


def rows(package: Package, licence: str) -> str:
    link = f"[{package.name}](https://www.npmjs.com/package/{package.name})"
    return "".join(
        f"| {path.relative_to(PROJECT)} | {link} | {package.release} | {licence} "
        f"| {hashlib.sha256(path.read_bytes()).hexdigest()} |\n"
        for path in package.kept
    )


if __name__ == "__main__":
    TABLE.write_text(_HEAD + "".join(rows(package, fetch(package)) for package in PACKAGES))

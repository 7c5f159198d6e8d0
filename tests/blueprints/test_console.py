"""`/console/`: the page and its files as they are served, what the first load weighs, and what the scripts may name."""

import gzip
import hashlib
import json
import posixpath
import re
import shutil
import subprocess
import unicodedata
from base64 import b64encode
from urllib.parse import urljoin

import pytest

from blueprints import console
from blueprints.console import ConsoleFiles
from core.visible import is_seen
from docs.make import OPENAPI
from docs.vendor import PACKAGES, TABLE
from tests.blueprints import FOREIGN, away
from tests.servers import PROJECT, program

KEY = "a-key-for-tests-only"
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Accept-Encoding": "gzip, deflate, br, zstd"}
VENDOR = PROJECT / "console" / "vendor"
SOURCES = [
    path
    for path in sorted((PROJECT / "console").rglob("*"))
    if path.is_file() and not path.is_relative_to(VENDOR) and path.suffix != ".png"
]
SCRIPTS = [path for path in SOURCES if path.suffix == ".js"]

#: an operation of the API, as the scripts name it
OPERATION = re.compile(r'"((?:GET|POST|PUT|PATCH|DELETE) /[^"]*)"')
#: what a script loads before it runs
IMPORT = re.compile(r"""^(?:import|export)\b(?:[^;'"(]*\bfrom)?\s*["']([^"']+)["']""", re.MULTILINE)

#: a file that the page names, below its own address
OF_PAGE = r'(?:src|href)="(\./[^"]+)"'

#: bytes that the page may load before the inbox shows, compressed
FIRST_LOAD = 90_000


def named(path) -> str:
    return str(path.relative_to(PROJECT))


@pytest.fixture(scope="module")
def client():
    """A client without a key, of a server that needs one; no store answers it."""
    return away(api_keys=(KEY,)).test_client()


@pytest.fixture(scope="module")
def page(client) -> str:
    return client.get("/console/").get_data(as_text=True)


@pytest.fixture(scope="module")
def root(page) -> str:
    """The path under which the files stand."""
    [found] = set(re.findall(r'"\./([0-9a-f]{16}/)main\.js"', page))
    return f"/console/{found}"


@pytest.mark.parametrize("keys", [(), (KEY,)], ids=["open", "keyed"])
def test_the_page_is_open_and_the_browser_asks_for_it_each_time(keys, page):
    response = away(api_keys=keys).test_client().get("/console/")

    assert response.get_data(as_text=True) == page
    assert (response.status_code, response.mimetype) == (200, "text/html")
    assert response.headers["Cache-Control"] == "no-cache"
    assert "{{" not in response.get_data(as_text=True)


def test_a_browser_is_led_to_the_page_and_a_program_is_not(client):
    led = client.get("/", headers=BROWSER)

    assert (led.status_code, led.headers["Location"], led.headers["Vary"]) == (302, "console/", "Accept")
    assert "Location" not in client.get("/").headers
    assert client.post("/", headers=BROWSER).status_code == 405


def test_everyone_is_led_from_the_path_without_a_slash_to_the_page_as_its_addresses_are_relative(client):
    for method in ("GET", "HEAD"):
        response = client.open("/console", method=method)
        assert (response.status_code, urljoin("/console", response.headers["Location"])) == (302, "/console/")


@pytest.mark.parametrize(
    "name", ["", "main.js", "styles/base.css", "vendor/preact/preact.mjs", "icon.svg", "vendor/uplot/uPlot.esm.js"]
)
def test_a_file_is_compressed_for_those_who_take_that_and_kept_by_its_etag(client, root, name):
    path = root + name if name else "/console/"
    plain, zipped = client.get(path), client.get(path, headers=BROWSER)

    assert (plain.status_code, zipped.status_code) == (200, 200)
    assert "Content-Encoding" not in plain.headers
    assert zipped.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(zipped.get_data()) == plain.get_data()
    assert zipped.headers["ETag"] != plain.headers["ETag"]
    assert client.get(path, headers={"Accept-Encoding": "gzip;q=0"}).get_data() == plain.get_data()
    for response in (plain, zipped):
        assert "Accept-Encoding" in response.headers["Vary"]
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Content-Length"] == str(len(response.get_data()))
        sent = {"If-None-Match": response.headers["ETag"]}
        known = client.get(path, headers={**sent, "Accept-Encoding": response.headers.get("Content-Encoding", "")})
        assert (known.status_code, known.get_data()) == (304, b"")
        assert known.headers["Cache-Control"] == response.headers["Cache-Control"]


def test_a_file_is_kept_for_a_year_as_its_address_has_the_hash_of_all_files(client, root):
    response = client.get(f"{root}main.js")

    assert response.mimetype == "text/javascript"
    assert response.headers["Cache-Control"] == "public, max-age=31536000, immutable"


def test_the_hash_is_that_of_the_content_of_all_files(root, monkeypatch):
    assert f"/console/{ConsoleFiles().release}/" == root
    monkeypatch.setitem(console._TYPES, ".md", "text/markdown")
    assert f"/console/{ConsoleFiles().release}/" != root


def test_head_has_the_headers_of_get_and_no_body(client, root):
    for path in ("/console/", f"{root}main.js"):
        got, head = client.get(path), client.head(path)
        assert (head.status_code, head.get_data()) == (200, b"")
        for name in ("Content-Type", "Content-Length", "ETag", "Cache-Control"):
            assert head.headers[name] == got.headers[name]


def test_a_file_of_an_earlier_release_is_gone_and_the_response_says_what_to_do(client):
    response = client.get("/console/0123456789abcdef/main.js")

    assert (response.status_code, response.get_json()) == (
        404,
        {"detail": "The console was updated: load the page again"},
    )
    assert response.headers["Cache-Control"] == "no-store"


NO_FILES = [
    "../app.py",
    "..%2fapp.py",
    "..%2f..%2fapp.py",
    "%2e%2e/%2e%2e/app.py",
    "..%5capp.py",
    "%2fetc%2fpasswd",
    "main.js%00",
    "%00",
    "main.js%00.css",
    "lib",
    "lib/",
    "index.html",
    "README.md",
    "vendor/preact/LICENSE",
    "%ff",
    "a" * 5000,
    "main.js;x",
    "MAIN.JS",
]


def test_a_path_that_is_no_file_of_the_console_is_404(client, root):
    for path in NO_FILES:
        response = client.get(root + path)
        if response.status_code == 307:
            response = client.get(response.headers["Location"])
        assert response.status_code == 404, path
        assert isinstance(response.get_json()["detail"], str), path


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_of_the_console_takes_a_change(client, root, method):
    for path in ("/console/", f"{root}main.js"):
        response = client.open(path, method=method)
        assert response.status_code == 405
        assert set(response.headers["Allow"].split(", ")) == {"GET", "HEAD", "OPTIONS"}


def test_the_page_runs_its_own_scripts_alone_and_makes_no_html_of_texts(client, page):
    policy = client.get("/console/").headers["Content-Security-Policy"]
    [imports] = re.findall(r'<script type="importmap">(.*?)</script>', page)
    digest = b64encode(hashlib.sha256(imports.encode()).digest()).decode()

    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    assert rules == {
        "default-src": "'self'",
        "script-src": f"'self' 'sha256-{digest}'",
        "img-src": "'self' data:",
        "connect-src": "'self'",
        "object-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "agent-server-worker",
    }


def test_the_page_has_no_script_and_no_style_of_its_own_but_the_import_map(page):
    assert re.findall(r"<script([^>]*)>[^<]", page) == [' type="importmap"']
    assert not re.search(r"<style|style=| on\w+=|javascript:", page)


def test_every_file_that_the_page_names_is_served(client, page):
    [imports] = re.findall(r'<script type="importmap">(.*?)</script>', page)
    named_files = {*re.findall(OF_PAGE, page), *json.loads(imports)["imports"].values()}

    assert len(named_files) > 10
    for path in (urljoin("/console/", name) for name in named_files):
        assert client.get(path).status_code == 200, path


def test_hosts_and_origins_elsewhere_are_refused_as_everywhere():
    client = away(allowed_hosts=("agents.example",)).test_client()
    root = f"/console/{ConsoleFiles().release}/"

    for path in ("/", "/console/", f"{root}main.js"):
        assert client.get(path, headers={**BROWSER, "Host": "evil.example"}).status_code == 421
        assert client.get(path, headers={**BROWSER, "Host": "agents.example"}).status_code in (200, 302)
        foreign = client.get(path, headers={**BROWSER, "Origin": FOREIGN})
        assert not [name for name, _ in foreign.headers if name.startswith("Access-Control")]
        assert foreign.headers["Cross-Origin-Resource-Policy"] == "same-origin"


def first_files(client, page, root) -> set[str]:
    """The paths of all that the page loads before the inbox shows."""
    [imports] = re.findall(r'<script type="importmap">(.*?)</script>', page)
    names = {name: urljoin("/console/", path) for name, path in json.loads(imports)["imports"].items()}
    page = re.sub(r"<link [^>]* disabled>", "", page)  # the style sheets of other views
    found = {"/console/", f"{root}views/inbox.js", *(urljoin("/console/", name) for name in re.findall(OF_PAGE, page))}
    waiting = [path for path in found if path.endswith(("js", "mjs"))]
    while waiting:
        path = waiting.pop()
        for imported in IMPORT.findall(client.get(path).get_data(as_text=True)):
            target = names.get(imported) or posixpath.normpath(posixpath.join(posixpath.dirname(path), imported))
            if target not in found:
                found.add(target)
                waiting.append(target)
    return found


def test_the_first_load_until_the_inbox_shows_is_at_most_90_kb(client, page, root, capsys):
    sizes = {
        path: len(client.get(path, headers=BROWSER).get_data()) for path in sorted(first_files(client, page, root))
    }

    with capsys.disabled():
        print(f"\nfirst load: {sum(sizes.values())} bytes in {len(sizes)} files, compressed")
    assert sum(sizes.values()) <= FIRST_LOAD, sizes


def test_scripts_are_sent_without_comments_and_each_line_keeps_its_number(client, root):
    for path in SCRIPTS:
        source = path.read_text().splitlines()
        place = "/console/" if path.name == "worker.js" else root
        sent = client.get(f"{place}{path.relative_to(PROJECT / 'console')}").get_data(as_text=True).splitlines()
        assert len(sent) == len(source), named(path)
        assert all(line in ("", of) for line, of in zip(sent, source, strict=True)), named(path)
        assert [line for line in sent if line.lstrip().startswith(("//", "* "))] == [], named(path)


def test_all_scripts_of_the_first_load_are_announced_by_the_page(client, page, root):
    named_first = re.findall(r'<link rel="modulepreload" href="([^"]+)">', page)
    announced = {urljoin("/console/", name) for name in named_first}

    by_the_page_itself = {f"{root}load.js"}  # before all others
    modules = {path for path in first_files(client, page, root) if path.endswith(("js", "mjs"))}
    assert modules - by_the_page_itself == announced


def code_of(path) -> str:
    """A script without the lines of its comments."""
    lines = path.read_text().splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith(("//", "/*", "* ", "*/")))


#: scripts that open a socket, which the OpenAPI document does not have; docs/wire.md has it
SOCKETS = {"console/conversation/terminal.js": ("sockets/terminals", "new WebSocket")}


def test_scripts_name_operations_of_the_public_api_alone():
    document = json.loads(OPENAPI.read_text())["paths"]
    faults = []
    for path in SCRIPTS:
        code = code_of(path)
        for operation in OPERATION.findall(code):
            method, _, address = operation.partition(" ")
            if method.lower() not in document.get(address, {}):
                faults.append(f"{named(path)}: {operation} is not an operation of docs/openapi.json")
        others = re.findall(r"/api/|sockets/\w+|/server_info|new WebSocket|XMLHttpRequest", OPERATION.sub("", code))
        allowed = SOCKETS.get(named(path), ())
        faults += [f"{named(path)}: {other}" for other in others if other not in allowed]
    assert faults == []


def test_no_page_and_no_script_loads_from_an_address_that_begins_at_the_root_of_the_host():
    pages = [*SOURCES, *sorted((VENDOR / "page").iterdir())]
    absolute = re.compile(r"""(?:src|href|action|url)\s*[=:(]\s*["'`]?/(?!/)[^\s"'`)]*|\bfrom\s+["']/[^"']*""")

    assert len(pages) > len(SOURCES)
    assert [(named(path), found) for path in pages for found in absolute.findall(path.read_text())] == []


#: prints where the console finds an operation, and what it calls a thing that the browser keeps
PLACES = """
const kept = { getItem: () => null, setItem() {}, removeItem() {} };
Object.assign(globalThis, { location: { hash: "" }, sessionStorage: kept, localStorage: kept, addEventListener() {} });
const { address } = await import("./api.js"), { ROOT, ours } = await import("./root.js");
const place = address("GET /api/v1/sandboxes/{sandbox_id}/logs", { path: { sandbox_id: "a/b" }, query: { lines: 1 } });
process.stdout.write(JSON.stringify([ROOT, place, ours("key")]));
"""


@pytest.mark.process("starts a program")
def test_scripts_find_the_server_below_the_path_where_they_were_loaded_from(tmp_path):
    place = tmp_path / "agents" / "console" / "0123456789abcdef"
    shutil.copytree(PROJECT / "console" / "lib", place / "lib")
    (place / "package.json").write_text('{"type": "module"}')
    (place / "lib" / "store.js").write_text('export class Store { get() { return ""; } }')
    (place / "lib" / "print.js").write_text(PLACES)
    ran = subprocess.run([program("node"), place / "lib" / "print.js"], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stderr) == (0, "")

    root = f"{tmp_path}/agents/"
    assert json.loads(ran.stdout) == [root, f"{root}api/v1/sandboxes/a%2Fb/logs?lines=1", f"key {root}"]


def test_requests_and_streams_are_made_in_two_modules_and_in_the_worker():
    asking = {named(path) for path in SCRIPTS if re.search(r"\bfetch\(|new EventSource", code_of(path))}

    assert asking == {"console/lib/api.js", "console/lib/live.js", "console/worker.js"}


def test_the_worker_stands_beside_the_page_and_loads_nothing(client, root):
    response = client.get("/console/worker.js")

    assert (response.status_code, response.mimetype) == (200, "text/javascript")
    assert response.headers["Cache-Control"] == "no-cache"  # a browser looks for another one again and again
    assert response.headers["Content-Security-Policy"] == "default-src 'none'; connect-src 'self'"
    assert client.get(f"{root}worker.js").status_code == 404
    assert not re.search(r"^import|importScripts|Storage|indexedDB|caches", response.text, re.MULTILINE)


def test_the_manifest_names_icons_of_its_sizes_below_its_own_path(client, root):
    response = client.get("/console/manifest.webmanifest")
    manifest = response.json

    assert (response.mimetype, response.headers["Cache-Control"]) == ("application/manifest+json", "no-cache")
    assert (manifest["start_url"], manifest["scope"], manifest["display"]) == ("./", "./", "standalone")
    pictures = [icon for icon in manifest["icons"] if icon["type"] == "image/png"]
    assert [(icon["sizes"], icon.get("purpose")) for icon in pictures] == [
        ("192x192", None),
        ("512x512", None),
        ("512x512", "maskable"),
    ]
    for icon in pictures:
        shown = client.get(urljoin("/console/", icon["src"]))
        assert shown.content_type == "image/png"
        width, height = (int.from_bytes(shown.data[at : at + 4]) for at in (16, 20))  # of its header
        assert icon["sizes"] == f"{width}x{height}"


def test_files_of_the_console_make_no_html_of_texts_and_name_no_other_host():
    makes_html = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc"
    refused = re.compile(rf"{makes_html}|\beval\(|new Function|console\.log|(?:https?|wss?)://[^\s\"'`)]+")
    faults = [(named(path), found) for path in SOURCES for found in refused.findall(path.read_text())]

    assert [fault for fault in faults if fault[1] != "http://www.w3.org/2000/svg"] == []


def test_scripts_are_short_and_say_what_they_are():
    texts = {named(path): path.read_text().splitlines() for path in SCRIPTS}

    assert [path for path, lines in texts.items() if not lines[0].startswith("// ")] == []
    assert [path for path, lines in texts.items() if len(lines) > 350] == []


def test_the_table_of_other_projects_files_is_true():
    rows = re.findall(
        r"^\| (\S+) \| \[(\S+)\]\(https://www\.npmjs\.com/package/\2\) \| (\S+) \| (\S+) \| ([0-9a-f]{64}) \|$",
        TABLE.read_text(),
        re.MULTILINE,
    )
    expected = [(named(path), package.name, package.release) for package in PACKAGES for path in package.kept]

    assert [row[:3] for row in rows] == expected
    for name, package, _, licence, digest in rows:
        assert hashlib.sha256((PROJECT / name).read_bytes()).hexdigest() == digest, f"{name} is not that of {package}"
        assert licence in ("MIT", "Apache-2.0", "MPL-2.0", "BSD-3-Clause", "ISC")


def test_every_file_of_another_project_stands_in_the_table():
    listed = {path for package in PACKAGES for path in package.kept}
    found = {path for folder in ("console/vendor", "tests/console/axe-core") for path in (PROJECT / folder).rglob("*")}

    ours = {path for path in found if path == TABLE or path.parent.name == "page" or path.match("*.d.*ts")}
    assert {path for path in found if path.is_file()} - ours == listed
    for package in PACKAGES:
        assert [path for path in package.kept if path.name.startswith("LICENSE")], f"{package.name} has no licence"


#: prints what the console says of times, in seconds from now, and of numbers, as JSON
WORDS = """
globalThis.document = { hidden: true };
globalThis.addEventListener = () => {};
const { ago, counted } = await import("./words.js");
const [times, numbers] = JSON.parse(process.argv[2]), at = Date.UTC(2026, 10, 20);
const words = times.map((seconds) => ago(new Date(at + seconds * 1000).toISOString(), at));
process.stdout.write(JSON.stringify([...words, ...numbers.map((one) => counted(...one))]));
process.exit(0);
"""


@pytest.mark.process("starts a program")
def test_the_words_of_times_and_of_numbers_say_neither_more_nor_less_than_there_is(tmp_path):
    minute, hour, day = 60, 3600, 86_400
    times = [-90 * minute, -36 * hour, 0, 52, 70, 90, hour, hour - 1, 90 * minute, 36 * hour]
    times += [2 * day - 1, 30 * hour, 90 * day - 1]
    numbers = [[1, "message", False], [0, "message", False], [2, "event", False], [1200, "conversation", False]]
    numbers += [[50, "conversation", True], [1, "message", True], [2, "sandbox", False]]
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "store.js").write_text("export class Store { set() {} }")
    (tmp_path / "words.js").write_bytes((PROJECT / "console/lib/words.js").read_bytes())
    (tmp_path / "print.js").write_text(WORDS)
    ran = subprocess.run(
        [program("node"), tmp_path / "print.js", json.dumps([times, numbers])],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.returncode, ran.stderr) == (0, "")

    assert json.loads(ran.stdout) == [
        *("1 hr. ago", "1 day ago", "now", "in 52 sec.", "in 1 min.", "in 90 sec.", "in 1 hr.", "in 1 hr."),
        *("in 90 min.", "in 36 hr.", "in 2 days", "in 30 hr.", "in 90 days"),
        *("1 message", "0 messages", "2 events", "1,200 conversations", "50 or more conversations"),
        *("1 or more messages", "2 sandboxes"),
    ]


@pytest.mark.process("starts a program")
@pytest.mark.parametrize(
    "points", [0x10000, pytest.param(0x110000, marks=pytest.mark.process("compares all characters"))]
)
def test_the_console_escapes_what_the_servers_pages_escape(points):
    script = PROJECT / "tests/blueprints/visible_page.cjs"
    ran = subprocess.run(
        [program("node"), script, PROJECT / "console/lib/visible.js", str(points)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.returncode, ran.stderr) == (0, "")

    differing = [
        hex(point)
        for point, mark in enumerate(ran.stdout)
        # What only one of the two versions of Unicode knows is not compared.
        if mark != "?" and unicodedata.category(chr(point)) != "Cn" and (mark == "0") is not is_seen(chr(point))
    ]
    assert (len(ran.stdout), differing) == (points, [])

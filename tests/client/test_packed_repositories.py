"""A repository goes into a sandbox with its files and history, in every shape of a checkout, and without secrets."""

import io
import os
import subprocess
import tarfile

import pytest
from agent_server_client.archives import pack

pytestmark = pytest.mark.process("starts Git")

SECRET = "token-5f0c"
NAMED = {"GIT_AUTHOR_NAME": "n", "GIT_AUTHOR_EMAIL": "e", "GIT_COMMITTER_NAME": "n", "GIT_COMMITTER_EMAIL": "e"}


def git(folder, *words) -> str:
    words = ("git", "-c", "protocol.file.allow=always", *words)
    done = subprocess.run(words, cwd=folder, env=os.environ | NAMED, check=True, capture_output=True, text=True)
    return done.stdout


def made(folder, **files):
    """A repository with a commit and with secrets in each place that Git has for them."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    for name, text in ({"a.py": "1", ".gitignore": ".env\n"} | files).items():
        (folder / name).write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    (folder / ".env").write_text(SECRET)
    plant(folder / ".git")
    return folder


def plant(directory):
    """Write secrets into a folder of Git's."""
    git(directory, "config", "--file", str(directory / "config"), "remote.origin.url", f"https://u:{SECRET}@h/x")
    for name in ("config.worktree", "hooks/post-checkout", "git-crypt/keys/default", "logs/HEAD", "remotes/origin"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(f"# {SECRET}\n")


@pytest.fixture
def arrived(tmp_path):
    """Packs a folder, and unpacks it as a sandbox does. No secret comes along."""

    def run(folder):
        file = io.BytesIO()
        pack(folder, file)
        file.seek(0)
        with tarfile.open(fileobj=file) as tar:
            tar.extractall(tmp_path / "there", filter="tar")
        texts = [path.read_bytes() for path in (tmp_path / "there").rglob("*") if path.is_file()]
        assert not [text for text in texts if SECRET.encode() in text]
        assert not [path for path in (tmp_path / "there").rglob("*") if path.name in ("hooks", "config.worktree")]
        return tmp_path / "there"

    return run


@pytest.fixture
def with_submodules(tmp_path):
    """A repository with a submodule that has one itself, checked out, with secrets at each depth."""
    made(tmp_path / "inner")
    made(tmp_path / "outer")
    git(tmp_path / "outer", "submodule", "add", "-q", str(tmp_path / "inner"), "deep/inner")
    git(tmp_path / "outer", "commit", "-qm", "submodule")
    whole = made(tmp_path / "whole")
    git(whole, "submodule", "add", "-q", str(tmp_path / "outer"), "lib/outer")
    git(whole, "commit", "-qm", "submodule")
    git(whole, "submodule", "update", "-q", "--init", "--recursive")
    for path in list((whole / ".git/modules").rglob("HEAD")):
        if (path.parent / "objects").is_dir():
            plant(path.parent)
    return whole


def test_submodules_are_packed_at_every_depth_with_their_history(with_submodules, arrived):
    (with_submodules / "lib/outer/new.py").write_text("new")

    there = arrived(with_submodules)

    assert (there / "lib/outer/deep/inner/a.py").read_text() == "1"
    assert git(there, "status", "--short", "--ignore-submodules=untracked") == ""
    assert git(there / "lib/outer", "status", "--short") == "?? new.py\n"
    assert "first" in git(there / "lib/outer/deep/inner", "log", "--oneline")


def test_a_submodule_without_files_is_reported(with_submodules, tmp_path, arrived, caplog):
    git(tmp_path, "clone", "-q", str(with_submodules), "clone")

    there = arrived(tmp_path / "clone")

    assert "lib/outer" in caplog.text
    assert "git submodule update" in caplog.text
    assert git(there, "status", "--short") == ""


def test_a_linked_worktree_comes_without_its_history_and_that_is_reported(with_submodules, tmp_path, arrived, caplog):
    git(with_submodules, "worktree", "add", "-q", str(tmp_path / "linked"))

    there = arrived(tmp_path / "linked")

    assert (there / "a.py").read_text() == "1"
    assert not (there / ".git").exists()
    assert "history" in caplog.text


def test_a_checkout_with_linked_worktrees_comes_without_their_records(with_submodules, tmp_path, arrived):
    git(with_submodules, "worktree", "add", "-q", str(tmp_path / "linked"))
    plant(with_submodules / ".git/worktrees/linked")

    there = arrived(with_submodules)

    assert not (there / ".git/worktrees").exists()
    assert git(there, "status", "--short") == ""


def test_a_history_with_borrowed_objects_is_left_out_and_that_is_reported(tmp_path, arrived, caplog):
    made(tmp_path / "lender")
    git(tmp_path, "clone", "-q", "--shared", "lender", "borrower")

    there = arrived(tmp_path / "borrower")

    assert (there / "a.py").exists()
    assert not (there / ".git").exists()
    assert "alternates" in caplog.text


def test_an_untracked_nested_repository_is_packed(tmp_path, arrived):
    whole = made(tmp_path / "whole")
    made(whole / "tools/nested")

    there = arrived(whole)

    assert (there / "tools/nested/a.py").exists()
    assert not (there / "tools/nested/.env").exists()
    assert "first" in git(there / "tools/nested", "log", "--oneline")


def test_repositories_below_a_plain_folder_come_without_secrets(tmp_path, arrived):
    made(tmp_path / "folder/a/repository")
    git(tmp_path / "folder", "clone", "-q", "--bare", "a/repository", "mirror.git")
    plant(tmp_path / "folder/mirror.git")
    (tmp_path / "folder/plain.txt").write_text("x")

    there = arrived(tmp_path / "folder")

    assert (there / "plain.txt").exists()
    assert git(there / "a/repository", "status", "--short") == ""
    assert "first" in git(there / "mirror.git", "log", "--oneline", "main")


def test_a_bare_repository_comes_without_secrets(tmp_path, arrived):
    made(tmp_path / "source")
    git(tmp_path, "clone", "-q", "--bare", "source", "bare.git")
    plant(tmp_path / "bare.git")

    assert "first" in git(arrived(tmp_path / "bare.git"), "log", "--oneline", "main")


def test_a_folder_of_git_with_the_least_files_is_packed(tmp_path, arrived):
    for name in ("objects", "refs"):
        (tmp_path / "folder/x" / name).mkdir(parents=True)
    (tmp_path / "folder/x/HEAD").write_text("ref: refs/heads/main\n")

    assert (arrived(tmp_path / "folder") / "x/HEAD").exists()


def test_a_bare_repository_in_a_checkout_comes_without_secrets(tmp_path, arrived):
    whole = made(tmp_path / "whole")
    git(whole, "clone", "-q", "--bare", ".", "mirror.git")
    plant(whole / "mirror.git")

    assert "first" in git(arrived(whole) / "mirror.git", "log", "--oneline", "main")


def test_branches_named_as_folders_of_git_keep_their_history(tmp_path, arrived):
    whole = made(tmp_path / "whole")
    for name in ("config", "info/x", "modules/x", "worktrees"):
        git(whole, "branch", name)

    assert "worktrees" in git(arrived(whole), "branch", "--list", "worktrees")


def test_packing_starts_no_program_that_a_nested_repository_names(tmp_path, arrived):
    whole = made(tmp_path / "whole")
    nested = made(whole / "nested")
    git(nested, "config", "core.fsmonitor", f"touch {tmp_path}/CANARY; false")

    arrived(whole)

    assert not (tmp_path / "CANARY").exists()


def test_a_name_that_another_system_reads_as_git_stays_and_is_reported(tmp_path, arrived, caplog):
    (tmp_path / "folder/GIT~1").mkdir(parents=True)
    (tmp_path / "folder/GIT~1/config").write_text(SECRET)
    (tmp_path / "folder/a").write_text("a")

    assert [path.name for path in arrived(tmp_path / "folder").iterdir()] == ["a"]
    assert "GIT~1" in caplog.text


def test_a_file_with_a_name_outside_of_utf_8_is_packed(tmp_path, arrived):
    whole = made(tmp_path / "whole")
    (whole / os.fsdecode(b"caf\xe9")).write_text("x")

    assert (arrived(whole) / os.fsdecode(b"caf\xe9")).exists()


@pytest.mark.parametrize("name", ["GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"])
def test_the_environment_of_a_git_hook_does_not_mislead(tmp_path, arrived, monkeypatch, name):
    whole, other = made(tmp_path / "whole"), made(tmp_path / "other", **{"other.py": "x"})
    (whole / "kept.log").write_text("tracked, and named by .gitignore")
    git(whole, "add", "kept.log")
    (whole / ".gitignore").write_text(".env\n*.log\n")
    places = {"GIT_INDEX_FILE": other / ".git/index", "GIT_WORK_TREE": other}

    with monkeypatch.context() as patched:
        patched.setenv(name, str(places.get(name, other / ".git")))
        there = arrived(whole)

    assert {path.name for path in there.iterdir()} == {"a.py", "kept.log", ".gitignore", ".git"}


@pytest.mark.parametrize("pattern", [".env", ".env\npackages/"])
def test_a_part_of_a_checkout_comes_without_what_is_ignored(tmp_path, arrived, pattern):
    whole = made(tmp_path / "whole")
    (whole / "packages/api/build").mkdir(parents=True)
    (whole / "packages/api/new.py").write_text("x")
    git(whole, "add", "packages")
    (whole / ".gitignore").write_text(f"{pattern}\n")
    (whole / "packages/api/.git").mkdir()  # Git looks further up
    for name in (".env", "new.py", "build/out"):
        (whole / "packages/api" / name).write_text(SECRET if name == ".env" else "x")

    there = arrived(whole / "packages/api")

    found = {path.name for path in there.rglob("*")}
    assert found == ({"new.py"} if "packages" in pattern else {"new.py", "build", "out"})


@pytest.mark.parametrize("pattern", ["build/", "/build", "packages", "*"])
def test_a_folder_that_is_ignored_as_a_whole_goes_whole_where_it_is_named(tmp_path, arrived, pattern):
    whole = made(tmp_path / "whole")
    (whole / ".gitignore").write_text(f"{pattern}\n")
    folder = whole / ("packages/build" if pattern != "/build" else "build")
    folder.mkdir(parents=True)
    (folder / "out").write_text("x")

    assert (arrived(folder) / "out").exists()


def test_a_plain_folder_needs_no_git(tmp_path, arrived, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/a").write_text("a")
    monkeypatch.setenv("PATH", "")

    assert (arrived(tmp_path / "folder") / "a").exists()


def test_objects_that_a_partial_clone_has_not_fetched_are_reported(tmp_path, arrived, caplog):
    source = made(tmp_path / "source")
    git(source, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", source.as_uri(), "partial")
    git(tmp_path / "partial", "config", "extensions.partialClone", f"https://u:{SECRET}@h/x")

    there = arrived(tmp_path / "partial")

    assert (there / "a.py").read_text() == "1"
    assert "partial clone" in caplog.text


def test_a_checkout_whose_repository_is_beside_its_worktrees_comes_along(tmp_path, arrived, caplog):
    made(tmp_path / "source")
    git(tmp_path, "clone", "-q", "--bare", "source", "project/.bare")
    (tmp_path / "project/.git").write_text("gitdir: ./.bare\n")
    git(tmp_path / "project", "worktree", "add", "-q", "main")
    plant(tmp_path / "project/.bare")
    (tmp_path / "project/main/.env").write_text(SECRET)

    there = arrived(tmp_path / "project")

    assert (there / "main/a.py").read_text() == "1"
    assert "first" in git(there / ".bare", "log", "--oneline", "main")
    assert "main/.git" in caplog.text


def test_a_git_folder_that_is_a_symlink_stays_and_is_reported(tmp_path, arrived, caplog):
    whole = made(tmp_path / "whole")
    (whole / ".git").rename(tmp_path / "elsewhere")
    (whole / ".git").symlink_to(tmp_path / "elsewhere")

    there = arrived(whole)

    assert {path.name for path in there.iterdir()} == {"a.py", ".gitignore"}
    assert "history" in caplog.text


def test_a_history_with_a_symlinked_pack_is_not_packed(tmp_path, arrived, caplog):
    whole = made(tmp_path / "whole")
    git(whole, "gc", "-q")
    (whole / ".git/objects/pack").rename(tmp_path / "pack")
    (whole / ".git/objects/pack").symlink_to(tmp_path / "pack")

    assert not (arrived(whole) / ".git").exists()
    assert "objects/pack" in caplog.text


def test_no_file_comes_from_behind_a_symlink_in_the_place_of_a_tracked_folder(tmp_path, arrived):
    whole = made(tmp_path / "whole")
    (whole / "deep/d").mkdir(parents=True)
    (whole / "deep/d/x").write_text("x")
    git(whole, "add", "deep")
    (whole / "deep").rename(tmp_path / "old")
    (tmp_path / "private/d").mkdir(parents=True)
    (tmp_path / "private/d/x").write_text(SECRET)
    (whole / "deep").symlink_to(tmp_path / "private")

    file = io.BytesIO()
    pack(whole, file)

    assert SECRET.encode() not in file.getvalue()
    with tarfile.open(fileobj=io.BytesIO(file.getvalue())) as tar:
        assert [name for name in tar.getnames() if "deep" in name] == ["./deep"]


@pytest.mark.parametrize("text", ["", "gitdir: ../nowhere\n", "junk"])
def test_a_nested_git_file_without_a_target_is_not_packed_and_is_reported(tmp_path, arrived, caplog, text):
    (tmp_path / "folder/nested").mkdir(parents=True)
    (tmp_path / "folder/nested/a").write_text("a")
    if text:
        (tmp_path / "folder/nested/.git").write_text(text)
    else:
        (tmp_path / "folder/nested/.git").mkdir()

    there = arrived(tmp_path / "folder")

    assert [path.name for path in (there / "nested").iterdir()] == ["a"]
    assert "nested/.git" in caplog.text


@pytest.mark.parametrize(
    "words",
    [
        ["sparse-checkout set b", "sparse-checkout reapply"],
        ["sparse-checkout set --sparse-index b"],
        ["update-index --split-index"],
        ["checkout -q --detach"],
        ["stash push -q b/new"],
        ["pack-refs --all", "gc -q"],
        ["config extensions.worktreeConfig true"],
    ],
)
def test_a_checkout_of_any_kind_is_the_same_there(tmp_path, arrived, words):
    whole = made(tmp_path / "whole")
    for name in ("b/new", "c/d"):
        (whole / name).parent.mkdir()
        (whole / name).write_text("x")
    git(whole, "add", ".")
    git(whole, "commit", "-qm", "second")
    (whole / "b/new").write_text("changed")
    for line in words:
        git(whole, *line.split())

    there = arrived(whole)

    assert git(there, "status", "--short") == git(whole, "status", "--short")
    assert git(there, "log", "--format=%H") == git(whole, "log", "--format=%H")


@pytest.mark.parametrize("options", [["--depth=1"], ["--no-checkout"]])
def test_a_clone_of_any_kind_is_the_same_there(tmp_path, arrived, options):
    source = made(tmp_path / "source")
    git(source, "commit", "-q", "--allow-empty", "-m", "second")
    git(tmp_path, "clone", "-q", *options, source.as_uri(), "clone")

    there = arrived(tmp_path / "clone")

    assert git(there, "status", "--short") == git(tmp_path / "clone", "status", "--short")
    assert git(there, "log", "--format=%H") == git(tmp_path / "clone", "log", "--format=%H")


@pytest.mark.parametrize("options", [[], ["--object-format=sha256"]])
def test_a_repository_without_a_commit_is_packed_even_if_nested(tmp_path, arrived, options):
    for folder in ("whole", "whole/nested"):
        (tmp_path / folder).mkdir()
        git(tmp_path / folder, "init", "-q", *options)
        (tmp_path / folder / "a").write_text("a")

    there = arrived(tmp_path / "whole")

    assert git(there / "nested", "status", "--short") == "?? a\n"
    assert git(there, "status", "--short") == "?? a\n?? nested/\n"


def test_files_of_git_annex_are_reported(tmp_path, arrived, caplog):
    whole = made(tmp_path / "whole")
    (whole / ".git/annex/objects").mkdir(parents=True)

    arrived(whole)

    assert "git-annex" in caplog.text


#: settings and hooks of systems other than Git, which may hold a password, and a file of each history that goes
OTHERS = [
    (".hg/hgrc", ".hg/store/00changelog.i"),
    (".hg/hgrc-not-shared", ".hg/requires"),
    (".sl/config", ".sl/store/00changelog.i"),
    (".jj/repo/config.toml", ".jj/repo/store/type"),
    (".bzr/branch/branch.conf", ".bzr/repository/format"),
    ("_darcs/prefs/defaults", "_darcs/hashed_inventory"),
    (".pijul/config", ".pijul/pristine/db"),
    ("_MTN/monotonerc", "_MTN/revision"),
]


@pytest.mark.parametrize(("setting", "history"), OTHERS)
@pytest.mark.parametrize("shape", ["folder", "untracked", "tracked"])
def test_settings_of_another_system_stay_here_and_are_reported(tmp_path, arrived, caplog, setting, history, shape):
    whole = tmp_path / "whole"
    (whole / "lib").mkdir(parents=True)
    for name, text in ((setting, f"password = {SECRET}"), (history, "x")):
        (whole / "lib" / name).parent.mkdir(parents=True, exist_ok=True)
        (whole / "lib" / name).write_text(text)
    if shape != "folder":
        git(whole, "init", "-q")
    if shape == "tracked":
        git(whole, "add", "lib")

    there = arrived(whole)

    assert not (there / "lib" / setting).exists()
    assert (there / "lib" / history).read_text() == "x"
    assert f"lib/{setting}" in caplog.text

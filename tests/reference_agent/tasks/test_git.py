"""Tasks in the history of a repository: a rebase with a conflict, a search for the commit of a fault, a commit."""

import pytest

from tests.reference_agent.tasks.vocabulary import edit, run

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.process("starts an agent")]


@pytest.fixture
def repository(folder, git):
    """A repository with the name of a person in its settings."""
    git("init", "-q", "-b", "main")
    git("config", "user.name", "Pat")
    git("config", "user.email", "pat@example.org")

    def commit(message, **files):
        for name, content in files.items():
            (folder / name).write_text(content)
        git("add", "-A")
        git("commit", "-q", "-m", message)

    return commit


def test_a_rebase_with_a_conflict_is_carried_through(play, folder, git, repository):
    repository("Begin", greeting="hello\n", end="bye\n")
    git("checkout", "-q", "-b", "loud")
    repository("Say it loud", greeting="HELLO\n")
    repository("End it loud", end="BYE\n")
    git("checkout", "-q", "main")
    repository("Greet the world", greeting="hello world\n")
    git("checkout", "-q", "loud")

    def model(told):
        told = yield run("git rebase main")
        file = told.ended(1).find(r"CONFLICT \(content\): Merge conflict in (\w+)")[1]
        told = yield edit("view", file)
        told.find_all(r"<<<<<<< |=======|>>>>>>> ")
        shown = "\n".join(told.find_all(r"^ *\d+\t(.*)$"))
        ours = told.find(r"\t<<<<<<< [^\n]*\n *\d+\t(.+)\n *\d+\t=======")[1]
        told = yield edit("str_replace", file, old_str=shown, new_str=ours.upper())
        told.find("now reads")
        told = yield run(f"git add {file} && git rebase --continue", timeout=20)
        told.ended(0)
        told = yield run("git status && git log --oneline main..")
        told.find("nothing to commit, working tree clean")
        told.find(r"End it loud\n.*Say it loud")
        return "The branch is on main, with the greeting in capitals."

    end = play("Rebase this branch on main. Keep both changes of the greeting.", model)

    assert end.status == "finished"
    assert git("log", "--format=%s", "--reverse").splitlines() == [
        "Begin",
        "Greet the world",
        "Say it loud",
        "End it loud",
    ]
    assert [(folder / name).read_text() for name in ("greeting", "end")] == ["HELLO WORLD\n", "BYE\n"]
    assert git("status", "--porcelain") == ""


def test_the_commit_of_a_fault_is_found_by_bisection(play, git, repository):
    for number in range(1, 41):
        repository(f"Change {number}", price=f"{2 if number < 27 else 3}\n", number=f"{number}\n")
    first = git("rev-list", "--max-parents=0", "HEAD")
    guilty = git("log", "--format=%H", "--grep=^Change 27$")
    steps = []

    def model(told):
        told = yield run(f"git bisect start HEAD {first}")
        while not (told.code == 0 and "is the first bad commit" in told.text):
            told.find(r"Bisecting: \d+ revisions? left to test")
            told = yield run("cat price")
            word = {"2": "good", "3": "bad"}[told.ended(0).find(r"^\d$")[0]]
            steps.append(word)
            told = yield run(f"git bisect {word}")
        found = told.find(r"^(\w{40}) is the first bad commit")[1]
        told = yield run("git bisect reset && git status --branch --short")
        told.ended(0).find(r"## main")
        return f"The fault came with {found}."

    end = play("The price was 2 and is 3 now. Which commit changed it? Find it by bisection.", model)

    assert (end.status, end.words) == ("finished", f"The fault came with {guilty}.")
    assert 4 <= len(steps) <= 6
    assert git("rev-parse", "--abbrev-ref", "HEAD") == "main"


def test_a_commit_has_the_name_of_the_repository_or_else_a_neutral_one(play, folder, git):
    (folder / "plan.txt").write_text("one\n")

    def model(told):
        told = yield run("git init -q && git add plan.txt && git commit -q -m 'Plan one'")
        told.ended(0)
        told = yield run("git config user.name Pat && git config user.email pat@example.org")
        told = yield run("echo two >>plan.txt && git commit -q -a -m 'Plan two'")
        told.ended(0)
        told = yield run("git log --format='%s by %an <%ae>'")
        author = told.find(r"Plan one by (.*)$")[1]
        told.find("Plan two by Pat <pat@example.org>")
        return f"Committed as {author}, and then as Pat."

    end = play("Put plan.txt into a repository. Then commit a second line of it as Pat, pat@example.org.", model)

    assert end.status == "finished"
    assert git("log", "--format=%an <%ae>", "--reverse").splitlines() == [
        "Agent <agent@localhost>",
        "Pat <pat@example.org>",
    ]

"""Tasks in the files of a project: a test mended, a name changed, an edit repaired, instructions followed."""

import pytest

from tests.reference_agent.tasks.vocabulary import edit, run

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.process("starts an agent")]

TEST = "python -m unittest -q"


def test_a_failing_test_is_mended(play, folder):
    (folder / "sums.py").write_text("def total(numbers):\n    return sum(numbers[1:])\n")
    (folder / "test_sums.py").write_text(
        "import unittest\nfrom sums import total\n\n\nclass Sums(unittest.TestCase):\n"
        "    def test_total(self):\n        self.assertEqual(total([1, 2, 3]), 6)\n"
    )

    def model(told):
        told = yield run(TEST)
        told.ended(1).find(r"AssertionError: 5 != 6")
        test = told.find(r'File "(.*test_sums\.py)", line (\d+)')
        told = yield edit("view", test[1])
        module = told.find(r"from (\w+) import total")[1]
        told = yield edit("view", f"{module}.py")
        fault = told.find(r"sum\(numbers\[1:\]\)")[0]
        told = yield edit("str_replace", f"{module}.py", old_str=fault, new_str="sum(numbers)")
        told.find("now reads")
        told = yield run(TEST)
        told.ended(0).find("OK")
        return "total() left out the first number. The test passes."

    end = play("The tests fail. Mend the cause.", model)

    assert (end.status, end.words.endswith("The test passes.")) == ("finished", True)
    assert (folder / "sums.py").read_text() == "def total(numbers):\n    return sum(numbers)\n"


def test_a_name_is_changed_in_all_files(play, folder):
    (folder / "shop" / "parts").mkdir(parents=True)
    (folder / "shop" / "__init__.py").touch()
    (folder / "shop" / "cart.py").write_text("def get_price(item):\n    return item * 2\n")
    (folder / "shop" / "parts" / "bill.py").write_text(
        "from shop.cart import get_price\n\n\ndef bill(items):\n    return sum(get_price(one) for one in items)\n"
    )
    (folder / "README.md").write_text("Call `get_price` for a price, never `get_prices`.\n")
    (folder / "test_bill.py").write_text(
        "import unittest\nfrom shop.parts.bill import bill\n\n\nclass Bill(unittest.TestCase):\n"
        "    def test_bill(self):\n        self.assertEqual(bill([1, 2]), 6)\n"
    )

    def model(told):
        told = yield run(r"grep -rnw get_price --include='*.py' --include='*.md' .")
        files = sorted({line.split(":")[0] for line in told.ended().find_all(r"^\./.*get_price.*$")})
        for file in files:
            told = yield run(rf"sed -i 's/\bget_price\b/price_of/g' {file}")
            told.ended()
        told = yield run("grep -rnw get_price --include='*.py' --include='*.md' .")
        told.ended(1)
        told = yield run(TEST)
        told.ended(0).find("OK")
        return f"The name is changed in {len(files)} files."

    end = play("Rename get_price to price_of everywhere.", model)

    assert (end.status, end.words) == ("finished", "The name is changed in 3 files.")
    assert (folder / "README.md").read_text() == "Call `price_of` for a price, never `get_prices`.\n"
    assert "get_price" not in (folder / "shop" / "parts" / "bill.py").read_text()


def test_an_edit_that_is_not_unique_is_repaired(play, folder):
    file = folder / "settings.ini"
    file.write_text("[reader]\ntimeout = 10\n\n[writer]\ntimeout = 10\n")

    def model(told):
        change = {"old_str": "timeout = 10", "new_str": "timeout = 60"}
        told = yield edit("str_replace", "settings.ini", **change)
        told.find(r"occurs? 2 times|2 occurrences|not unique")
        told = yield edit("view", "settings.ini")
        line = int(told.find(r"(\d+)\t\[writer\]")[1])
        told = yield edit("view", "settings.ini", view_range=[line, line + 1])
        shown = told.find_all(r"^ *\d+\t(.*)$")
        old = "\n".join(shown)
        told = yield edit("str_replace", "settings.ini", old_str=old, new_str=old.replace("10", "60"))
        told.find("now reads")
        return "The writer waits for 60 s."

    end = play("Give the writer a timeout of 60.", model)

    assert end.status == "finished"
    assert file.read_text() == "[reader]\ntimeout = 10\n\n[writer]\ntimeout = 60\n"


def test_the_tests_are_run_as_the_repository_says(play, folder, git):
    git("init", "-q")
    (folder / "AGENTS.md").write_text("# How we work\n\nRun the tests with `sh check.sh --all`, in no other way.\n")
    (folder / "check.sh").write_text('[ "$1" = --all ] && echo all 3 tests pass >>log && cat log\n')
    (folder / "web").mkdir()
    (folder / "web" / "AGENTS.md").write_text("Say in `notes.txt` of this folder what you changed.\n")
    (folder / "web" / "page.html").write_text("<h1>Helo</h1>\n")

    def model(told):
        check = told.find(r"Run the tests with `(.+?)`", told.prompt)[1]
        told = yield edit("str_replace", "web/page.html", old_str="Helo", new_str="Hello")
        notes = told.find(r"Say in `(.+?)` of this folder")[1]
        told = yield edit("create", f"web/{notes}", file_text="A typing error.\n")
        told = yield run(check)
        told.ended(0).find("all 3 tests pass")
        return "The page says Hello."

    end = play("Mend the heading of the page, and run the tests.", model)

    assert end.status == "finished"
    assert (folder / "web" / "notes.txt").read_text() == "A typing error.\n"
    assert (folder / "log").read_text() == "all 3 tests pass\n"


def test_a_binary_file_is_read_and_changed_byte_by_byte(play, folder):
    file = folder / "logo.img"
    file.write_bytes(b"\x89IMG\r\n\x1a\n\x01\xff\xfe\x00\x80" + bytes(range(256)))

    def model(told):
        told = yield edit("view", "logo.img")
        told.find("not UTF-8 text")
        told = yield run("cat logo.img")
        told.ended(0).find("IMG")
        told = yield run("od -An -tx1 -N 12 logo.img")
        version = told.ended(0).find(r"89 49 4d 47 0d 0a 1a 0a (\w\w) ff fe 00")[1]
        if version != "01":
            return f"The version is {version}, not 01."
        told = yield run(r"printf '\002' | dd of=logo.img bs=1 seek=8 conv=notrunc 2>/dev/null; wc -c <logo.img")
        told.ended(0).find(r"^\s*269$")
        return "The version is 2."

    end = play("Set the version of logo.img, which is its ninth byte, from 1 to 2.", model)

    assert (end.status, end.words) == ("finished", "The version is 2.")
    assert file.read_bytes() == b"\x89IMG\r\n\x1a\n\x02\xff\xfe\x00\x80" + bytes(range(256))

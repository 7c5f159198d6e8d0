"""What is told of a command's output, and the file that has the whole of it."""

import re
from contextlib import closing

import pytest

from core.masking import HIDDEN, Mask
from reference_agent.events import MOST_RESULT, result_text
from reference_agent.output import MOST_FILES, MOST_OUTPUT, MOST_TAIL, MOST_WHOLE, OUTPUTS, CommandOutput
from store.sandboxes.files import MOST_BYTES

MARK = re.compile(r"^… ([\d,]+) of ([\d,]+) bytes are not shown here\. The whole output is in (\S+) …$", re.MULTILINE)


def told(folder, data, chunk=65_536):
    with closing(CommandOutput(folder)) as output:
        for at in range(0, len(data), chunk):
            output.add(data[at : at + chunk])
        return output.text()


def files(folder):
    return list((folder / OUTPUTS).glob("*.txt"))


@pytest.mark.parametrize("data", [b"", b"one\n", b"\xff\xc3", b"x" * MOST_OUTPUT])
def test_a_short_output_is_told_whole_and_leaves_no_file(tmp_path, data):
    assert told(tmp_path, data) == data.decode(errors="replace")
    assert not (tmp_path / OUTPUTS).exists()


@pytest.mark.parametrize("chunk", [1000, 65_536, 1 << 22])
def test_of_a_long_output_whole_lines_of_head_and_tail_are_told_and_a_file_has_all(tmp_path, chunk):
    data = b"".join(b"%d\n" % number for number in range(1, 400_001))
    text = told(tmp_path, data, chunk)

    assert len(text.encode()) <= MOST_OUTPUT
    mark = MARK.search(text)
    head, tail = text[: mark.start()].encode(), text[mark.end() + 1 :].encode()
    assert data.startswith(head)
    assert data.endswith(tail)
    assert head.startswith(b"1\n2\n")
    assert head.endswith(b"\n")
    assert data[-len(tail) - 1 : -len(tail)] == b"\n"
    assert int(mark[1].replace(",", "")) == len(data) - len(head) - len(tail)
    assert int(mark[2].replace(",", "")) == len(data)
    [file] = files(tmp_path)
    assert str(file) == mark[3]
    assert file.read_bytes() == data


@pytest.mark.parametrize("size", [0, 10, MOST_TAIL, MOST_TAIL + 1, MOST_OUTPUT, MOST_OUTPUT + 10, 3 * MOST_OUTPUT])
def test_the_tail_is_the_end_of_what_was_printed_so_far_from_the_begin_of_a_line(tmp_path, size):
    data = b"".join(b"%d\n" % number for number in range(100_000))[:size]
    with closing(CommandOutput(tmp_path)) as output:
        output.add(data)
        tail = output.tail().encode()

    assert data.endswith(tail)
    assert len(tail) <= MOST_TAIL
    assert len(tail) == size or (len(tail) > MOST_TAIL // 2 and data[-len(tail) - 1 : -len(tail)] == b"\n")


def test_the_tail_of_one_long_line_has_no_half_of_a_character(tmp_path):
    with closing(CommandOutput(tmp_path)) as output:
        output.add("é".encode() * MOST_TAIL + b"\xc3")
        assert set(output.tail()) == {"é"}


def test_the_tail_shows_no_secret(tmp_path):
    with closing(CommandOutput(tmp_path, Mask(["a-secret-of-24-characters"]))) as output:
        output.add(b"x a-secret-of-24-characters y a-secret-of-")
        assert output.tail() == f"x {HIDDEN} y "


def test_a_cut_splits_no_character(tmp_path):
    text = told(tmp_path, "é".encode() * 200_001)
    assert "\N{REPLACEMENT CHARACTER}" not in text
    assert MARK.search(text)


def test_a_file_of_an_output_has_a_bound_that_a_download_takes_and_says_what_it_lacks(tmp_path):
    text = told(tmp_path, b"line\n" * (MOST_WHOLE // 4))
    [file] = files(tmp_path)
    assert file.stat().st_size <= MOST_WHOLE <= MOST_BYTES
    assert re.search(r"\n… [\d,]+ more bytes were not kept\n$", file.read_text())
    assert f"are in {file}; a file keeps" in text


def test_files_of_outputs_end_and_git_ignores_them(tmp_path):
    for number in range(MOST_FILES + 3):
        told(tmp_path, b"%d\n" % number * MOST_OUTPUT)
    assert len(files(tmp_path)) == MOST_FILES
    assert (tmp_path / OUTPUTS / ".gitignore").read_text() == "*\n"


def test_an_output_whose_file_cannot_be_made_is_told_all_the_same(tmp_path):
    (tmp_path / OUTPUTS).write_text("in the way")
    text = told(tmp_path, b"line\n" * MOST_OUTPUT)
    assert text.startswith("line\n")
    assert "bytes are not shown here. The whole output is not kept: " in text


def test_a_model_reads_less_of_an_output_and_where_the_whole_is(tmp_path):
    data = b"".join(b"%d\n" % number for number in range(1, 400_001))
    seen = {"content": [{"type": "text", "text": told(tmp_path, data)}]}
    text = result_text({"kind": "ObservationEvent", "observation": seen})

    assert len(text) <= MOST_RESULT + 100
    mark = MARK.search(text)
    assert mark[3] == str(files(tmp_path)[0])
    shown = len(text[: mark.start()].encode()) + len(text[mark.end() + 1 :].encode())
    assert abs(int(mark[1].replace(",", "")) + shown - len(data)) < 10


@pytest.mark.parametrize("chunk", [7, 65_536])
def test_neither_the_text_nor_the_file_has_a_value_that_is_masked(tmp_path, chunk):
    lines = b"".join(b"%d\n" % number for number in range(40_000))
    data = b"sesame-ghp_1\xff\n" + lines + b"sesame-ghp_1\n" + lines + b"ses\xc3\xa9ame sesame-ghp_1"
    with closing(CommandOutput(tmp_path, Mask(["sesame-ghp_1"]))) as output:
        for at in range(0, len(data), chunk):
            output.add(data[at : at + chunk])
        text = output.text()

    [file] = files(tmp_path)
    assert file.read_bytes() == data.replace(b"sesame-ghp_1", HIDDEN.encode())
    assert text.startswith(f"{HIDDEN}\N{REPLACEMENT CHARACTER}\n0\n")
    assert text.endswith(f"ses\N{LATIN SMALL LETTER E WITH ACUTE}ame {HIDDEN}")

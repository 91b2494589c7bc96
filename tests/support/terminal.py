"""A command on a pseudo-terminal, and the screen that a person sees at its end."""

import fcntl
import multiprocessing
import os
import pty
import re
import struct
import termios
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from tests.support.forked import become

_PARTS = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|.|\n")


def screen(written: str, columns: int, rows: int) -> str:
    """Return the last screen of a terminal of this size, with what has scrolled out above it."""
    lines: list[str] = [""]
    row = column = 0
    for part in _PARTS.finditer(written):
        text, (number, control) = part[0], part.groups()
        if control == "A":
            row = max(len(lines) - rows, 0, row - int(number or 1))
        elif control == "K" and number == "2":
            lines[row] = ""
        elif control is not None:
            assert control == "m" or number == "?25", f"not emulated: {text!r}"
        elif text == "\r":
            column = 0
        elif text == "\n":
            row += 1
        else:
            if column == columns:
                row, column = row + 1, 0
            lines += [""] * (row == len(lines))
            lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + 1 :]
            column += 1
        lines += [""] * (row == len(lines))
    return "\n".join(line.rstrip() for line in lines)


def on_terminal(arguments: Sequence[object], columns: int, rows: int, folder: Path) -> tuple[int, str]:
    """Run `cse` on a pseudo-terminal. Return the exit code and the last screen."""
    terminal, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    given = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    end, command = Connection(other), ["cse_cli", *map(str, arguments)]
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=become, args=(command, str(folder), {**given, "TERM": "xterm"}, end, end))
    process.start()
    end.close()
    written = b""
    try:
        while part := os.read(terminal, 65536):
            written += part
    except OSError:  # how Linux reports the end of a terminal
        os.close(terminal)
    process.join()
    assert process.exitcode is not None
    return process.exitcode, screen(written.decode(), columns, rows)

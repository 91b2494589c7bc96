"""What a person sees of a run, in a terminal and in a log file; names are text, never markup."""

from __future__ import annotations

import io
import re
import sys

import pytest
from rich.markup import escape

from cse_cli.app import run
from cse_cli.core import console as progress
from cse_cli.core.console import Console, PlainStream, Screen, print_error, wrap_words
from cse_cli.core.tables import as_rich, plain_table
from registry.errors import CseError


def screen(*, terminal: bool, width: int = 100) -> tuple[Screen, io.StringIO]:
    written = io.StringIO()
    return Screen(Console(file=written, force_terminal=terminal, width=width, highlight=False)), written


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_scoring_in_a_file_speaks_now_and_then(clock):
    shown, written = screen(terminal=False)
    clock[0] = 100.0
    for done in range(1, 101):
        clock[0] += 0.5
        shown.scoring("mini_en: sts14", done / 100)
    assert written.getvalue().split("\n")[:3] == [f"mini_en: sts14 {percent}% …" for percent in (1, 21, 41)]


def test_messages_end_their_lines_between_words():
    shown, written = screen(terminal=True, width=40)
    shown.failed("recipe", CseError("the value is not one of those that are known here", "try `cse run quickstart`"))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", written.getvalue())
    assert plain.split("\n") == [
        "error: recipe: the value is not one of",
        "    those that are known here",
        "  → try `cse run quickstart`",
        "",
    ]
    assert wrap_words("see `cse run --resume 3f2a81c0`", 12) == "see\n    `cse run --resume 3f2a81c0`"


def test_quiet_shows_errors_alone(capsys):
    with Screen(quiet=True) as shown:
        shown.scoring("dev", 0.5)
        shown.warned("nothing")
        shown.write("run 1 of 2")
        shown.failed("run 2 of 2", CseError("wrong", "right"))
    assert capsys.readouterr().err == "error: run 2 of 2: wrong\n  → right\n"


def test_counting_speaks_now_and_then(clock):
    shown, written = screen(terminal=False)
    for done in range(0, 1001, 10):
        clock[0] += 0.5
        shown.preparing("tokenizing", done, 1000)
    assert [line.split()[1] for line in written.getvalue().rstrip().split("\n")] == [
        "0/1,000", "200/1,000", "400/1,000", "600/1,000", "800/1,000", "1,000/1,000",
    ]  # fmt: skip


ATTACK = "\x1b]52;c;eA==\x1b[2J\x1b[1A\x9b2K\x00title"
SHOWN = r"\x1b]52;c;eA==\x1b[2J\x1b[1A\x9b2K\x00title"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_control_characters_of_a_text_are_shown_and_not_sent() -> None:
    terminal = Terminal()
    console = Console(file=terminal, force_terminal=True, width=200, highlight=False)
    screen = Screen(console)
    screen.write(f"[bold]{escape(ATTACK)}[/bold]")
    screen.warned(ATTACK)
    screen.failed(ATTACK, CseError(ATTACK))
    console.print(as_rich(plain_table([ATTACK], [[ATTACK]])))
    sent = terminal.getvalue()
    assert sent.count(SHOWN) == 6
    assert set(re.findall(r"\x1b.*?m|[\x00-\x09\x0b-\x1f\x7f-\x9f]", sent)) <= {
        "\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[33m"
    }  # fmt: skip


def test_what_is_written_plainly_to_a_terminal_is_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    plain = PlainStream(terminal)
    assert plain.write(f"{ATTACK}\n") == len(ATTACK) + 1
    assert terminal.getvalue() == f"{SHOWN}\n"
    assert plain.isatty()
    monkeypatch.setattr("sys.stderr", plain)
    print_error(CseError(ATTACK))  # styled by Rich, past the stream
    assert "\x1b[31merror:\x1b[0m" in terminal.getvalue()
    assert terminal.getvalue().count(SHOWN) == 2


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_gets_plain_text_and_a_pipe_every_byte(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    out = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    monkeypatch.setattr("cse_cli.app.app", lambda **_: sys.stdout.write(ATTACK) and 0)
    with pytest.raises(SystemExit):
        run()
    assert out.getvalue() == (SHOWN if terminal else ATTACK)

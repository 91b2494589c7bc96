"""What a person sees of a run, in a terminal and in a log file; names are text, never markup."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace

import pytest
from rich.markup import escape

from cse_cli.app import run
from cse_cli.core import console as progress
from cse_cli.core.console import Console, Screen, print_error, wrap_words
from cse_cli.core.events import RunInfo
from cse_cli.core.tables import as_rich, plain_table
from cse_cli.core.terminal import PlainStream
from registry.errors import CseError

STARTED = RunInfo(
    recipe="[red]x", title="A [bold]title", seed=3, device="cpu [2 threads]", precision="fp32", run_id="abc123def",
    home="/home/[me]/cse", steps=100, done=0, sentences=58_763,
)  # fmt: skip


def screen(*, terminal: bool, width: int = 100) -> tuple[Screen, io.StringIO]:
    written = io.StringIO()
    return Screen(Console(file=written, force_terminal=terminal, width=width, highlight=False)), written


def whole_run(shown: Screen) -> None:
    with shown:
        shown.preparing("tokenizing [text]", 10, 20)
        shown.preparing("tokenizing [text]", 20, 20)
        shown.started(STARTED)
        shown.evaluated(0, {"dev[a].spearman": 31.5}, False)
        shown.stepped(10, 1.25, 340.0)
        shown.evaluated(10, {"dev[a].spearman": 40.126}, True)
        shown.warned("[collapse] is near")
        shown.stepped(100, 0.5, 350.0)
        shown.preparing("scoring")
        shown.failed("[red]x seed 3", CseError("wrong [value]", "try [that]"))
        shown.stopped("abc123def")
        shown.stopped(None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_plain_lines(snapshot):
    shown, written = screen(terminal=False)
    whole_run(shown)
    assert written.getvalue() == snapshot


@pytest.mark.parametrize("width", [20, 40, 200])
def test_a_terminal_of_any_width(width):
    shown, written = screen(terminal=True, width=width)
    whole_run(shown)
    text = " ".join(written.getvalue().split())
    for part in (
        "[red]x",
        "A [bold]title",
        "cpu [2 threads]",
        "dev[a].spearman 40.13",
        "[collapse] is near",
        "wrong [value]",
    ):
        assert part in text
    text = written.getvalue()
    assert text.index("\x1b[?25l") < text.rindex("\x1b[?25h")  # the cursor comes back


def test_the_bar_shows_step_loss_score_and_rate():
    shown, written = screen(terminal=True, width=120)
    with shown:
        shown.started(STARTED)
        shown.evaluated(0, {"dev.spearman": 31.5}, False)
        shown.stepped(10, 1.25, 3400.0)
        assert shown._bar is not None
        shown._bar.refresh()
    for part in ("10/100", "loss 1.2500", "dev 31.50", "3,400 sent/s"):
        assert part in written.getvalue()


def test_the_slow_first_step_is_not_in_the_time_left(clock):
    shown, written = screen(terminal=True, width=120)
    with shown:
        shown.started(STARTED)
        clock[0] += 5.0  # five times as long as the others
        shown.stepped(1, 1.25, 64.0)
        assert shown._bar is not None
        shown._bar.refresh()
        assert " left" not in written.getvalue()
        clock[0] += 9.0
        shown.stepped(10, 1.25, 64.0)
        shown._bar.refresh()
    assert "90 s left" in written.getvalue()


def test_evaluations_count_in_the_time_left(clock):
    shown, written = screen(terminal=True, width=120)
    with shown:
        shown.started(STARTED)
        shown.stepped(1, 1.25, 64.0)
        clock[0] += 9.0
        shown.stepped(10, 1.25, 64.0)
        clock[0] += 9.0
        shown.evaluated(10, {"dev.spearman": 40.0}, True)
        assert shown._bar is not None
        shown._bar.refresh()
    assert "3 min left" in written.getvalue()  # 90 steps of two seconds


def test_scoring_during_and_after_the_steps():
    shown, written = screen(terminal=True, width=120)
    with shown:
        shown.started(STARTED)
        shown.scoring("scoring dev", 0.25)
        assert shown._bar is not None
        shown._bar.refresh()
        assert "scoring 25%" in written.getvalue()
        shown.preparing("scoring the selected state")
        shown.scoring("scoring the selected state", 0.5)
        assert shown._bar is not None
        shown._bar.refresh()
        shown.scoring("scoring the selected state", 1.0)
        assert shown._bar is None
    assert "50%" in written.getvalue()


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
        shown.started(STARTED)
        shown.stepped(1, 1.0, 1.0)
        shown.scoring("dev", 0.5)
        shown.warned("nothing")
        shown.ran("run 1 of 2")
        shown.failed("run 2 of 2", CseError("wrong", "right"))
    assert capsys.readouterr().err == "error: run 2 of 2: wrong\n  → right\n"


def test_the_bar_ends_with_an_exception():
    shown, written = screen(terminal=True)

    def interrupted() -> None:
        with shown:
            shown.started(STARTED)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert shown._bar is None
    assert written.getvalue().rindex("\x1b[?25h") > 0


def test_plain_lines_come_now_and_then_with_the_time_left(clock):
    shown, written = screen(terminal=False)
    shown.started(replace(STARTED, done=20))
    assert "seed 3, resuming after step 20" in written.getvalue()
    before = len(written.getvalue())
    for step in range(21, 61):
        clock[0] += 1.0
        shown.stepped(step, 1.0, 64.0)
    lines = written.getvalue()[before:].rstrip().split("\n")
    assert lines == [
        f"  step {step}/100  loss 1.0000  64 sentences/s  {100 - step} s left" for step in (30, 40, 50, 60)
    ]


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

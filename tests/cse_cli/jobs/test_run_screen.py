"""What a person sees of one run, in a terminal and in a log file; names are text, never markup."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from cse_cli.core.console import Console
from cse_cli.core.paths import home
from cse_cli.jobs import screen as progress
from cse_cli.jobs.job import Job
from cse_cli.jobs.screen import RunScreen
from cse_cli.recipe.load import load
from registry.errors import CseError

STARTED = {
    "device": "cpu [2 threads]", "precision": "fp32", "hint": "", "steps": 100, "step": 0, "sentences": 58_763,
}  # fmt: skip


@pytest.fixture
def screen(home):
    def made(*, terminal: bool, width: int = 100) -> tuple[RunScreen, io.StringIO]:
        written = io.StringIO()
        shown = RunScreen(Console(file=written, force_terminal=terminal, width=width, highlight=False))
        loaded = replace(load("quickstart"), name="[red]x")
        loaded = replace(loaded, recipe=loaded.recipe.model_copy(update={"title": "A [bold]title"}))
        job = Job(loaded, 3)
        assert shown.begin(job.label, job.heading, "abc123def") == shown.show
        return shown, written

    return made


def metrics(step: int, loss: float, rate: float) -> dict[str, object]:
    return {"step": step, "values": {"train/loss": loss, "speed/sentences_per_second": rate}}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def whole_run(shown: RunScreen) -> None:
    with shown:
        shown.show("progress", {"what": "tokenizing [text]", "done": 10, "total": 20})
        shown.show("progress", {"what": "tokenizing [text]", "done": 20, "total": 20})
        shown.show("started", STARTED)
        shown.show("evaluated", {"step": 0, "scores": {"dev[a].spearman": 31.5}, "best": False})
        shown.show("metrics", metrics(10, 1.25, 340.0))
        shown.show("evaluated", {"step": 10, "scores": {"dev[a].spearman": 40.126}, "best": True})
        shown.show("warning", {"text": "[collapse] is near"})
        shown.show("metrics", metrics(100, 0.5, 350.0))
        shown.show("progress", {"what": "scoring", "done": 0, "total": 0})
        shown.failed("[red]x seed 3", CseError("wrong [value]", "try [that]"))


def test_plain_lines(screen, snapshot):
    shown, written = screen(terminal=False)
    whole_run(shown)
    assert written.getvalue().replace(str(home()), "HOME") == snapshot


@pytest.mark.parametrize("width", [20, 40, 200])
def test_a_terminal_of_any_width(screen, width):
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


def test_the_bar_and_the_time_left_with_evaluations_and_without_the_slow_first_step(screen, clock):
    shown, written = screen(terminal=True, width=120)
    with shown:
        shown.show("started", STARTED)
        shown.show("evaluated", {"step": 0, "scores": {"dev.spearman": 31.5}, "best": False})
        clock[0] += 5.0  # five times as long as the others
        shown.show("metrics", metrics(1, 1.25, 3400.0))
        assert shown._bar is not None
        shown._bar.refresh()
        assert " left" not in written.getvalue()
        clock[0] += 9.0
        shown.show("metrics", metrics(10, 1.25, 3400.0))
        shown._bar.refresh()
        for part in ("10/100", "loss 1.2500", "dev 31.50", "3,400 sent/s", "90 s left"):
            assert part in written.getvalue()
        clock[0] += 9.0
        shown.show("evaluated", {"step": 10, "scores": {"dev.spearman": 40.0}, "best": True})
        shown._bar.refresh()
    assert "3 min left" in written.getvalue()  # 90 steps of two seconds


def test_scoring_during_and_after_the_steps(screen):
    shown, written = screen(terminal=True, width=120)
    with shown:
        shown.show("started", STARTED)
        shown.show("progress", {"what": "scoring dev", "done": 0.25, "total": 1})
        assert shown._bar is not None
        shown._bar.refresh()
        assert "scoring 25%" in written.getvalue()
        shown.show("progress", {"what": "scoring the selected state", "done": 0, "total": 0})
        shown.show("progress", {"what": "scoring the selected state", "done": 0.5, "total": 1})
        assert shown._bar is not None
        shown._bar.refresh()
        shown.show("progress", {"what": "scoring the selected state", "done": 1.0, "total": 1})
        assert shown._bar is None
    assert "50%" in written.getvalue()


def test_the_bar_ends_with_an_exception(screen):
    shown, written = screen(terminal=True)

    def interrupted() -> None:
        with shown:
            shown.show("started", STARTED)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert shown._bar is None
    assert written.getvalue().rindex("\x1b[?25h") > 0


def test_plain_lines_come_now_and_then_with_the_time_left(screen, clock):
    shown, written = screen(terminal=False)
    shown.show("started", {**STARTED, "step": 20})
    assert "seed 3, resuming after step 20" in written.getvalue()
    before = len(written.getvalue())
    for step in range(21, 61):
        clock[0] += 1.0
        shown.show("metrics", metrics(step, 1.0, 64.0))
    lines = written.getvalue()[before:].rstrip().split("\n")
    assert lines == [
        f"  step {step}/100  loss 1.0000  64 sentences/s  {100 - step} s left" for step in (30, 40, 50, 60)
    ]

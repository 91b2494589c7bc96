"""The last screen of a terminal after each command that shows progress: without bars, and with every line."""

from __future__ import annotations

import io
import re

import pytest

from cse_cli.core.console import Console
from cse_cli.tuning.view import TuneScreen
from tests.support.shrunken import recipe, small
from tests.support.terminal import on_terminal, screen

SPACE = ("--range", "temperature=0.03..0.2:log", "--range", "learning_rate=1e-5..1e-3:log")
COMMANDS = {
    "run": ("run", "small.toml", "--again"),
    "seeds": ("run", "small.toml", "--seeds", "2", "--again"),
    "workers": ("run", "small.toml", "--seeds", "2", "--workers", "2", "--again"),
    "search": ("tune", "small.toml", *SPACE, "--trials", "3", "--seeds", "2", "--name", "both"),
    "one seed": ("tune", "small.toml", *SPACE, "--trials", "3", "--seeds", "1", "--name", "one"),
    "evaluate": ("evaluate", "{model}", "--tasks", "pairs.tsv"),
    "inspect": ("data", "inspect", "small.toml"),
}
LAST = {
    "search": ("no trial is better|not verified", "figures: ", r"^ *3/3 +trial 2 .*"),
    "one seed": ("no trial is better|not verified", "figures: "),
    "run": (r"untrained +dev.spearman", "step 3 +dev.spearman", "^next:"),
    "seeds": ("^run 1 of 2", "^finished 2 of 2", "^next:"),
    "workers": ("^run 2 of 2", "^finished 2 of 2", "^next:"),
}


WIDE = [pytest.param(name, 130, 30, marks=() if name == "search" else pytest.mark.exhaustive) for name in COMMANDS]


@pytest.mark.process
@pytest.mark.parametrize(("name", "columns", "rows"), [*((name, 80, 24) for name in COMMANDS), *WIDE])
def test_the_last_screen(name, columns, rows, tmp_path):
    recipe(tmp_path, parts := small(tmp_path))
    arguments = [part.format(model=parts.models["bert"]) for part in COMMANDS[name]]
    code, shown = on_terminal(arguments, columns, rows, tmp_path)
    assert code == 0, shown
    assert not re.search(r"[━╸╺]|^ +trial \d+: ", shown, re.MULTILINE), shown  # no bar and no row is left
    for line in LAST.get(name, ()):
        assert re.search(line, shown, re.MULTILINE), (line, shown)


def test_the_emulated_screen():
    assert screen("one\r\ntwo\r\n\x1b[1A\r\x1b[2Ksecond\x1b[1m!\r\nabcdefghij", 8, 3) == "one\nsecond!\nabcdefgh\nij"
    assert screen("a\r\nb\r\nc\r\nd\x1b[9A\rx", 8, 3) == "a\nx\nc\nd"  # what has scrolled out stays


def test_a_trial_of_two_parameters_shows_steps_bar_and_score(tmp_path):
    written = io.StringIO()
    with TuneScreen() as shown:
        shown.console, shown.live = Console(file=written, force_terminal=True, width=80, highlight=False), True
        shown.trial_began(1, {"losses.info_nce.temperature": 0.01189, "train.learning_rate": 0.0009354})
        shown.started({"steps": 20, "step": 10})
        shown.evaluated(10, {"dev.spearman": 57.25}, True)
        shown.stepped(11, 0.5, 10.0)
        assert shown._bar is not None
        shown._bar.refresh()
        row = screen(written.getvalue(), 80, 24)
        assert re.search(r"^ +trial 1: .*… +11/20 +━.* dev 57\.25$", row), row

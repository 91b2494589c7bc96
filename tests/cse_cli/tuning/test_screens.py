"""Texts of `cse tune`, as a user sees them."""

from __future__ import annotations

import re

from tests.cse_cli.tuning.fake import config, drive
from tests.cse_cli.tuning.searches import RATE, search, verification
from tests.support.command import cse


def test_help(capsys, snapshot, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert cse("tune", "--help", capsys=capsys)[1] == snapshot


def test_results(capsys, snapshot):
    from cse_cli.tuning.view import print_search, print_searches

    print_search(search())
    print_search(search(verification=verification((10.0, 11.0, 12.0), (11.0, 12.05, 12.95))))
    print_search(search(parameters=(RATE,), importance={"train.learning_rate": 0.75, "queue_length": 0.25}))
    print_searches([search(), search(name="b", trials=())])
    assert capsys.readouterr().out == snapshot


def test_display_of_a_running_search(tmp_path, home, capsys, snapshot):
    from cse_cli.tuning.view import TuneScreen

    asked = config(tmp_path, trials=3, sampler="random", seeds=(42,))
    with TuneScreen() as screen:
        screen.chosen("fake", "the default, because there are no runs yet")
        screen.planned(asked, asked.load_base())
        screen.opened(asked, 0, 3, "on CPU", 1)
        drive(asked, screen=screen)
        screen.ended(asked, 3, 0, "budget")
        screen.ended(asked, 3, 1, "timeout")
        screen.advise(["stopped. To continue: cse tune --resume search"])
    shown = capsys.readouterr().err.replace(str(home), "HOME")
    assert re.sub(r"\d+ s\b", "N s", shown) == snapshot

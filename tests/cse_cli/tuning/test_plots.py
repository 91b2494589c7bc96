"""Figures of a search."""

from __future__ import annotations

import sys

import pytest

from cse_cli.tuning.plots import draw
from cse_cli.tuning.study import load_study, open_study
from tests.cse_cli.tuning.fake import SCHEDULES, config, drive, parameter


def names(files):
    return sorted(path.name for path in files)


def test_without_a_complete_trial_nothing_is_drawn(tmp_path):
    assert draw(open_study(config(tmp_path)), tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize("trials", [1, 6])
def test_one_parameter_has_no_importance(trials, tmp_path):
    drive(config(tmp_path, trials=trials, parameters=(parameter(low=1e-4),)))  # the recipe's own value lies outside
    files = draw(load_study("search"), tmp_path)
    assert names(files) == ["history.png", "history.svg", "slice.png", "slice.svg"]


@pytest.mark.exhaustive
def test_figures_are_the_same_bytes_each_time_and_need_no_plotly(tmp_path):
    drive(config(tmp_path, trials=8, parameters=(parameter(), SCHEDULES)))
    study = load_study("search")
    files = draw(study, tmp_path)
    assert names(files) == [f"{name}.{kind}" for name in ("history", "importance", "slice") for kind in ("png", "svg")]
    before = {path: path.read_bytes() for path in files}
    draw(study, tmp_path)
    assert {path: path.read_bytes() for path in files} == before
    assert "plotly" not in sys.modules

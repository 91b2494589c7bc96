"""Figures of a search."""

from __future__ import annotations

import sys

import pytest

from cse_cli.tuning.plots import _figures, draw
from cse_cli.tuning.results import Trial, read_search
from cse_cli.tuning.study import open_study
from tests.cse_cli.tuning.fake import SCHEDULES, config, drive, parameter
from tests.cse_cli.tuning.searches import LENGTH, RATE, search


@pytest.mark.slow
def test_what_the_figures_show(tmp_path):
    known = [(59.0, 128, 1e-3), (61.0, 64, 1e-4), (60.0, 512, 1e-4), (58.0, 64, 1e-2)]
    trials = []
    for place, (score, length, rate) in enumerate(known):
        values = {"queue_length": length, "train.learning_rate": rate}
        trials.append(Trial(number=place, state="complete", score=score, own=place == 0, seconds=1.0, values=values))
    drawn = dict(_figures(search(trials=tuple(trials), parameters=(LENGTH, RATE))))
    assert set(drawn) == {"history", "slice", "contour"}
    (axes,) = drawn["history"].axes
    assert [list(line.get_ydata()) for line in axes.lines] == [[59.0, 61.0, 61.0, 61.0]]
    drawn["history"].draw_without_rendering()
    assert all(float(tick).is_integer() for tick in axes.get_xticks())
    own = [part for part in axes.collections if part.get_label() == "recipe's own value"]
    assert [part.get_offsets().tolist() for part in own] == [[[0.0, 59.0]]]
    assert [axes.get_xscale() for axes in drawn["slice"].axes] == ["linear", "log"]
    marked = [part for part in drawn["contour"].axes[0].collections if part.get_label() == "recipe's own value"]
    assert [part.get_offsets().tolist() for part in marked] == [[[128.0, 1e-3]]]


@pytest.mark.exhaustive
def test_figures_are_the_same_bytes_each_time_and_need_no_plotly(tmp_path):
    def drawn(asked):
        files = draw(read_search(open_study(asked)), tmp_path / asked.name)
        return {path.name: path.read_bytes() for path in files}

    one = config(tmp_path, name="one", trials=1, parameters=(parameter(low=1e-4),))  # the recipe's own value is outside
    assert drawn(one) == {}
    assert not (tmp_path / "one").exists()
    drive(one)
    assert sorted(drawn(one)) == ["history.png", "history.svg", "slice.png", "slice.svg"]
    two = config(tmp_path, name="two", trials=8, parameters=(parameter(), SCHEDULES))
    drive(two)
    assert sorted({*drawn(two)} - {*drawn(one)}) == ["importance.png", "importance.svg"]
    assert drawn(two) == drawn(two)
    assert "plotly" not in sys.modules

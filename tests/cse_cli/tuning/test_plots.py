"""Figures of a search: what is drawn of what there is."""

from __future__ import annotations

import pytest

from cse_cli.core.plotting import styled
from cse_cli.tuning.plots import draw, figures, history, importance, slices
from cse_cli.tuning.results import Trial
from tests.cse_cli.tuning.searches import LENGTH, POOLING, RATE, search


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_the_history_climbs_with_the_best_so_far():
    with styled():
        (axes,) = history(search()).axes
    drawn = lines(axes)
    assert list(drawn["best so far"].get_ydata()) == [59.5, 59.5, 59.75, 59.75]
    assert list(drawn["best so far"].get_xdata()) == [0, 1, 2, 4]
    assert list(drawn["complete"].get_xdata()) == [0, 1, 2]
    assert list(drawn["pruned at"].get_ydata()) == [57.0]
    assert list(drawn["failed"].get_xdata()) == [4]
    assert list(drawn["best: 59.75"].get_xdata()) == [2]
    assert list(drawn["recipe's own: 59.50"].get_ydata()) == [59.5, 59.5]


def test_each_parameter_has_its_panel_over_its_whole_range():
    values = {"queue_length": 128, "train.learning_rate": 1e-3, "pooling": "cls"}
    trials = (
        Trial(number=0, state="complete", score=1.0, own=True),
        Trial(number=1, state="complete", score=2.0, values=values),
    )
    with styled():
        length, rate, pooling, empty = slices(search(parameters=(LENGTH, RATE, POOLING), trials=trials)).axes
    low, high = length.get_xlim()
    assert low < 64
    assert high > 512
    assert list(lines(length)["complete"].get_xdata()) == [128]  # a trial without the value has no place
    assert rate.get_xscale() == "log"
    assert rate.get_xlim() == pytest.approx((10**-4.1, 10**-1.9))
    assert [tick.get_text() for tick in pooling.get_xticklabels()] == ["cls", "mean"]
    assert list(lines(pooling)["best: 2.00"].get_xdata()) == [0]
    assert list(lines(pooling)["recipe's own"].get_xdata()) == [1, 1]
    assert not empty.axison


def test_importance_is_sorted_and_numbered():
    with styled():
        (axes,) = importance(search(importance={"a": 0.25, "b": 0.75})).axes
    assert [bar.get_width() for bar in axes.patches] == [0.25, 0.75]
    assert [text.get_text() for text in axes.texts] == ["0.25", "0.75"]


def test_only_what_there_is_data_for_is_drawn(tmp_path):
    assert list(figures(search(trials=()))) == []
    assert draw(search(trials=()), tmp_path / "none") == []
    assert not (tmp_path / "none").exists()
    files = draw(search(), tmp_path)
    assert sorted(path.name for path in files) == ["history.png", "history.svg", "slice.png", "slice.svg"]
    before = {path: path.read_bytes() for path in files}
    draw(search(), tmp_path)
    assert {path: path.read_bytes() for path in files} == before

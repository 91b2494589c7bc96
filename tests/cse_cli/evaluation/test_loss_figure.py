"""The loss by step: what was minimized, and each part that is not the whole."""

from __future__ import annotations

from math import nan

from cse_cli.analysis.figures import loss_curves
from cse_cli.core.plotting import Heading, figure_style

WHOLE = [(0, 3.0), (10, 2.0), (20, nan), (30, 1.0)]


def drawn(parts):
    with figure_style():
        (axes,) = loss_curves(WHOLE, parts, Heading("Loss")).axes
        return {str(line.get_label()): list(zip(*line.get_data(), strict=True)) for line in axes.get_lines()}


def test_parts_stand_beside_the_whole():
    lines = drawn({"identical": [(0, 1.0), (10, 0.5)], "twins": [(0, 2.0), (10, 1.5)]})
    assert lines["identical"] == [(0, 1.0), (10, 0.5)]
    assert lines["minimized"] == [(0, 3.0), (10, 2.0), (30, 1.0)]  # what is not finite has no place
    assert set(lines) == {"identical", "twins", "minimized"}


def test_a_part_that_is_the_whole_is_drawn_once():
    (label,) = drawn({"info_nce": WHOLE})
    assert label.startswith("_")


def test_a_loss_has_a_logarithmic_axis_unless_it_can_be_negative():
    with figure_style():
        (axes,) = loss_curves(WHOLE, {}, Heading("Loss")).axes
        assert axes.get_yscale() == "log"
        (axes,) = loss_curves(WHOLE, {"margin": [(0, 0.5), (10, -0.5)]}, Heading("Loss")).axes
        assert axes.get_yscale() == "linear"

"""Which figures a result gives, what they say, and that they are the same every time."""

from __future__ import annotations

import math

import matplotlib as mpl
import pytest

from cse_cli.analysis.figures import draw_run, run_figures
from cse_cli.core.plotting import figure_style
from cse_cli.core.results import STS_TASKS, PaperRow, Result
from tests.support import records

pytestmark = pytest.mark.slow

ROW = PaperRow(key="focal_infonce", table="sts", row="SimCSE-BERT-base + Focal")
DATA = {name: {f"{name}/test": "d"} for name in STS_TASKS} | {"dev": {"stsb/dev": "d"}, "plane": {"stsb/all": "d"}}


def result(**changed) -> Result:
    scores = {name: {"spearman": 60.0 + place, "pearson": 50.0} for place, name in enumerate(STS_TASKS)}
    values = {
        "recipe": "none_of_this_name",
        "title": "A method, English",
        "seed": 7,
        "scores": {"dev": {"spearman": 63.5}, **scores},
        "untrained": {"dev": {"spearman": 61.2}, **{name: {"spearman": 50.0} for name in STS_TASKS}},
        "curve": {0: 61.2, 10: 62.0, 20: 63.5, 30: 63.1},
        "selected_step": 20,
        "metric_for_best_model": "dev.spearman",
        "steps": 30,
        "scored_on": DATA,
    }
    return records.result(**{**values, **changed})


def with_plane(before: bool = True) -> Result:
    one = result()
    untrained = {"plane": {"alignment": 0.14, "uniformity": -1.2}} if before else {}
    return one.model_copy(
        update={
            "scores": {**one.scores, "plane": {"alignment": 0.24, "uniformity": -1.9}, "rank": {"effective_rank": 3.5}},
            "untrained": {**one.untrained, **untrained},
        }
    )


GOLD, COSINE = [0.0, 1.0, 2.5, 4.0, 5.0], [0.1, 0.4, 0.3, 0.8, 0.9]
SERIES = {
    "dev": {"gold": GOLD, "cosine": COSINE},
    "rank": {"singular_values": [4.0, 2.0, 1.0, 0.0]},
    "sts12": {},
}


@pytest.fixture(autouse=True)
def style():
    with figure_style():
        yield


def made(one: Result, series=SERIES):
    return dict(run_figures(one, series))


def texts(figure) -> list[str]:
    """Return everything written in a figure: headings, labels, ticks, legends."""
    figure.draw_without_rendering()
    found = figure.findobj(mpl.text.Text)
    return [text.get_text() for text in found if text.get_text() and text.get_visible()]


def test_every_figure_there_is_data_for():
    assert list(made(with_plane())) == [
        "training_curve",
        "tasks_spearman",
        "similarity_dev",
        "singular_values_rank",
        "alignment_uniformity_plane",
    ]


def test_no_figure_without_data(tmp_path):
    empty = result(
        scores={"dev": {"spearman": 1.0}}, untrained={}, curve={}, selected_step=None, metric_for_best_model=None
    )
    assert draw_run(empty, {"dev": {}, "other": {"gold": [], "cosine": []}}, tmp_path / "figures") == []
    assert not (tmp_path / "figures").exists()


# What they show.


def test_training_curve_by_value():
    figure = made(result())["training_curve"]
    line, kept, level = figure.axes[0].lines
    assert line.get_xydata().tolist() == [[0, 61.2], [10, 62.0], [20, 63.5], [30, 63.1]]
    assert kept.get_xydata().tolist() == [[20, 63.5]]
    assert set(level.get_ydata()) == {61.2}
    written = set(texts(figure))
    assert "Training curve: Spearman × 100, stsb/dev" in written
    assert {"A method, English, seed 7", "selected: 63.50, step 20", "untrained: 61.20", "step"} <= written


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        ({"untrained": {}}, 2),
        ({"untrained": {}, "selected_step": None}, 1),
        ({"curve": {5: 60.0}, "selected_step": 5}, 3),
        ({"curve": {0: math.nan, 5: 60.0}, "selected_step": 0}, 2),
    ],
)
def test_training_curve_of_what_is_known(changed, lines):
    figure = made(result(**changed))["training_curve"]
    figure.draw_without_rendering()
    assert len(figure.axes[0].lines) == lines


def heights(figure) -> list[list[float]]:
    return [[round(float(bar.get_height()), 2) for bar in bars] for bars in figure.axes[0].containers]


def test_bars_beside_the_papers_row():
    figure = made(result(paper=ROW))["tasks_paper"]
    printed, ours = heights(figure)
    assert printed == [68.50, 83.70, 79.00, 82.71, 79.43, 78.85, 72.99, 77.33]
    assert ours == [60, 61, 62, 63, 64, 65, 66, 63]
    written = texts(figure)
    assert {"Focal-InfoNCE: SimCSE-BERT-base + Focal", "this run", "STS-B", "Avg", "78.85", "63.00"} <= set(written)
    assert "Tasks: Spearman × 100, test split" in written


def test_bars_beside_the_untrained_encoder():
    figure = made(result())["tasks_spearman"]
    before, after = heights(figure)
    assert before == [50.0] * 8
    assert after == [60, 61, 62, 63, 64, 65, 66, 63]
    assert {"sts12", "avg", "untrained", "this run"} <= set(texts(figure))


def test_bars_alone_where_nothing_else_is_known():
    one = result(scores={"a": {"accuracy": 80.0}, "b": {"accuracy": 70.0}}, untrained={})
    figure = made(one)["tasks_accuracy"]
    assert heights(figure) == [[80.0, 70.0]]
    assert "Tasks: accuracy, a, b" in texts(figure)


def test_another_model_is_not_compared_with_the_paper(monkeypatch):
    monkeypatch.setattr("cse_cli.analysis.experiments.recipe_status", lambda *_: "other_model")
    drawn = made(result(paper=ROW), {})
    assert "tasks_paper" not in drawn
    assert "tasks_spearman" in drawn


def test_scatter_shows_every_pair_and_both_margins():
    figure = made(result())["similarity_dev"]
    points, above, beside = figure.axes
    assert points.collections[0].get_offsets().tolist() == [list(pair) for pair in zip(GOLD, COSINE, strict=True)]
    assert sum(bar.get_height() for bar in above.patches) == len(GOLD)
    assert sum(bar.get_width() for bar in beside.patches) == len(COSINE)
    assert {"Gold score and cosine, stsb/dev", "Spearman 63.50, 5\N{NO-BREAK SPACE}pairs"} <= set(texts(figure))


def test_scatter_with_its_interval():
    scores = {"spearman": 63.5, "spearman_low": 60.0, "spearman_high": 66.0}
    figure = made(result(scores={"dev": scores}), {"dev": {"gold": GOLD, "cosine": COSINE}})["similarity_dev"]
    assert "Spearman 63.50 (60.00 to 66.00)" in " ".join(texts(figure))


def test_constant_scores_and_a_single_pair_are_drawn():
    series = {"dev": {"gold": [2.0], "cosine": [0.5]}, "sts12": {"gold": [1.0, 1.0], "cosine": [0.0, 0.0]}}
    for name in ("similarity_dev", "similarity_sts12"):
        made(result(), series)[name].draw_without_rendering()


def test_at_most_three_scatters():
    pairs = {"gold": GOLD, "cosine": COSINE}
    one = result()
    one = one.model_copy(update={"scores": {**one.scores, "profile": {"spread": 0.4}}})
    series = dict.fromkeys(one.scores, pairs)
    assert [name for name in made(one, series) if name.startswith("similarity")] == [
        "similarity_profile",
        "similarity_dev",
        "similarity_stsb",
    ]


def test_spectrum_is_relative_ordered_and_counts_zeros():
    figure = made(with_plane(), {"rank": {"singular_values": [2.0, 4.0, 0.0, 1.0]}})["singular_values_rank"]
    assert figure.axes[0].lines[0].get_xydata().tolist() == [[1, 1.0], [2, 0.5], [3, 0.25]]
    assert {"index (zero: 1 more)", "effective rank 3.5 of 4"} <= set(texts(figure))


def test_a_spectrum_of_zeros_is_no_figure():
    assert "singular_values_rank" not in made(with_plane(), {"rank": {"singular_values": [0.0, 0.0]}})


def test_plane_has_the_papers_points_and_the_run():
    axes = made(with_plane())["alignment_uniformity_plane"].axes[0]
    points = {each.get_label(): each.get_offsets().tolist()[0] for each in axes.collections}
    assert list(points.values())[:2] == [[-2.4, 0.19], [-1.906, 0.134]]
    assert (points["untrained"], points["this run"]) == ([-1.2, 0.14], [-1.9, 0.24])
    written = set(texts(axes.figure))
    assert {"SimCSE", "DCLR + Focal", "this run", "untrained", "points of papers: Focal-InfoNCE, Table 3"} <= written
    assert len(made(with_plane(before=False))["alignment_uniformity_plane"].axes[0].collections) == 7


# How they look.


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["training_curve", "tasks_spearman", "similarity_dev", "alignment_uniformity_plane"])
def test_nothing_is_cut_off_and_nothing_is_small(name):
    long = "A method with an unusually long title that says what is trained, on what, and how, in one sentence"
    figure = made(with_plane().model_copy(update={"title": long}))[name]
    figure.draw_without_rendering()
    drawn, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert min(drawn.x0, drawn.y0) >= 0
    assert drawn.x1 <= width
    assert drawn.y1 <= height
    written = [each for each in figure.findobj(mpl.text.Text) if each.get_text().strip()]
    assert min(each.get_fontsize() for each in written) >= 6.5


def test_titles_are_taken_literally():
    figure = made(result(title="costs $5 and $6, _x^2"))["training_curve"]
    assert "costs $5 and $6, _x^2, seed 7" in texts(figure)


# What is written.


@pytest.mark.exhaustive
def test_equal_results_give_equal_files_in_any_style(tmp_path):
    first = draw_run(with_plane(), SERIES, tmp_path / "one")
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.hashsalt": None}):
        second = draw_run(with_plane(), SERIES, tmp_path / "two")
    assert [file.name for file in first] == [file.name for file in second]
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]
    assert "2026" not in first[0].read_text(encoding="utf-8")


def test_names_of_files_are_safe(tmp_path):
    files = draw_run(result(), {"my/own pairs": {"gold": GOLD, "cosine": COSINE}}, tmp_path)
    assert tmp_path / "similarity_my_own_pairs.svg" in files


def test_global_state_is_left_alone(tmp_path):
    before, backend = dict(mpl.rcParams), mpl.rcParams["backend"]
    draw_run(result(), {}, tmp_path)
    assert dict(mpl.rcParams) == before
    assert mpl.rcParams["backend"] == backend

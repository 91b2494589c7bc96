"""What the figure of a study shows: which runs belong to it, its numbers beside the paper's, one panel or two."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cse_cli.analysis.experiments import FinishedRuns
from cse_cli.analysis.study_figures import equal_spans, fit_together, study_curves, study_figure, study_points
from cse_cli.analysis.tables import StudyRuns, study_runs
from cse_cli.core.plotting import as_svg, figure_style
from cse_cli.core.results import STS_TASKS, Result
from cse_cli.recipe.cells import cells
from cse_cli.recipe.study import load_study
from tests.cse_cli.analysis.leaderboard_runs import result as ran

pytestmark = pytest.mark.slow

QUEUE = "studies/mini/ifcl_queue_length"
REPORTED = [78.76, 79.15, 80.27, 79.79, 78.13]


def result(recipe_hash: str, seed: int = 0, score: float = 65.0, **changed) -> Result:
    scores = {name: {"spearman": score} for name in (*STS_TASKS, "cstsb", "test")}
    return ran(seed, recipe_hash=recipe_hash, **{"scores": scores, "model": "mini_en", "paper": None, **changed})


def findings(name: str, *scores: float, **changed) -> StudyRuns:
    """Return a study whose every cell has a run a score, the cell's place added to it."""
    study = load_study(name)
    made = cells(study)
    runs = [
        result(cell.hash, seed, score + place, **changed)
        for place, cell in enumerate(made)
        for seed, score in enumerate(scores)
    ]
    return study_runs(study, FinishedRuns(runs))


def points_of(found: StudyRuns):
    return study_points(found, found.study.figure)


def drawn(found: StudyRuns):
    with figure_style():
        figure = study_figure(found)
        assert figure is not None
        figure.draw_without_rendering()
    return figure


def texts(figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))]


def test_points_have_the_newest_run_of_each_seed_and_the_reported_number():
    points = points_of(findings(QUEUE, 64.0, 66.0))
    assert [point.x for point in points] == [320, 384, 416, 448, 512]
    assert [point.reported for point in points] == REPORTED
    assert [point.values for point in points] == [(64.0 + k, 66.0 + k) for k in range(5)]
    # Mean and sample deviation of 64 and 66 by hand: 65 and √(((−1)² + 1²) / 1).
    assert points[0].measured == (65.0, pytest.approx(2**0.5))
    study = load_study(QUEUE)
    first = cells(study)[0].hash
    later = {"finished": datetime(2026, 2, 1, tzinfo=UTC)}
    runs = [result(first, score=65.0, **later), result(first, score=10.0), result("0" * 16, score=99.0)]
    points = points_of(study_runs(study, FinishedRuns(runs)))
    assert points[0].values == (65.0,)
    assert all(point.values == () for point in points[1:])


def test_columns_are_lines_and_each_has_its_own_score():
    runs = findings("studies/focal_infonce_margin", 70.0, scores={"stsb": {"spearman": 1}, "sickr": {"spearman": 2}})
    found = {(point.line, point.x): (point.values[0], point.reported) for point in points_of(runs)}
    assert len(found) == 16
    assert found["BERT-base STS-B", 0.1] == (1, 77.23)
    assert found["RoBERTa-base SICK-R", 0.4] == (2, 64.21)


def test_one_row_is_one_line_a_missing_setting_a_level_and_a_second_setting_several_lines():
    points = points_of(findings("studies/mini/mocose_fgsm_epsilon", 60.0))
    assert [(point.x, point.label, point.reported) for point in points] == [
        (1e-9, "1e-9", 75.61),
        (5e-9, "5e-9", 76.64),
        (1e-8, "1e-8", 75.39),
        (5e-8, "5e-8", 76.62),
        (None, "No", 76.26),
    ]
    assert {point.line for point in points} == {""}
    points = points_of(findings("studies/mini/mocose_queue", 60.0))
    assert list(dict.fromkeys(point.line for point in points)) == [
        f"queue length {length}" for length in (128, 256, 512, 1024, 4096)
    ]
    assert (points[-2].x, points[-2].reported) == (2048, 38.74)


def test_a_measure_places_each_cell_and_nothing_to_place_is_no_point():
    study = load_study("studies/mini/mocose_fig12")
    made = cells(study)
    measured = [{"queue/traceable_distance": float(place)} for place in range(len(made))]
    found = study_runs(study, FinishedRuns([result(c.hash, measures=m) for c, m in zip(made, measured, strict=True)]))
    assert [point.x for point in points_of(found)] == [float(place) for place in range(8)]
    assert {point.line for point in points_of(found)} == {"batch size 32", "batch size 64"}
    assert any(text.startswith("MoCoSE, Figure 12") for text in texts(drawn(found)))
    without = findings("studies/mini/mocose_fig12", 60.0)
    assert (points_of(without), study_figure(without)) == ([], None)
    assert [point.values for point in points_of(findings(QUEUE, float("nan")))] == [()] * 5


def test_distant_scores_get_two_panels_of_equal_span():
    # Ours 10 to 14, the paper's 78.13 to 80.27: no axis shows both.
    apart = drawn(findings(QUEUE, 10.0))
    spans = [high - low for low, high in (axes.get_ylim() for axes in apart.axes)]
    assert spans == [pytest.approx(spans[1]), spans[1]]
    near = drawn(findings(QUEUE, 77.0))
    assert len(near.axes) == 1
    for figure in (apart, near):
        assert {"this study", "IFCL, Table 5"} <= set(texts(figure))
    named = drawn(findings("studies/mini/conisi_ablation", 10.0))
    assert len(named.axes) == 2
    assert "w/o fine-grained\nclassification loss" in texts(named)
    assert len(drawn(findings("studies/mini/conisi_ablation", 75.0)).axes) == 1
    assert fit_together([(0, 2), (2, 4)])
    assert not fit_together([(0, 2), (3, 5)])
    low, high = equal_spans([(0, 2), (10, 11)])
    assert (low, high) == (pytest.approx((1 - 1.24, 1 + 1.24)), pytest.approx((10.5 - 1.24, 10.5 + 1.24)))


def test_curves_tell_when_each_seed_was_best():
    study = load_study("studies/mini/ifcl_fig4c")
    made = cells(study)
    rising, falling = {5: 61.0, 10: 62.0, 15: 62.0}, {5: 64.0, 10: 63.0, 20: 70.0}
    runs = [
        result(
            made[0].hash,
            seed,
            curve=curve,
            metric_for_best_model="dev.spearman",
            selected_step=10,
            untrained={"dev": {"spearman": 60.5}},
        )
        for seed, curve in enumerate((rising, falling))
    ]
    other = result(made[1].hash, curve=rising, metric_for_best_model="other.spearman")
    found = study_runs(study, FinishedRuns([*runs, other]))
    (curve,) = study_curves(found, study.figure)
    assert curve.steps == (5, 10)
    # Seed 0 is best at step 10 (62), seed 1 at step 5 (64): means 63 and 7.5, deviations √2 and 5/√2.
    assert curve.best == "best 63.00 ± 1.41 at step 8 ± 4"
    shown = texts(drawn(found))
    assert "untrained: 60.50" in shown
    assert "1 to 2 seeds, mean ± standard deviation" in " ".join(shown)
    assert "2 of 3 settings have finished runs" in " ".join(shown)


def test_the_figure_is_the_same_every_time_and_nothing_to_draw_is_none():
    found = findings(QUEUE, 64.0, 65.0)
    assert as_svg(lambda: study_figure(found)) == as_svg(lambda: study_figure(found)) != b""
    study, plain = load_study(QUEUE), load_study("studies/mini/focal_infonce_alignment")
    lacking = [result(cells(study)[0].hash, scores={})]
    for of, runs in ((study, []), (plain, [result(cells(plain)[0].hash)]), (study, lacking)):
        made = study_runs(of, FinishedRuns(runs))
        assert as_svg(lambda made=made: study_figure(made)) == b""


@pytest.mark.parametrize("name", ["mocose_fig8", "mocose_fig45_collapse", "mocose_queue", "ifcl_ablation"])
def test_every_kind_of_figure_fits_its_page(name):
    curve = {20: 60.0, 40: 59.0}
    figure = drawn(findings(f"studies/mini/{name}", 60.0, 61.0, curve=curve, metric_for_best_model="dev.spearman"))
    inside = figure.get_tightbbox()
    assert inside.x0 >= -0.02
    assert inside.x1 <= figure.get_figwidth() + 0.02

"""Which scores the cells of a study are about."""

from __future__ import annotations

import pytest

from cse_cli.recipe.cells import cells, headings, values
from cse_cli.recipe.study import load_study
from tests.cse_cli.analysis.leaderboard_runs import result


def test_a_printed_column_that_is_no_score_stays_empty():
    """ConIsI's Table 5 prints two columns of differences beside the average."""
    study = load_study("studies/mini/conisi_ablation")
    known = cells(study)
    scored = {"test": {"spearman": 53.0}}
    runs = {known[0].hash: [result(seed, scores=scored, metric_for_best_model="dev.spearman") for seed in (0, 1)]}
    found = values(study, known, runs)
    assert headings(study, found) == ["Avg"]
    assert found[known[0].row]["Avg"] == pytest.approx([53.0, 53.0])
    assert found[known[1].row]["Avg"] == []

"""Where seeds fall in a published distribution, and when nothing can be said."""

from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.analysis.reproduced import compare_with_reproductions, position
from cse_cli.core.results import STS_TASKS, Result
from cse_cli.jobs.view import print_results
from cse_cli.recipe.load import load
from registry import papers
from registry.papers import Reproduction
from tests.cse_cli.analysis.leaderboard_runs import result

MEANS = dict(zip(STS_TASKS, (67.64, 80.42, 72.68, 80.25, 78.12, 76.28, 70.35), strict=True))
"""The published mean of each task over the 50 seeds; their average is 75.11."""


def known(values: tuple[float, ...] = (), **changes: object) -> Reproduction:
    plain = {"recipe": "r", "paper": "R", "source": "s", "low": 1.0, "high": 20.0, "mean": 10.5, "n": 20}
    return Reproduction(**{**plain, "values": values, **changes})


def run(seed: int, gain: float = 0.0, **changes: object) -> Result:
    scores = {task: {"spearman": value + gain} for task, value in MEANS.items()}
    plain = {"recipe": "simcse_en", "recipe_hash": load("simcse_en").recipe.hash(), "scores": scores, "paper": None}
    return result(seed, **{**plain, **changes})


TWENTY = known(tuple(float(value) for value in range(1, 21)))
THREE = known((1.0, 2.0, 3.0), low=1.0, high=3.0, mean=2.0, n=3)


@pytest.mark.parametrize(
    ("value", "distribution", "words"),
    [
        (5.5, TWENTY, "25th percentile"),  # 5 of 20 below
        (5.0, TWENTY, "22nd percentile"),  # 4 below and one equal: 4.5 / 20 = 22.5 %
        (10.6, TWENTY, "50th percentile"),
        (12.3, TWENTY, "60th percentile"),
        (1.0, TWENTY, "2nd percentile"),  # the lowest itself: 0.5 / 20
        (20.004, TWENTY, "98th percentile"),  # printed with two decimals, so it is the highest
        (0.99, TWENTY, "below all 20"),
        (20.01, TWENTY, "above all 20"),
        (0.9, known(), "below all 20"),
        (1.0, known(), "within their range"),  # without values, only the range is known
        (20.5, known(), "above all 20"),
        (2.5, THREE, "above 2 of 3"),
    ],
)
def test_the_position_of_a_score(value, distribution, words):
    assert position(value, distribution) == words


def test_each_seed_of_the_unchanged_recipe_is_placed():
    values = papers.distribution("simcse_en").values
    below = sum(value < 75.41 for value in values)
    assert compare_with_reproductions([run(3, 0.3), run(0)]) == [
        "50 independent runs of SimCSE, unsupervised, BERT base: avg 73.16 to 76.70, mean 75.11 ± 0.84 "
        "(hppRC/simple-simcse)",
        "seed 0: avg 75.11, 50th percentile; every task within its range",
        f"seed 3: avg 75.41, {2 * below}th percentile; every task within its range",
    ]


def test_tasks_outside_their_range_are_named():
    scores = {**{task: {"spearman": value} for task, value in MEANS.items()}, "sickr": {"spearman": 72.004}}
    (_, line) = compare_with_reproductions([run(1, scores=scores)])
    assert line == "seed 1: avg 75.34, 58th percentile; sickr 72.00, above all 50"  # 29 of 50 are lower


def test_a_recipe_that_lacks_a_task_has_no_average():
    scores = {"stsb": {"spearman": 73.0}}
    assert compare_with_reproductions([run(1, scores=scores)])[1:] == ["seed 1: stsb 73.00, below all 50"]
    assert compare_with_reproductions([run(1, scores={"other": {"spearman": 73.0}})]) == []


def test_notes_say_how_their_runs_differ():
    assert "STS-B dev looked at every 250 steps" in compare_with_reproductions([run(0)], notes=True)[0]


def test_changed_settings_say_nothing():
    changed = load("simcse_en", ["train.batch_size=32"]).recipe.hash()
    assert compare_with_reproductions([run(0, recipe_hash=changed)]) == []
    assert compare_with_reproductions([run(0, recipe="mini/simcse_en")]) == []


def test_a_file_of_the_same_name_is_not_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mine = tmp_path / "recipes" / "simcse_en.toml"
    mine.parent.mkdir()
    mine.write_text('extends = "simcse_en"\n[train]\nbatch_size = 32\n')
    shipped = run(1)
    monkeypatch.chdir(tmp_path)
    assert compare_with_reproductions([run(0, recipe_hash=load("simcse_en").recipe.hash())]) == []
    assert len(compare_with_reproductions([shipped])) == 2


def test_a_single_run_is_no_distribution():
    assert papers.distribution("bert_avg_en_block").n == 1
    own = load("bert_avg_en_block").recipe.hash()
    assert compare_with_reproductions([run(0, recipe="bert_avg_en_block", recipe_hash=own)]) == []


def test_it_stands_below_the_table(capsys):
    made = [run(seed) for seed in range(2)]
    print_results(made, {made[0].recipe_hash: dict.fromkeys(STS_TASKS, "spearman")})
    lines = capsys.readouterr().out.rstrip().split("\n")
    assert [line.split(":")[0] for line in lines[-3:]] == [
        "50 independent runs of SimCSE, unsupervised, BERT base", "seed 0", "seed 1"
    ]  # fmt: skip

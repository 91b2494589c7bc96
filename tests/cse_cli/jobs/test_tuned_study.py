"""Studies whose rows are tuned: the trials, what they choose, and the fresh seeds that follow."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from cse_cli.core.results import Result
from cse_cli.recipe.cells import cells
from cse_cli.recipe.study import load_study
from cse_cli.recipe.trials import choose, trials, tuned
from cse_cli.runs.index import all_runs
from cse_cli.runs.plans import plan_of_run
from tests.cse_cli.recipe.tiny_study import runs
from tests.support.command import refused
from tests.support.shrunken import Small, recipe

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_pairs", "undrawn")]

STUDY = """[study]
title = "Tuned"
recipe = "small.toml"
seeds = [1, 2]
set = ["evaluators.more={ name = \\"sts\\", file = \\"pairs.tsv\\" }"]
[study.tune]
"train.learning_rate" = [1e-5, 1e-2]
[[study.rows]]
row = "tuned"
tune = { "losses.info_nce.temperature" = [0.05, 0.5] }
[[study.rows]]
row = "as it is"
"""


@pytest.fixture
def folder(folder: Path, parts: Small) -> Path:
    recipe(folder, parts)
    (folder / "pairs.tsv").write_text(
        "score\tsentence1\tsentence2\n" + "".join(f"{n}\ta {n}\tb {n}\n" for n in range(9))
    )
    (folder / "tuned.toml").write_text(STUDY)
    return folder


def test_trials_are_the_product_and_only_select(folder):
    study = load_study("tuned.toml")
    tried = trials(study)
    assert [trial.cell.row for trial in tried] == [
        f"tuned · train.learning_rate={rate}, losses.info_nce.temperature={temperature}"
        for rate in ("1e-05", "0.01")
        for temperature in ("0.05", "0.5")
    ]
    for trial in tried:
        assert trial.cell.resolved is not None
        assert list(trial.cell.resolved.evaluators) == ["dev"]
        assert trial.cell.load(0).recipe.hash() == trial.cell.hash
    row, plain = cells(study)
    assert "more" in row.load(1).recipe.evaluators
    assert row.hash == plain.hash  # cells() are not tuned
    assert not {trial.cell.hash for trial in tried} & {row.hash}


def test_a_value_of_the_row_replaces_a_shared_one(folder):
    text = STUDY.replace(
        'tune = { "losses', 'set = ["train.learning_rate=3e-3"]\ntune = { "train.learning_rate" = [2e-3], "losses'
    )
    (folder / "tuned.toml").write_text(text)
    study = load_study("tuned.toml")
    assert [trial.cell.load(0).recipe.train.learning_rate for trial in trials(study)] == [2e-3, 2e-3]


def test_trials_then_fresh_seeds(folder, run):
    code, out, err = run("tuned.toml", "--json")
    assert code == 0
    assert "4 trials × 1 seed = 4 runs: 0 finished, 4 to run" in err
    (document,) = json.loads(out)["studies"]
    results = {run.about.study: run.result for run in all_runs()}
    by_trial = {}
    for trial in trials(load_study("tuned.toml")):
        result = results[f"tuned/{trial.cell.row}/"]
        assert result is not None
        assert list(result.scores) == ["dev"]
        by_trial[trial.settings] = result.scores["dev"]["spearman"]
    best = max(by_trial, key=lambda settings: by_trial[settings])
    (choice,) = document["trials"]["choices"]
    assert choice["settings"] == list(map(str, best))
    assert (choice["score"], choice["finished"], choice["trials"]) == (by_trial[best], 4, 4)
    first, second = document["cells"]
    assert (first["finished"], second["finished"]) == ([1, 2], [1, 2])
    assert first["set"][-2:] == list(map(str, best))
    plans = {run.about.seed: plan_of_run(run.about) for run in all_runs() if run.about.study == "tuned/tuned/"}
    assert {seed: plan and plan.seeds for seed, plan in plans.items()} == {1: (1, 2), 2: (1, 2)}
    before = runs()
    code, out, err = run("tuned.toml")
    assert (code, runs()) == (0, before)
    assert str(best[0]) in out
    assert "4 runs: 4 finished, 0 to run" in err


def result_of(run: Result, seed: int, score: float, later: int = 0) -> Result:
    changes = {"seed": seed, "scores": {"dev": {"spearman": score}}, "finished": run.finished + timedelta(hours=later)}
    return run.model_copy(update=changes)


@pytest.mark.exhaustive
def test_the_best_mean_over_seeds_is_chosen_and_rows_without_trials_are_left_out(folder, run):
    (folder / "tuned.toml").write_text(STUDY.replace("seeds = [1, 2]", "seeds = [1, 2]\ntune_seeds = [0, 5]"))
    run("small.toml", "--seed", "0")
    (one,) = [found.result for found in all_runs() if found.result is not None]
    study = load_study("tuned.toml")
    tried = trials(study)
    scores = [
        [result_of(one, 0, 50.0), result_of(one, 5, 52.0)],
        [result_of(one, 0, 99.0)],  # one seed is missing
        # The newest run of a seed counts, whatever their order, and a seed of no trial does not.
        [result_of(one, 0, 51.0, 1), result_of(one, 0, 0.0), result_of(one, 5, 52.0), result_of(one, 9, 0.0)],
        [],
    ]
    found = {t.cell.hash: of for t, of in zip(tried, scores, strict=True)}
    (choice,) = choose(study, tried, found)
    assert (choice.settings, choice.score, choice.finished) == (tried[2].settings, 51.5, 2)
    assert [row.row for _, row in tuned(study, [choice]).placed_rows()] == ["tuned", "as it is"]
    assert cells(tuned(study, [choice]))[0].overrides[-2:] == tried[2].settings
    old, new = ({"scored_on": {"dev": {"dev.tsv/dev": digest}}} for digest in "on")
    of_old = [result_of(one, seed, 99.0).model_copy(update=old) for seed in (0, 5)]
    of_new = [result_of(one, seed, 50.0, 1).model_copy(update=new) for seed in (0, 5)]
    repaired = choose(study, tried, {tried[0].cell.hash: of_old, tried[1].cell.hash: of_new})
    assert [(choice.settings, choice.score) for choice in repaired] == [(tried[1].settings, 50.0)]
    (nothing,) = choose(study, tried, {})
    assert [row.row for _, row in tuned(study, [nothing]).placed_rows()] == ["as it is"]
    assert len(list(tuned(study, [nothing], undecided=True).placed_rows())) == 2


def test_omitted_rows_keep_the_places_of_the_others(folder):
    text = STUDY.replace("seeds = [1, 2]", 'seeds = [1, 2]\nomit = ["tuned"]')
    (folder / "tuned.toml").write_text(text)
    assert ([cell.row for cell in cells(load_study("tuned.toml"))], trials(load_study("tuned.toml"))) == (
        ["as it is"],
        [],
    )
    (folder / "tuned.toml").write_text(text + 'set = ["train.steps=-1"]\n')
    assert "tuned.toml:14:8" in str(refused("run", "tuned.toml"))


def test_only_some_rows(folder, run):
    code, out, _ = run("tuned.toml", "--row", "as it is", "--json")
    (document,) = json.loads(out)["studies"]
    assert (code, [cell["row"] for cell in document["cells"]], document["trials"]) == (0, ["as it is"], None)
    assert "no row 'tunned'. Did you mean 'tuned'?" in str(refused("run", "tuned.toml", "--row", "tunned"))
    assert refused("run", "small.toml", "--row", "tuned").code == "jobs.row_of_recipe"
    assert refused("run", "tuned.toml", "--seeds", "2").code == "study.seed_not_fresh"


def test_a_dry_run_counts_the_trials(folder, run):
    code, out, _ = run("tuned.toml", "--dry-run")
    assert code == 0
    assert "4 trials × 1 seed = 4 runs: 0 finished, 4 to run" in out
    assert "0 of 4" in out
    assert runs() == []

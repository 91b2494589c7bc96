"""`cse run STUDY`: which runs it does, which it leaves alone, and what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cse_cli.core.results import Result
from cse_cli.jobs.request import RunRequest
from cse_cli.jobs.study import StudyOutcome, plan_study, print_outcomes
from cse_cli.recipe.load import load
from cse_cli.training.train_step import TrainStep
from tests.cse_cli.recipe.tiny_study import grid, runs
from tests.support.command import refused
from tests.support.shrunken import Small, recipe

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_pairs", "undrawn")]


@pytest.fixture
def folder(folder: Path, parts: Small) -> Path:
    recipe(folder, parts)
    return folder


def studies(out: str) -> list[dict[str, Any]]:
    document = json.loads(out)
    assert document["schema_version"] == 1
    found: list[dict[str, Any]] = document["studies"]
    return found


def test_cells_and_seeds(folder, run):
    code, out, err = run(grid(folder, "[0.05, 0.1]", seeds="[3, 5]"), "--json")
    (one,) = studies(out)
    assert code == 0
    assert "2 cells × 2 seeds = 4 runs: 0 finished, 4 to run" in err
    _, table, _ = run("tiny.toml")
    lines = [line.split() for line in table.splitlines() if line.startswith(("losses", "word overlap"))]
    means = [f"{cell['scores']['dev.spearman']['mean']:.2f}" for cell in one["cells"]]
    overlap = f"{one['results'][0]['word_overlap']['dev']['spearman']:.2f}"
    assert [line[-2:] for line in lines] == [["2", means[0]], ["2", means[1]], ["overlap", overlap]]
    assert [(cell["row"], cell["finished"]) for cell in one["cells"]] == [
        ("losses.info_nce.temperature=0.05", [3, 5]),
        ("losses.info_nce.temperature=0.1", [3, 5]),
    ]
    hashes = [load("small.toml", [f"losses.info_nce.temperature={t}"]).recipe.hash() for t in (0.05, 0.1)]
    assert [cell["hash"] for cell in one["cells"]] == hashes
    rows = [f"tiny/losses.info_nce.temperature={t}/" for t in (0.05, 0.1)]
    assert runs() == [
        (recipe_hash, seed, "FINISHED", row) for seed in (3, 5) for recipe_hash, row in zip(hashes, rows, strict=True)
    ]
    results = [Result.model_validate(result) for result in one["results"]]
    scores = [r.scores["dev"]["spearman"] for r in results if r.recipe_hash == hashes[0]]
    about = one["cells"][0]["scores"]["dev.spearman"]
    assert (about["n"], about["mean"]) == (2, pytest.approx(sum(scores) / 2))
    assert about["std"] == pytest.approx(abs(scores[0] - scores[1]) / 2**0.5)


@pytest.mark.exhaustive
def test_cells_of_one_experiment_run_once(folder, run):
    code, out, err = run(grid(folder, "[0.1, 0.05]", more='set = ["losses.info_nce.weight=1.0"]'), "--json")
    assert code == 0
    (folder / "twice.toml").write_text(
        '[study]\ntitle = "Twice"\nrecipe = "small.toml"\nseeds = 1\n'
        '[[study.rows]]\nrow = "as it is"\n'
        '[[study.rows]]\nrow = "said"\nset = ["losses.info_nce.temperature=0.05"]\n'
        '[[study.rows]]\nrow = "other"\nset = ["losses.info_nce.temperature=0.3"]\n'
    )
    code, out, err = run("twice.toml", "--json")
    assert code == 0
    assert "3 cells (2 different) × 1 seed = 2 runs: 1 finished, 1 to run" in err
    (one,) = studies(out)
    assert [cell["scores"]["dev.spearman"]["n"] for cell in one["cells"]] == [1, 1, 1]
    assert one["cells"][0]["scores"] == one["cells"][1]["scores"]
    assert runs()[-1][3] == "twice/other/"


def test_overrides_apply_to_every_cell(folder, run):
    settings = ("--set", "train.steps=2", "--set", "train.warmup_steps=2")
    code, out, _ = run(grid(folder, "[0.05]"), *settings, "--seed", "4", "--json")
    (one,) = studies(out)
    assert (code, one["seeds"]) == (0, [4])
    assert [result["steps"] for result in one["results"]] == [2]
    assert one["cells"][0]["set"] == ["losses.info_nce.temperature=0.05", "train.steps=2", "train.warmup_steps=2"]


def test_dry_run_builds_and_writes_nothing(folder, run, home):
    code, out, err = run(grid(folder, seeds="2"), "--dry-run")
    assert (code, err) == (0, "")
    assert "3 cells × 2 seeds = 6 runs: 0 finished, 6 to run" in out
    assert "--set losses.info_nce.temperature=0.05" in out
    assert not (home / "runs").exists()
    _, out, _ = run("tiny.toml", "--dry-run", "--json")
    assert [cell["finished"] for cell in studies(out)[0]["cells"]] == [[], [], []]
    assert studies(out)[0]["place"] == "one run after the other"
    _, out, _ = run("tiny.toml", "--dry-run", "--workers", "2")
    assert "2 runs in parallel: cpu, cpu" in out


@pytest.mark.exhaustive
def test_a_cell_that_fails_does_not_stop_the_others(folder, run):
    grid(folder)
    (folder / "fails.toml").write_text(
        '[study]\ntitle = "Fails"\nrecipe = "small.toml"\nseeds = 1\n'
        '[[study.rows]]\nrow = "no number"\nset = ["train.learning_rate=1e30", "train.clip_norm=0"]\n'
        '[[study.rows]]\nrow = "good"\n'
    )
    code, _, err = run("fails.toml")
    assert code == 1
    assert [run[2] for run in runs()] == ["FAILED", "FINISHED"]
    assert "2 runs: 1 finished, 1 failed, 0 missing; to retry, run the same command again" in err
    assert "failed: no number · seed 0: " in err
    assert "Traceback" not in err
    code, out, err = run("fails.toml", "--json")
    assert code == 1
    assert "2 runs: 1 finished, 1 to run" in err
    ((failure,),) = (one["failures"] for one in studies(out))
    assert (failure["row"], failure["seed"], failure["exit_code"]) == ("no number", 0, 1)
    assert "loss" in failure["message"]


@pytest.mark.exhaustive
def test_a_run_that_cannot_go_on_starts_anew(folder, run, home, monkeypatch):
    take = TrainStep.take
    grid(folder, "[0.05]")
    monkeypatch.setattr(TrainStep, "take", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    run("tiny.toml")
    (checkpoint,) = home.glob("runs/*/checkpoint.pt")
    checkpoint.write_bytes(b"torn")
    monkeypatch.setattr(TrainStep, "take", take)
    code, _, err = run("tiny.toml")
    assert code == 0
    assert "starts again from its first step: no usable checkpoint" in err
    assert [one[2] for one in runs()] == ["FINISHED"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["tiny.toml", "small.toml"], "jobs.recipes_and_studies"),
        (["tiny.toml", "--resume", "3f"], "jobs.option_of_single_runs"),
        (["tiny.toml", "--processes", "2"], "jobs.option_of_single_runs"),
        (["tiny.toml", "--seeds", "0"], "jobs.invalid_seeds"),
        (["tiny.toml", "--set", "train.stesp=1"], "recipe.unknown_key"),
        (["studies/ifcl_queue_length", "--set", "data.datset=1"], "recipe.unknown_key"),
        (["studies/ifcl_queue_lenght"], "recipe.unknown_recipe"),
    ],
)
def test_refused_options(arguments, code, folder, home):
    grid(folder)
    error = refused("run", *arguments)
    assert (error.code, error.exit_code) == (code, 2)
    assert not (home / "runs").exists()


@pytest.mark.parametrize(
    ("place", "command"),
    [("recipes/mine.toml", "leaderboard --table ifcl/queue_length"), ("mine.toml", "report {path}")],
)
def test_a_study_without_a_name_is_compared_by_its_path(place, command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text('[study]\nextends = "studies/mini/ifcl_queue_length"\ntitle = "Mine"\n', encoding="utf-8")
    plan = plan_study(str(path), RunRequest())
    print_outcomes([StudyOutcome(plan, plan.results(), 0, {})])
    assert f"→ compare with the paper: cse {command.format(path=path)}\n" in capsys.readouterr().err

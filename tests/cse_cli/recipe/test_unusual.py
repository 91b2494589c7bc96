"""Warnings about what a recipe may say and hardly means."""

from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import load
from cse_cli.recipe.unusual import unusual
from tests.cse_cli.jobs.running import cse


def test_a_negative_weight_and_a_far_value_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    far = ["--set", "losses.info_nce.temperature=1e9", "--set", "losses.info_nce.weight=-1"]
    code, out, err = cse("check", "simcse_en", *far, capsys=capsys)
    assert (code, out) == (0, "1 recipe checked: all valid\n")
    lines = [line.partition("simcse_en.toml: ")[2] for line in err.splitlines()]
    assert lines == [
        "losses.info_nce.weight = -1 is negative: training makes this loss larger",
        "losses.info_nce.temperature = 1e+09 is far from what `cse tune` searches, 0.01 to 0.5",
    ]


def test_a_rate_that_trains_nothing_is_told_of_recipes_and_studies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = "train.learning_rate = 1e+09 is far above any that trains, 0.1 at most"
    assert told in cse("check", "mini/simcse_en", "--set", "train.learning_rate=1e9", capsys=capsys)[2]
    study = tmp_path / "study.toml"
    study.write_text('[study]\ntitle = "x"\nrecipe = "mini/simcse_en"\n[study.grid]\n"train.learning_rate" = [1e9]\n')
    code, _, err = cse("check", str(study), capsys=capsys)
    assert (code, told in err) == (0, True)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("train.learning_rate=1e-12", "train.learning_rate = 1e-12 is far below any that trains, 1e-09 at least"),
        ("train.batch_size=64000", "train.batch_size = 64000 is far above any that trains, 16384 at most"),
        ("train.clip_norm=1e-9", "train.clip_norm = 1e-09 is far below any that trains, 1e-06 at least"),
        ("train.warmup_steps=999", "train.warmup_steps = 999: in 60 steps the rate never comes to its peak"),
        ("losses.info_nce.weight=1e9", "losses.info_nce.weight = 1e+09 is far from any in use, 0.0001 to 10"),
        (
            "tune.t={ paths = ['losses.info_nce.temperature'], choices = [0.05, 1e9] }",
            "losses.info_nce.temperature = 1e+09 is far from what `cse tune` searches, 0.01 to 0.5",
        ),
        ("losses.more={ name = 'info_nce' }", "losses.more is the same as losses.info_nce"),
        ("evaluators.more={ name = 'sts', dataset = 'stsb' }", "evaluators.more is the same as evaluators.stsb"),
        ("encoders.online.freeze=['embeddings', 'embeddings']", "encoders.online.freeze names 'embeddings' twice"),
        ("data.dataset=['wiki_en', 'wiki_en']", "data.dataset names 'wiki_en' twice"),
        (
            "views.positive.augment=[{ name = 'switch_case' }, { name = 'switch_case' }]",
            "views.positive.augment has 'switch_case' twice, with the same parameters",
        ),
        (
            "evaluators.stsb.score_column=gold",
            "evaluators.stsb.score_column is of a file, and dataset 'stsb' is read: it has no effect",
        ),
    ],
)
def test_what_has_no_effect_or_stands_twice_or_is_far_from_any_use_is_told(setting: str, told: str) -> None:
    assert list(unusual(load("mini/simcse_en", [setting]).recipe)) == [told]


def test_a_misspelt_task_is_told() -> None:
    moved = ["evaluators.tss14={ name = 'sts', dataset = 'sts14' }"]
    (told,) = unusual(load("simcse_en", moved, ["evaluators.sts14"]).recipe)
    assert told == "evaluators.tss14 scores dataset 'sts14', and tables look for its scores under that name"


def test_sgd_may_have_a_rate_of_1() -> None:
    settings = ["train.learning_rate=1.0", "train.optimizer=sgd"]
    assert list(unusual(load("mini/simcse_en", settings).recipe)) == []
    (told,) = unusual(load("mini/simcse_en", [*settings, "train.learning_rate=100.0"]).recipe)
    assert told.endswith("100 is far above any that trains, 10 at most")


def test_a_study_of_very_many_runs_or_equal_rows_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = tmp_path / "study.toml"
    rows = "".join(
        f"[[study.rows]]\nrow = '{row}'\nset = ['train.steps={steps}']\n" for row, steps in (("a", 1), ("b", 1))
    )
    study.write_text(f'[study]\ntitle = "x"\nrecipe = "mini/simcse_en"\nseeds = 3000\n{rows}')
    _, _, err = cse("check", str(study), capsys=capsys)
    assert "2 cells and 3,000 seeds make 6,000 runs" in err
    assert "rows 'a' and 'b' have the same settings" in err


def test_settings_are_checked_with_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = cse("check", "simcse_en", "--set", "losses.info_nce.temperatur=0.1", capsys=capsys)
    assert code == 2
    assert "Did you mean 'temperature'" in out


@pytest.mark.exhaustive
def test_no_shipped_recipe_is_unusual() -> None:
    assert [line for name in all_recipes() for line in unusual(load(name).recipe)] == []

"""Warnings about valid but implausible recipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.lint import lint
from cse_cli.recipe.load import load
from tests.support.command import cse


def test_a_negative_weight_and_a_far_value(capsys: pytest.CaptureFixture[str]) -> None:
    far = ["--set", "losses.info_nce.temperature=1e9", "--set", "losses.info_nce.weight=-1"]
    code, out, err = cse("check", "simcse_en", *far, capsys=capsys)
    assert (code, out) == (0, "1 recipe checked: all valid\n")
    lines = [line.partition("simcse_en.toml: ")[2] for line in err.splitlines()]
    assert lines == [
        "losses.info_nce.weight = -1 is negative: training increases this loss",
        "losses.info_nce.temperature = 1e+09 is far from the range of `cse tune`, 0.01 to 0.5",
    ]


def test_a_rate_is_checked_in_recipes_and_studies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = "train.learning_rate = 1e+09 is implausibly high, above 0.1"
    assert told in cse("check", "mini/simcse_en", "--set", "train.learning_rate=1e9", capsys=capsys)[2]
    study = tmp_path / "study.toml"
    start = '[study]\ntitle = "x"\nseeds = [1, 2]\nrecipe = "mini/simcse_en"\n'
    for table in (
        '[study.grid]\n"train.learning_rate" = [1e9]\n',
        'tune_seeds = [0]\n[[study.rows]]\nrow = "a"\ntune = { "train.learning_rate" = [1e-4, 1e9] }\n',
    ):
        study.write_text(start + table)
        code, _, err = cse("check", str(study), capsys=capsys)
        assert (code, told in err) == (0, True)


@pytest.mark.parametrize(
    ("setting", "warning"),
    [
        ("train.learning_rate=1e-12", "train.learning_rate = 1e-12 is implausibly low, below 1e-09"),
        ("train.batch_size=64000", "train.batch_size = 64000 is implausibly high, above 16384"),
        ("train.warmup_steps=999", "train.warmup_steps = 999 is not below train.steps = 60"),
        ("losses.info_nce.weight=1e9", "losses.info_nce.weight = 1e+09 is far from the usual 0.0001 to 10"),
        ("losses.more={ name = 'info_nce' }", "losses.more is the same as losses.info_nce"),
        ("evaluators.more={ name = 'sts', dataset = 'stsb_open' }", "evaluators.more is the same as evaluators.test"),
    ],
)
def test_implausible_and_repeated_parts(setting: str, warning: str) -> None:
    assert list(lint(load("mini/simcse_en", [setting]).recipe)) == [warning]


def test_a_misspelled_task() -> None:
    moved = ["evaluators.tss14={ name = 'sts', dataset = 'sts14' }"]
    (told,) = lint(load("simcse_en", moved, ["evaluators.sts14"]).recipe)
    assert told.startswith("evaluators.tss14 scores dataset 'sts14'")


def test_sgd_may_have_a_rate_of_1() -> None:
    settings = ["train.learning_rate=1.0", "train.optimizer=sgd"]
    assert list(lint(load("mini/simcse_en", settings).recipe)) == []
    (told,) = lint(load("mini/simcse_en", [*settings, "train.learning_rate=100.0"]).recipe)
    assert told == "train.learning_rate = 100 is implausibly high, above 10"


def test_a_study_with_many_runs_or_equal_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = tmp_path / "study.toml"
    rows = "".join(
        f"[[study.rows]]\nrow = '{row}'\nset = ['train.steps={steps}']\n" for row, steps in (("a", 1), ("b", 1))
    )
    study.write_text(f'[study]\ntitle = "x"\nrecipe = "mini/simcse_en"\nseeds = 3000\n{rows}')
    _, _, err = cse("check", str(study), capsys=capsys)
    assert "2 cells with 3,000 seeds are 6,000 runs" in err
    assert "rows 'a' and 'b' have the same settings" in err


@pytest.mark.exhaustive
def test_no_shipped_recipe_is_lint() -> None:
    assert [line for name in all_recipes() for line in lint(load(name).recipe)] == []

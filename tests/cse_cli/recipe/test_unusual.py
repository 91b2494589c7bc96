"""Warnings about what a recipe may say and hardly means."""

from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import load
from cse_cli.recipe.unusual import unusual
from tests.cse_cli.runs.running import cse


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
    told = "train.learning_rate = 1e+09 is far above any that trains, 10 at most"
    assert told in cse("check", "mini/simcse_en", "--set", "train.learning_rate=1e9", capsys=capsys)[2]
    study = tmp_path / "study.toml"
    study.write_text('[study]\ntitle = "x"\nrecipe = "mini/simcse_en"\n[study.grid]\n"train.learning_rate" = [1e9]\n')
    code, _, err = cse("check", str(study), capsys=capsys)
    assert (code, told in err) == (0, True)


def test_settings_are_checked_with_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = cse("check", "simcse_en", "--set", "losses.info_nce.temperatur=0.1", capsys=capsys)
    assert code == 2
    assert "Did you mean 'temperature'" in out


@pytest.mark.exhaustive
def test_no_shipped_recipe_is_unusual() -> None:
    assert [line for name in all_recipes() for line in unusual(load(name).recipe)] == []

"""Warnings about what a recipe may say and hardly means."""

from __future__ import annotations

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


def test_settings_are_checked_with_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = cse("check", "simcse_en", "--set", "losses.info_nce.temperatur=0.1", capsys=capsys)
    assert code == 2
    assert "Did you mean 'temperature'" in out


@pytest.mark.exhaustive
def test_no_shipped_recipe_is_unusual() -> None:
    assert [line for name in all_recipes() for line in unusual(load(name).recipe)] == []

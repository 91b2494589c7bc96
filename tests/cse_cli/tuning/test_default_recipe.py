"""Recipe of `cse tune --param X` without a recipe."""

from __future__ import annotations

from pathlib import Path

from cse_cli.tuning.resolve import default_recipe
from tests.support.records import recorded


def test_the_shipped_recipe_without_runs(home):
    recipe, reason = default_recipe()
    assert recipe == "quickstart"
    assert "no runs yet" in reason
    assert not home.exists()


def test_the_recipe_of_the_last_run_whose_file_exists(home, tmp_path):
    own = tmp_path / "mine.toml"
    own.touch()
    recorded(recipe="mine", source=str(own))
    last = recorded(recipe="mini/simcse_en", source=str(Path("recipes/mini/simcse_en.toml").absolute()))
    recorded(recipe="deleted", source=str(tmp_path / "deleted.toml"))
    recorded(recipe="", summary="tuning", search="search")
    (home / "runs" / "half").mkdir()
    assert default_recipe() == ("mini/simcse_en", f"the recipe of the last run, {last.about.short}")
    recorded(recipe="mine", source=str(own))
    assert default_recipe()[0] == str(own)  # no name means this file

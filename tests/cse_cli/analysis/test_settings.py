"""How a configuration is named: by what differs from its recipe's file."""

import json

import pytest

from cse_cli.analysis.runs import changed_settings, recipe_status
from cse_cli.core.results import STS_TASKS
from cse_cli.recipe.load import load
from tests.cse_cli.analysis.leaderboard_runs import result, tables


def ran(home, run_id, *overrides, unset=()):
    recipe = load("ifcl_en", list(overrides), list(unset)).recipe
    folder = home / "runs" / run_id
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"resolved": recipe.resolved()}), encoding="utf-8")
    return result(run_id=run_id, recipe_hash=recipe.hash(), scores={task: {"spearman": 70.0} for task in STS_TASKS})


def test_what_differs_is_told_and_seed_and_prose_are_not(home):
    one = ran(home, "a", "queue.length=320", "train.seed=7", "title=Other")
    assert changed_settings(one) == ("queue.length=320",)


def test_what_was_taken_out_is_told(home):
    assert changed_settings(ran(home, "a", unset=["losses.twins"]))[0].startswith("no losses.twins")


def test_a_long_difference_is_cut_with_its_length(home):
    changed = [f"train.{key}" for key in ("steps=3", "batch_size=8", "warmup_steps=2", "clip_norm=2.0")]
    told = changed_settings(ran(home, "a", *changed))
    assert told == ("train.batch_size=8", "train.clip_norm=2.0", "train.steps=3", "and 1 more")


def test_without_the_runs_folder_nothing_is_told(home):
    assert changed_settings(result(run_id="unknown")) == ()


def test_a_row_of_changed_settings_names_them(home):
    (block,) = tables([ran(home, "a", "queue.length=320")], recipe_status)
    (row,) = [row for row in block.rows if row.source == "ours"]
    assert row.settings == ("queue.length=320",)
    assert {score.marks for score in row.scores.values()} == {("single seed", "stale")}


@pytest.mark.parametrize("recipe", ["ifcl_en", "simcse_en"])
def test_what_the_file_says_today_has_no_settings(home, recipe):
    today = load(recipe).recipe
    (block,) = tables([result(recipe=recipe, recipe_hash=today.hash(), run_id="a")], recipe_status)
    assert [row.settings for row in block.rows if row.source == "ours"] == [()]

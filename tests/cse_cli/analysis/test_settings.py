"""How a row shows what differs from its recipe's file: variants of `--set`, and files that changed since."""

import pytest

from cse_cli.analysis.experiments import changed_settings, recipe_status, recipe_today
from cse_cli.analysis.leaderboard import LeaderboardQuery, read_finished_runs, score_tables
from cse_cli.core.identity import Identity
from cse_cli.recipe.load import load
from tests.cse_cli.analysis.leaderboard_runs import result
from tests.cse_cli.analysis.recorded import record

MINI = 'extends = "mini/simcse_en"\n[train]\nsteps = {}\n'


@pytest.fixture
def recipe(tmp_path):
    """Return a recipe of one's own, whose settings today are not remembered."""
    file = tmp_path / "own.toml"

    def write(steps):
        file.write_text(MINI.format(steps))
        recipe_today.cache_clear()
        return str(file)

    write(10)
    return write


def ours(**query):
    tables = score_tables(read_finished_runs(), LeaderboardQuery(**query))
    return [row for table in tables for row in table.rows if row.source == "measured"]


def ran(*overrides, unset=()):
    loaded = load("ifcl_en", list(overrides), list(unset))
    return result(identity=Identity(settings=loaded.recipe.hash())), loaded


def marks(row):
    return {mark for score in row.scores.values() for mark in score.marks}


@pytest.mark.parametrize(
    ("override", "today", "settings", "stale"),
    [
        ("train.batch_size=8", 10, "train.batch_size=8", False),
        ("losses.info_nce.name=nt_xent", 10, "losses.info_nce.name=nt_xent", False),
        ("train.steps=30", 20, "train.steps=30", False),  # explains the change of the same key
        ("train.batch_size=8", 20, "train.batch_size=8", True),
        (None, 20, "train.steps=10", True),
    ],
)
def test_a_run_is_a_variant_of_its_file_or_stale(recipe, override, today, settings, stale):
    record(recipe(10), 0, overrides=[override] if override else [])
    recipe(today)
    (row,) = ours()
    assert row.settings == (settings,)
    assert ("stale" in marks(row)) is stale


def test_a_variant_with_another_model_is_not_stale(recipe):
    overrides = ['encoders.online.model="bert-large-uncased"']
    record(recipe(10), 0, overrides=overrides, model="bert-large-uncased")
    (row,) = ours()
    assert row.settings == ("encoders.online.model=bert-large-uncased",)
    assert "stale" not in marks(row)


def test_a_file_that_cannot_be_read_is_not_another_experiment(recipe, tmp_path):
    """A typo, or a plug-in that is not loaded: the row says why its settings are not compared."""
    record(recipe(10), 0)
    (tmp_path / "own.toml").write_text('extends = "mini/simcse_en"\n[losses.no_such_loss]\n')
    recipe_today.cache_clear()
    (row,) = ours()
    (note,) = [note for note in row.notes if "cannot be read" in note]
    assert "own.toml:2" in note
    assert "no_such_loss" in note
    assert "stale" not in marks(row)


def test_many_settings_are_cut_with_their_number(recipe):
    changed = ["train.steps=3", "train.batch_size=8", "train.warmup_steps=2", "train.clip_norm=2.0"]
    record(recipe(10), 0, overrides=changed)
    (row,) = ours()
    assert len(row.settings) == 4
    assert row.settings[-1] == "and 1 more"


def test_a_row_of_a_study_has_its_name(recipe):
    changed = ["train.steps=3", "train.batch_size=8", "train.warmup_steps=2", "train.clip_norm=2.0"]
    record(recipe(10), 0, overrides=changed, about={"study": "studies/mine/SIF with care/"})
    record(recipe(10), 1, about={"study": "studies/mine/plain/"})  # the settings of the recipe's file
    assert sorted(row.settings for row in ours(recipes=[recipe(10)])) == [(), ("studies/mine/SIF with care",)]


def test_seed_and_prose_are_no_settings():
    run_id = record("ifcl_en", 0, overrides=["queue.length=320", "title=Other"])
    (one,) = [run for run in read_finished_runs().results if run.run_id == run_id]
    assert changed_settings(one) == ("queue.length=320",)


def test_what_was_taken_out_is_named():
    one, loaded = ran(unset=["losses.twins"])
    assert loaded.changes == ("no losses.twins",)
    assert recipe_status(one, loaded.changes) == "variant"


def test_without_a_recorded_recipe_nothing_is_named():
    assert changed_settings(result(run_id="unknown")) == ()

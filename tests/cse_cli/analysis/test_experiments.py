"""Rows by experiment, what is pooled, and what differs from the file of a recipe."""

import csv
import io
from datetime import UTC, datetime

import pytest

from cse_cli.analysis.experiments import FinishedRuns, group, read_finished_runs
from cse_cli.analysis.leaderboard import LeaderboardQuery, score_tables
from cse_cli.analysis.origins import changed_settings, recipe_status, recipe_today
from cse_cli.core.identity import Identity, Plan
from cse_cli.core.results import STS_TASKS, Versions
from cse_cli.recipe.load import load
from tests.cse_cli.analysis.leaderboard_runs import measured, mini, result, written
from tests.cse_cli.analysis.recorded import record

DATES = datetime(2026, 11, 20, 9, 30, tzinfo=UTC), datetime(2026, 11, 23, 9, 30, tzinfo=UTC)
TEXTS = {"text": "1f914d36" * 8}, {"text": "5cfa3ca1" * 8}
WEIGHTS = {"weights": {"encoders.bert": "aaaaaaaa" * 8}}, {"weights": {"encoders.bert": "bbbbbbbb" * 8}}
CODE = {"code": {"losses.info_nce": "a" * 64}}, {"code": {"losses.info_nce": "b" * 64}}
SETTINGS = "d" * 16


def run(seed, parts, finished=DATES[0], **changes):
    """Return a run that scores a test set of its own, whose identity has these parts besides its settings."""
    identity = Identity(settings=SETTINGS, **parts)
    scores = {"own": {"spearman": 60.0 + seed}}
    return mini(seed, scores=scores, untrained={}, identity=identity, finished=finished, **changes)


def pair(parts, **changes):
    return [run(seed, part, date, **changes) for part, date in zip(parts, DATES, strict=True) for seed in range(2)]


@pytest.mark.parametrize(
    ("parts", "tags", "difference"),
    [
        (TEXTS, ["text 1f914d36", "text 5cfa3ca1"], "text 1f914d36 / 5cfa3ca1"),
        (WEIGHTS, [f"weights of encoders.bert {letter * 8}" for letter in "ab"], "encoders.bert aaaaaaaa / bbbbbbbb"),
        (
            CODE,
            ["code of losses.info_nce of 2026-11-20 09:30", "code of losses.info_nce of 2026-11-23 09:30"],
            "code of losses.info_nce (2026-11-20 09:30 / 2026-11-23 09:30)",
        ),
    ],
)
def test_two_experiments_of_one_recipe_are_two_named_rows(parts, tags, difference):
    rows = measured(pair(parts))
    assert [row.seeds for row in rows] == [(0, 1), (0, 1)]
    assert sorted(tag for row in rows for tag in row.settings) == tags
    assert all(any(difference in note for note in row.notes) for row in rows)
    assert len({row.experiment for row in rows}) == 2


def test_the_same_experiment_is_one_row_with_a_note_on_versions_and_devices():
    versions = [Versions(cse="0", python="3.11", torch=torch, transformers="5") for torch in ("2.1", "2.2")]
    about = [
        {"versions": versions[s], "device": ("cpu", "cuda:0")[s], "fingerprints": {"training": str(s)}} for s in (0, 1)
    ]
    (row,) = measured([run(s, TEXTS[0], DATES[s], **about[s]) for s in (0, 1)])
    assert (row.seeds, row.settings) == ((0, 1), ())
    assert row.notes == ("not the same for all seeds: torch 2.1 / 2.2; device cpu / cuda:0",)


@pytest.mark.parametrize(
    ("processors", "notes"),
    [
        (("Xeon, AVX512", "EPYC, AVX2"), ("not the same for all seeds: processor Xeon, AVX512 / EPYC, AVX2",)),
        (("", "Xeon, AVX512"), ()),  # a run of 0.1 recorded none
    ],
)
def test_seeds_on_several_processors_have_a_note(processors, notes):
    (row,) = measured([run(s, TEXTS[0], DATES[s], processor=processors[s]) for s in (0, 1)])
    assert row.notes == notes


@pytest.mark.parametrize("form", ["table", "latex", "json"])
def test_pooled_settings_are_one_row_that_is_named_so_and_has_no_plan(form):
    plan = Plan(seeds=(0, 1), made=datetime(2025, 1, 1, tzinfo=UTC))
    results = [run(0, TEXTS[0], plan=plan), run(1, TEXTS[1], DATES[1], plan=plan)]
    (row,) = measured(results, pool=True)
    assert row.seeds == (0, 1)
    text = " ".join(written(form, results, pool=True).split())
    assert "-pool settings: runs with equal settings" in text.replace("{", "").replace("}", "")
    assert "pooled: text 1f914d36 / 5cfa3ca1" in text
    (planned,) = group(FinishedRuns([run(seed, TEXTS[0], plan=plan) for seed in (0, 1)], status="current"))
    (pooled,) = group(FinishedRuns(results, status="current"), pool=True)
    assert (planned.plan.mode, pooled.plan.mode) == ("planned", "anytime")


@pytest.mark.parametrize("pool", [False, True])
def test_scores_on_other_evaluation_data_are_never_one_mean(pool):
    data = {"own/test": "rows:" + "1" * 64, "training": "t" * 64}, {"own/test": "rows:" + "2" * 64}
    results = [run(seed, TEXTS[0], DATES[seed], fingerprints=data[seed]) for seed in (0, 1)]
    rows = measured(results, pool=pool)
    assert sorted(row.seeds for row in rows) == [(0,), (1,)]
    assert sorted(tag for row in rows for tag in row.settings) == ["own/test 11111111", "own/test 22222222"]
    assert all(any("evaluation data own/test 11111111 / 22222222" in note for note in row.notes) for row in rows)


def test_an_incomplete_plan_waits_and_a_complete_one_is_tested():
    def seeds(count, made):
        plan = Plan(seeds=(0, 1, 2), made=made)
        scores = {task: {"spearman": 70.0} for task in STS_TASKS}
        return [
            result(s, scores={**scores, "stsb": {"spearman": 70.0 + s / 10}}, plan=plan, paper=None)
            for s in range(count)
        ]

    before, after = datetime(2025, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    for made, mode in ((before, "planned"), (after, "anytime")):
        assert [one.plan.mode for one in group(FinishedRuns(seeds(3, made), status="current"))] == [mode]
    (row,) = measured(seeds(2, before))
    assert any("2 of 3 planned seeds are finished" in note for note in row.notes)
    assert not any(score.significant for score in row.scores.values())


# --- recipes by their path --------------------------------------------------------------------------------------------


def write(folder, name="mine.toml", steps=10):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f'extends = "mini/simcse_en"\n[train]\nsteps = {steps}\n')
    return str(folder / name)


def of(path, seed=0, **changes):
    """Return a run of a recipe's file as it is today."""
    loaded = load(path)
    scores = {"own": {"spearman": 60.0}}
    identity = Identity(settings=loaded.recipe.hash())
    values = {"scores": scores, "untrained": {}, "identity": identity, "recipe": loaded.name, "source": path}
    return mini(seed, **{**values, **changes})


def test_two_recipes_of_one_name_are_two_and_none_is_stale(tmp_path):
    paths = [write(tmp_path / "a", steps=10), write(tmp_path / "b", steps=20)]
    results = [of(path, seed) for path in paths for seed in (0, 1)]
    rows = measured(results, None)
    assert [row.recipe for row in rows] == ["a/mine.toml", "b/mine.toml"]
    assert [row.configurations for row in rows] == [1, 1]
    assert not any("stale" in score.marks for row in rows for score in row.scores.values())
    (alone,) = measured(results[:2], None)
    assert alone.recipe == "mine"
    assert [row.recipe_hash for row in measured(results, None, recipes=[paths[1]])] == [results[2].recipe_hash]
    assert len(measured(results, None, recipes=["mine"])) == 2
    (row,) = measured([of(write(tmp_path / "a", "ifcl_en.toml"))], None)  # named like a shipped recipe
    assert row.recipe == "a/ifcl_en.toml"


def test_a_copy_shares_the_row_and_both_are_named(tmp_path):
    paths = [write(tmp_path / "a", "one.toml"), write(tmp_path / "a", "two.toml")]
    (row,) = measured([of(path, seed, finished=DATES[seed]) for seed, path in enumerate(paths)], None)
    assert (row.recipe, row.copies, row.seeds) == ("one", ("two",), (0, 1))
    text = written("csv", [of(path, seed) for seed, path in enumerate(paths)], None)
    assert {line["recipes"] for line in csv.DictReader(io.StringIO(text)) if line["source"] == "measured"} == {
        "one, two"
    }


def test_an_edited_copy_leaves_the_originals_runs_fresh(tmp_path):
    original, copy = write(tmp_path / "a", "one.toml"), write(tmp_path / "a", "two.toml")
    results = [of(original), of(copy, 1)]
    write(tmp_path / "a", "two.toml", steps=20)
    rows = measured([*results, of(copy, 2)], None)
    assert {(row.recipe, row.seeds) for row in rows} == {("one", (0, 1)), ("two", (2,))}
    assert not any("stale" in score.marks for row in rows for score in row.scores.values())


def test_a_recipe_of_another_machine_is_the_one_of_its_name_and_a_file_may_be_gone(tmp_path):
    today = load("mini/simcse_en").recipe.hash()
    (row,) = measured([of("mini/simcse_en", source="/elsewhere/recipes/mini/simcse_en.toml")], None)
    assert (row.recipe, row.recipe_hash, row.settings) == ("mini/simcse_en", today, ())
    (row,) = measured([of("mini/simcse_en", recipe="simcse_en", source=str(tmp_path / "gone.toml"))], None)
    assert any("no recipe with this name" in note for note in row.notes)


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


def marks(row):
    return {mark for score in row.scores.values() for mark in score.marks}


@pytest.mark.parametrize(
    ("override", "today", "settings", "stale"),
    [
        ("train.batch_size=8", 10, "train.batch_size=8", False),
        ("train.steps=30", 20, "train.steps=30", False),  # explains the change of the same key
        ("train.batch_size=8", 20, "train.batch_size=8", True),
        ("encoders.online.model=bert-large-uncased", 10, "encoders.online.model=bert-large-uncased", False),
        (None, 20, "train.steps=10", True),
    ],
)
def test_a_run_is_a_variant_of_its_file_or_stale(recipe, override, today, settings, stale):
    model = {"model": "bert-large-uncased"} if settings.startswith("encoders") else {}
    record(recipe(10), 0, overrides=[override] if override else [], **model)
    recipe(today)
    (row,) = ours()
    assert row.settings == (settings,)
    assert ("stale" in marks(row)) is stale


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


def test_many_settings_are_cut_with_their_number_and_a_row_of_a_study_has_its_name(recipe):
    changed = ["train.steps=3", "train.batch_size=8", "train.warmup_steps=2", "train.clip_norm=2.0"]
    record(recipe(10), 0, overrides=changed)
    (row,) = ours()
    assert (len(row.settings), row.settings[-1]) == (4, "and 1 more")
    record(recipe(10), 1, overrides=changed, about={"study": "studies/mine/SIF with care/"})
    record(recipe(10), 2, about={"study": "studies/mine/plain/"})  # the settings of the recipe's file
    assert sorted(row.settings for row in ours(recipes=[recipe(10)])) == [(), ("studies/mine/SIF with care",)]


def test_changed_settings_are_without_seed_and_prose_and_name_what_was_taken_out():
    run_id = record("ifcl_en", 0, overrides=["queue.length=320", "title=Other"])
    (one,) = [run for run in read_finished_runs().results if run.run_id == run_id]
    assert changed_settings(one) == ("queue.length=320",)
    assert changed_settings(result(run_id="unknown")) == ()  # its recipe is not recorded
    loaded = load("ifcl_en", [], ["losses.twins"])
    assert loaded.changes == ("no losses.twins",)
    run = result(identity=Identity(settings=loaded.recipe.hash()))
    assert recipe_status(run, loaded.changes) == "variant"

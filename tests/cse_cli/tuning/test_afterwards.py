"""Results of a search: verdicts, the saved recipe, tables and JSON."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from rich.text import Text

from cse_cli.recipe.load import load
from cse_cli.tuning.results import Trial
from cse_cli.tuning.search import TunedRecipe, save_recipe, tuned_recipe
from cse_cli.tuning.view import print_search, print_verification, shortest_names
from tests.cse_cli.tuning.searches import LENGTH, POOLING, RATE, search, verification
from tests.support.errors import refuses


def test_the_best_is_complete_and_the_earliest_of_equals():
    one = search()
    assert (one.best.number, one.own.number) == (2, 0)
    assert [trial.number for trial in one.complete] == [2, 0, 1]
    again = Trial(number=5, state="complete", score=59.75, values={"queue_length": 288})
    assert search(trials=(*one.trials, again)).best.number == 2


def test_a_gain_is_confirmed_only_beyond_the_spread_of_seeds():
    # Differences 1, 1.05, 0.95: mean 1, standard deviation 0.05, t = 1 / (0.05 / √3) = 34.64 with two degrees of
    # freedom. With K = 1 + 3 · 9 = 28, the e-value is 28^(−1/2) · [(1 + 600) / (1 + 600/28)]^(3/2) = 26.2 = 1 / 0.038.
    sure = search(verification=verification((10.0, 11.0, 12.0), (11.0, 12.05, 12.95)))
    assert sure.verification.confirmed
    assert sure.verdict == "confirmed: +1.00 dev.spearman with 3 new seeds (p = 0.038)"
    unsure = search(verification=verification((10.0, 11.0), (10.1, 12.9)))
    assert not unsure.verification.confirmed
    assert unsure.verdict.startswith("not confirmed: +1.00 dev.spearman with 2 new seeds may be chance (p = 1.000)")
    assert f"{unsure.verification.paired['dev.spearman'].seeds_needed} seeds" in unsure.verdict
    single = search(verification=verification((10.0,), (11.0,)))
    assert not single.verification.confirmed
    assert single.verdict.endswith("too few seeds for a test")
    worse = search(verification=verification((10.0, 11.0, 12.0), (9.0, 9.9, 11.1)))
    assert not worse.verification.confirmed
    assert worse.verdict == "not confirmed: −1.00 dev.spearman with 3 new seeds, which is not a gain"


def test_a_verification_counts_its_looks():
    first = verification((10.0, 11.0, 12.0), (10.2, 11.9, 12.1)).after(None)
    assert first.looks == (3,)
    assert "with 3 new seeds may be chance (p = 1.000, one look); a gain of this size needs" in first.sentence
    again = first.after(first)
    assert again == first
    second = verification((10.0, 11.0, 12.0, 10.0, 10.0), (11.0, 12.2, 12.9, 11.0, 11.1)).after(first)
    # Differences 1, 1.2, 0.9, 1, 1.1: mean 1.04, standard deviation 0.114, t = 20.4 with four degrees of freedom.
    assert second.sentence == ("confirmed: +1.04 dev.spearman with 5 new seeds (p = 0.001, 2 looks, with 3, 5 seeds)")
    assert second.paired["dev.spearman"].p_adjusted == second.paired["dev.spearman"].p_anytime


def test_a_planned_verification_has_the_t_test_of_its_seeds():
    # Differences 1, 1.4, 0.7: mean 1.0333, standard deviation 0.3512, t = 5.10 with two degrees of freedom: p = 0.036.
    free = verification((10.0, 11.0, 12.0), (11.0, 12.4, 12.7))
    assert not free.confirmed
    planned = free.model_copy(update={"mode": "planned"}).after(None)
    assert planned.confirmed
    assert planned.sentence == ("confirmed: +1.03 dev.spearman with 3 new seeds (p = 0.036, planned, one look)")
    over = planned.paired["dev.spearman"]
    assert (over.mode, over.p_adjusted) == ("planned", over.p)
    assert over.low > 0


def test_a_verification_of_other_values_does_not_count():
    stale = search(verification=verification((10.0, 11.0, 12.0), (11.0, 12.2, 12.9), queue_length=64))
    assert stale.verdict.startswith("not verified: the best of 3 trials is optimistic")
    own_best = search(trials=search().trials[:2])
    assert own_best.verdict == "no trial is better than the recipe's values"


def test_without_a_complete_trial_the_reason_is_shown():
    with refuses("tune.no_complete_trial", "the loss is nan", "cse tune --best quickstart-queue_length-1a2b"):
        search(trials=search().trials[3:]).require_best()


def test_a_recipe_that_has_changed_since_is_not_saved():
    with refuses("tune.changed_recipe", "'quickstart'", search().name):
        tuned_recipe(search())


# The recipe that is written.


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        ("quickstart", ("queue.length=256", 'encoders.online.pooling="mean"')),
        ("mocose_en", ("views.query.augment.0.epsilon=1e-07", "views.key.augment.0.epsilon=1e-07")),
        ("ifcl_en", ("losses.twins.weight=0.5", "train.learning_rate=2.5e-05")),
    ],
)
def test_a_saved_recipe_is_the_one_that_was_tried(recipe, changes, tmp_path):
    wanted = load(recipe, changes).recipe
    one = search(recipe=recipe)
    file = tmp_path / "better.toml"
    save_recipe(file, TunedRecipe(load(recipe), changes, ()), one, one.best)
    saved = load(str(file)).recipe
    assert saved.hash() == wanted.hash()
    assert saved.paper is None  # the values are not those of the paper
    assert saved.title == f"{wanted.title}, tuned"
    first, second, third, *_ = file.read_text(encoding="utf-8").splitlines()
    assert first == "# Found by `cse tune`: search quickstart-queue_length-1a2b, trial 2 of 5, " + f"{date.today()}."
    assert second == "# dev.spearman 59.75 (seed 0). Score of the recipe's values: 59.50."
    assert third.startswith("# Not verified: the best of 3 trials is optimistic")
    assert list(tmp_path.iterdir()) == [file]


def test_a_saved_recipe_of_a_file_finds_it_by_its_path(tmp_path):
    (tmp_path / "own").mkdir()
    base = tmp_path / "own" / "base.toml"
    base.write_text('extends = "quickstart"\n', encoding="utf-8")
    file = tmp_path / "better.toml"
    tuned = TunedRecipe(load(str(base)), ("queue.length=64",), ("queue.forgetting_rate",))
    save_recipe(file, tuned, search(), search().best)
    assert 'extends = "own/base.toml"' in file.read_text(encoding="utf-8")
    assert load(str(file)).recipe.queue.params["forgetting_rate"] == 0.002  # the component's default
    # The same search overwrites it, another one does not.
    save_recipe(file, TunedRecipe(load(str(base)), ("queue.length=96",), ()), search(), search().best)
    assert load(str(file)).recipe.queue.params["length"] == 96
    with refuses("tune.file_exists", file):
        save_recipe(file, TunedRecipe(load(str(base)), (), ()), search(name="other"), search().best)


# What is printed.


def test_the_table_has_the_best_trials_and_the_recipes_own(capsys):
    many = [Trial(number=n, state="complete", score=60.0 + n, values={"queue_length": 64}) for n in range(5, 17)]
    print_search(search(trials=(*search().trials, *many)), Path("/figures"))
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0] == (
        "quickstart-queue_length-1a2b · quickstart · dev.spearman, seed 0 · 17 trials: 15 complete, 1 pruned, 1 failed"
    )
    rows = [line.split() for line in lines[4:15]]
    assert [row[0] for row in rows] == [*map(str, range(16, 6, -1)), "0"]
    assert rows[0][1:3] == ["76.00", "64"]
    assert rows[-1][1:4] == ["59.50", "128", "30"]
    assert "best: queue_length = 64 (+16.50 compared with the recipe's values)" in out
    assert "failed: trial 4: the loss is nan at step 3" in out
    assert "figures: /figures" in out
    assert "cse tune --best quickstart-queue_length-1a2b --verify-seeds 5" in out


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_narrow_terminal_loses_no_number(width, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    values = {"queue_length": 512, "train.learning_rate": 8e-4, "pooling": "cls"}
    best = Trial(number=9, state="complete", score=61.25, values=values, seconds=108.0)
    one = search(parameters=(LENGTH, RATE, POOLING), trials=(*search().trials, best))
    print_search(one)
    print_verification(one, verification((10.0, 11.0, 12.0), (11.0, 12.2, 12.9)))
    shown = Text.from_ansi(capsys.readouterr().out).plain
    rows = [line for line in shown.splitlines() if line.startswith(("trial", "    ", "dev", "───"))]
    assert all(len(line.rstrip()) <= width for line in rows)
    for text in ("61.25", "queue_length", "512", "learning_rate", "0.0008", "pooling", "cls", "own", "+1.03", "0.058"):
        assert text in shown.split()


def test_names_are_as_short_as_they_are_unique():
    names = ["losses.a.temperature", "losses.b.temperature", "queue_length", "train.learning_rate"]
    assert shortest_names(names) == ["a.temperature", "b.temperature", "queue_length", "learning_rate"]
    assert shortest_names(["temperature", "losses.a.temperature"]) == ["temperature", "a.temperature"]

"""Searches over choices of parts: what a choice makes of the recipe, which parameters a trial has, what is refused."""

from __future__ import annotations

import re
from datetime import date

import pytest

from cse_cli.recipe.errors import RecipeError
from cse_cli.recipe.load import load
from cse_cli.tuning.live import TuneScreen
from cse_cli.tuning.parts import with_parts
from cse_cli.tuning.plots import draw
from cse_cli.tuning.results import importances, read_search, read_trials
from cse_cli.tuning.samplers import all_points, grid_points, own_values
from cse_cli.tuning.save_recipe import save_recipe, tuned_recipe
from cse_cli.tuning.space import search_space
from cse_cli.tuning.study import counts, load_study, stored_config
from cse_cli.tuning.view import print_search
from registry.errors import CseError
from tests.cse_cli.tuning.fake import drive, knob, plan, recipe, trials

LOSS = "losses.info_nce=[focal_info_nce, dot_classification]"  # the second takes no negatives
QUEUE = 'queue=[false, { name = "fifo", view = "anchor" }, { name = "hippocampus", view = "anchor", length = 128 }]'
AUGMENT = "views.positive.augment=[none, repeat_words, [{name='token_shuffle'}, {name='feature_cutoff'}]]"


def space(name, *choices, names=(), ranges=()):
    return {one.name: one for one in search_space(load(str(name)), names, ranges, choices)}


def test_a_part_is_a_choice_with_the_recipes_own_first():
    found = space("mini/simcse_en", LOSS, QUEUE, AUGMENT)
    assert {name: one.choices for name, one in found.items()} == {
        "losses.info_nce": ("info_nce", "focal_info_nce", "dot_classification"),
        "queue": (
            False,
            '{name = "fifo", view = "anchor"}',
            '{name = "hippocampus", view = "anchor", length = 128}',
        ),
        "views.positive.augment": (False, "repeat_words", '[{name = "token_shuffle"}, {name = "feature_cutoff"}]'),
    }
    assert own_values(list(found.values())) == {
        "losses.info_nce": "info_nce", "queue": False, "views.positive.augment": False
    }  # fmt: skip


def test_what_a_choice_makes_of_the_recipe():
    loaded = load("mini/simcse_en")
    parts = list(space("mini/simcse_en", LOSS, QUEUE, AUGMENT).values())
    loss, queue, augment = (part.choices for part in parts)
    own = with_parts(loaded, parts, own_values(parts))
    assert own.recipe.hash() == loaded.recipe.hash()
    other = with_parts(
        loaded, parts, {"losses.info_nce": loss[1], "queue": queue[2], "views.positive.augment": augment[2]}
    ).recipe
    assert other.losses["info_nce"].name == "focal_info_nce"
    assert other.losses["info_nce"].params["temperature"] == 0.07  # its own default, not the replaced loss's 0.05
    assert (other.queue.name, other.queue.params["length"]) == ("hippocampus", 128)
    assert [part.name for part in other.views["positive"].augment] == ["token_shuffle", "feature_cutoff"]


def test_a_part_left_out_takes_its_ranges_with_it():
    found = space("mini/ifcl_en", "queue=none", names=["queue_length", "temperature"])
    assert found["queue"].removals(False) == ["queue", "tune.queue_length"]
    recipe = with_parts(load("mini/ifcl_en"), [found["queue"]], {"queue": False}).recipe
    assert recipe.queue is None
    assert set(recipe.tune) == {"temperature"}
    assert found["temperature"].when is None
    assert found["queue.hippocampus.length"].when == ("queue", ("hippocampus",))


def test_a_number_is_searched_where_a_chosen_part_has_it_and_gives_no_value():
    found = space("mini/simcse_en", LOSS, QUEUE, names=["queue.length", "losses.info_nce.temperature", "learning_rate"])
    assert list(found) == [
        "losses.info_nce",
        "queue",
        "train.learning_rate",
        "queue.fifo.length",  # the hippocampus's is 128
        "losses.info_nce.info_nce.temperature",
        "losses.info_nce.focal_info_nce.temperature",
    ]
    focal = found["losses.info_nce.focal_info_nce.temperature"]
    assert (focal.paths, focal.when) == (("losses.info_nce.temperature",), ("losses.info_nce", ("focal_info_nce",)))
    assert (focal.low, focal.high, focal.default) == (0.01, 0.5, None)
    assert found["losses.info_nce.info_nce.temperature"].default == 0.05
    assert not found["queue.fifo.length"].exists({"queue": False})


def test_a_range_goes_to_one_component_or_to_all_that_have_it():
    both = 'queue=[{ name = "fifo", view = "anchor" }, { name = "hippocampus", view = "anchor" }]'
    found = space("mini/simcse_en", both, ranges=["queue.fifo.length=64..128:32"])
    assert [(name, one.low, one.high) for name, one in found.items()][1:] == [("queue.fifo.length", 64, 128)]
    found = space("mini/simcse_en", both, ranges=["queue.length=64..128:32"])
    assert [(name, one.high) for name, one in found.items()][1:] == [
        ("queue.fifo.length", 128), ("queue.hippocampus.length", 128)
    ]  # fmt: skip


REFUSED = [
    ("losses.info_nce=[focal_infonce]", "unknown loss 'focal_infonce'. Did you mean 'focal_info_nce'"),
    ("queue=[fifo]", "queue cannot be fifo: queue: queue 'fifo' needs 'view'"),
    ("queue=[3]", "3 is neither the name of a part nor a table"),
    ("queue=false", "the recipe's own queue is the only choice"),
    ("losses.info_nce=[twins]", "losses.info_nce cannot be twins: "),
    ("losses.infonce=[twins]", "the recipe has no 'losses.infonce'"),
    ('queue={ name = "fifo", view = "anchor", lenght = 3 }', "Did you mean 'length'"),
]


@pytest.mark.parametrize(("choices", "message"), REFUSED)
def test_a_choice_that_fits_nowhere_is_one_error(choices, message):
    with pytest.raises(CseError, match=re.escape(message)):
        space("mini/simcse_en", choices)


def test_a_name_that_lies_in_two_places_is_ambiguous():
    with pytest.raises(CseError, match="'temperature' may be 3 parameters"):
        space(
            load("mini/ifcl_en", unset=["tune.temperature"]).path,
            "losses.identical=focal_info_nce",
            names=["temperature"],
        )


@pytest.mark.exhaustive
def test_a_search_over_parts(tmp_path, capsys):
    file = recipe(tmp_path)
    parameters = tuple(space(file, LOSS, QUEUE, names=["temperature", "queue.length"]).values())
    asked = plan(tmp_path, parameters=parameters, trials=24)
    seen = []

    def score(job, observer):
        part = job.loaded.recipe.losses["info_nce"]
        seen.append((part.name, job.loaded.recipe.queue and job.loaded.recipe.queue.name))
        return 1.0 if part.name == "focal_info_nce" else part.params.get("temperature", 0.0)

    ending, driver, executor = drive(asked, score)
    study = load_study(None, "search")
    found = read_trials(study)
    refused = [trial for trial in found if trial.state == "refused"]
    assert (ending, driver.ran, len(executor.jobs), counts(trials(asked))["complete"]) == ("budget", 24, 24, 24)
    # The loss without negatives goes with no queue, and each such pair of parts is told once.
    assert {(trial.values["losses.info_nce"], bool(trial.values["queue"])) for trial in refused} == {
        ("dot_classification", True)
    }
    assert 1 <= len(refused) == len({trial.values["queue"] for trial in refused}) <= 2
    assert all("no loss reads the queue" in trial.reason for trial in refused)
    assert not any(name == "dot_classification" and queue for name, queue in seen)
    for trial in found:
        if trial.state == "complete":
            loss, fifo = trial.values["losses.info_nce"], "fifo" in str(trial.values["queue"])
            assert (f"losses.info_nce.{loss}.temperature" in trial.values) == (loss != "dot_classification")
            assert ("queue.fifo.length" in trial.values) == fifo
    assert set(importances(study)) == {"losses.info_nce", "queue"}
    assert len(draw(study, tmp_path / "figures")) == 6
    assert read_search(study).best.values["losses.info_nce"] == "focal_info_nce"
    assert stored_config(study).parameters == parameters
    with TuneScreen() as screen:
        screen.trial_refused(refused[0])
    assert "refused: queue: no loss reads the queue" in " ".join(capsys.readouterr().err.split())
    print_search(read_search(study))
    numbers = ", ".join(str(trial.number) for trial in refused)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"24 complete, {len(refused)} refused" in shown
    assert re.search(rf"refused: trials? {numbers}: queue: no loss reads the queue", shown)
    assert drive(asked.model_copy(update={"trials": 26}), score)[1].ran == 2


@pytest.mark.exhaustive
def test_every_point_of_a_space_of_parts_is_tried_once(tmp_path):
    parameters = tuple(space(recipe(tmp_path), LOSS, QUEUE, ranges=["queue.fifo.length=64..128:32"]).values())
    # Three losses times no queue, one queue of three lengths, one of a given length.
    assert len(all_points(parameters)) == len(grid_points(parameters, 50)) == 3 * (1 + 3 + 1)
    for sampler in ("grid", "tpe"):
        ending, driver, _ = drive(plan(tmp_path, name=sampler, parameters=parameters, trials=50, sampler=sampler))
        assert (ending, driver.ran) == ("exhausted", 2 * 5 + 1)  # without negatives: no queue alone


def test_the_best_parts_are_saved_as_a_recipe_that_loads_to_them(tmp_path):
    file = recipe(tmp_path, "parts")
    text = file.read_text() + '[queue]\nname = "fifo"\nview = "anchor"\n[tune.length]\npaths = ["queue.length"]\n'
    file.write_text(text + 'low = 64\nhigh = 128\n[tune.queue]\npaths = ["queue"]\nchoices = [false]\n')
    parameters = tuple(space(file, LOSS, AUGMENT, names=["queue", "length", "temperature"]).values())
    asked = plan(tmp_path, parameters=parameters, trials=12, recipe=str(file))
    drive(asked, lambda job, observer: len(job.loaded.recipe.views["positive"].augment) - bool(job.loaded.recipe.queue))
    search = read_search(load_study(None, "search"))
    for trial in search.complete:
        saved, tuned = tmp_path / "better.toml", tuned_recipe(search, trial)
        save_recipe(saved, tuned, search, trial, date.today().isoformat())
        recipe_saved = load(str(saved)).recipe
        assert recipe_saved.hash() == tuned.load().recipe.hash()
        assert (recipe_saved.queue is None) == (trial.values["queue"] is False and not trial.own)
    assert search.best.values["queue"] is False


def test_a_recipe_says_what_may_stand_where(tmp_path):
    file = recipe(tmp_path)
    file.write_text(
        file.read_text() + '[tune.loss]\npaths = ["losses.info_nce"]\n'
        'choices = ["nt_xent", { name = "focal_info_nce", margin = 0.1 }]\n'
        '[tune.queue]\npaths = ["queue"]\nchoices = [{ name = "fifo", view = "anchor" }]\n'
        '[tune.length]\npaths = ["queue.length"]\nchoices = [32, 64]\n'
    )
    found = space(file, names=["loss,queue,length,temperature"])
    assert found["loss"].choices == ("info_nce", "nt_xent", '{name = "focal_info_nce", margin = 0.1}')
    assert list(found)[2:] == [
        "queue.fifo.length",
        "loss.info_nce.temperature",
        "loss.nt_xent.temperature",
        "loss.focal_info_nce.temperature",
    ]
    assert found["queue.fifo.length"].choices == (512, 32, 64)
    assert found["queue.fifo.length"].when == ("queue", ('{name = "fifo", view = "anchor"}',))


def test_a_loss_that_a_recipe_lets_out_takes_its_own_table_with_it(tmp_path):
    file = tmp_path / "search.toml"
    file.write_text('extends = "mini/ifcl_en"\n[tune.twins]\npaths = ["losses.twins"]\nchoices = [false]\n')
    (twins,) = space(file, names=["twins"]).values()
    assert twins.removals(False) == ["losses.twins", "tune.twins"]
    assert set(with_parts(load(str(file)), [twins], {"twins": False}).recipe.losses) == {"identical", "fraternal"}


@pytest.mark.parametrize("table", ['paths = ["queue"]', 'paths = ["queue", "train.steps"]\nchoices = [1, 2]'])
def test_a_part_needs_choices_of_its_own(table, tmp_path):
    file = tmp_path / "search.toml"
    file.write_text(f'extends = "mini/ifcl_en"\n[tune.memory]\n{table}\n')
    with pytest.raises(RecipeError, match="a part stands there: give its choices, in a table of its own"):
        load(str(file))


def test_a_range_of_nothing_is_still_refused(tmp_path):
    file = recipe(tmp_path)
    file.write_text(file.read_text() + '[tune.length]\npaths = ["queue.length"]\nchoices = [32, 64]\n')
    with pytest.raises(RecipeError, match=re.escape("the recipe has no 'queue.length'")):
        load(str(file))
    plain = file.read_text().replace("queue.length", "train.steps").replace("32", '{ name = "fifo" }')
    file.write_text(plain)
    with pytest.raises(CseError, match="no part stands at train"):
        space(file, names=["length"])


def test_a_study_from_before_there_were_parts_asks_the_same_question():
    assert knob().identity() == {
        "low": 1e-5, "high": 1e-3, "log": True, "step": None, "choices": None, "name": "train.learning_rate",
        "paths": ["train.learning_rate"], "whole": False,
    }  # fmt: skip

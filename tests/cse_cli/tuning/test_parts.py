"""Searches over choices of parts."""

from __future__ import annotations

import re

import pytest

from cse_cli.recipe.load import load
from cse_cli.recipe.problems import RecipeError
from cse_cli.tuning.parameters import with_parts
from cse_cli.tuning.plots import draw
from cse_cli.tuning.results import importances, read_search, read_trials
from cse_cli.tuning.search import save_recipe, tuned_recipe
from cse_cli.tuning.space import search_space
from cse_cli.tuning.study import load_study, own_values, points, stored_config
from cse_cli.tuning.view import TuneScreen, print_search
from tests.cse_cli.tuning.fake import config, counts, drive, recipe
from tests.support.errors import refuses

DOT = '{ name = "dot_classification", remove = ["temperature"] }'
LOSS = f"losses.info_nce=[focal_info_nce, {DOT}]"  # the second takes no negatives
BARE = "losses.info_nce=[focal_info_nce, dot_classification]"
FIFO = '{ name = "fifo", view = "anchor" }'
QUEUE = 'queue=[false, { name = "fifo", view = "anchor" }, { name = "hippocampus", view = "anchor", length = 128 }]'
AUGMENT = "views.positive.augment=[none, repeat_words, [{name='token_shuffle'}, {name='feature_cutoff'}]]"


def space(name, *choices, names=(), ranges=()):
    return {one.name: one for one in search_space(load(str(name)), names, ranges, choices)}


def test_the_recipes_part_is_the_first_choice_and_others_replace_it():
    loaded, found = load("mini/simcse_en"), space("mini/simcse_en", LOSS, QUEUE, AUGMENT)
    parts = list(found.values())
    assert {name: one.choices for name, one in found.items()} == {
        "losses.info_nce": ("info_nce", "focal_info_nce", DOT),
        "queue": (False, FIFO, '{ name = "hippocampus", view = "anchor", length = 128 }'),
        "views.positive.augment": (False, "repeat_words", '[{ name = "token_shuffle" }, { name = "feature_cutoff" }]'),
    }
    own = {"losses.info_nce": "info_nce", "queue": False, "views.positive.augment": False}
    assert own_values(parts) == own
    assert with_parts(loaded, parts, own).recipe.hash() == loaded.recipe.hash()
    values = {"losses.info_nce": "focal_info_nce"}
    values |= {name: found[name].choices[2] for name in ("queue", "views.positive.augment")}
    other = with_parts(loaded, parts, values).recipe
    assert other.losses["info_nce"].name == "focal_info_nce"
    assert other.losses["info_nce"].params["temperature"] == 0.05  # both losses have it
    assert (other.queue.name, other.queue.params["length"]) == ("hippocampus", 128)
    assert [part.name for part in other.views["positive"].augment] == ["token_shuffle", "feature_cutoff"]
    dot = with_parts(loaded, parts, {"losses.info_nce": DOT}).recipe.losses["info_nce"]
    assert (dot.name, "temperature" in dot.params) == ("dot_classification", False)


def test_an_omitted_part_removes_its_ranges():
    found = space("mini/ifcl_en", "queue=none", names=["queue_length", "temperature"])
    assert found["queue"].settings(False)[1] == ["queue", "tune.queue_length"]
    recipe = with_parts(load("mini/ifcl_en"), [found["queue"]], {"queue": False}).recipe
    assert recipe.queue is None
    assert set(recipe.tune) == {"temperature"}
    assert found["temperature"].when is None
    assert found["queue.hippocampus.length"].when == ("queue", ("hippocampus",))


def test_numbers_of_parts_that_do_not_set_them():
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


def test_a_range_for_one_component_or_for_all():
    both = 'queue=[{ name = "fifo", view = "anchor" }, { name = "hippocampus", view = "anchor" }]'
    found = space("mini/simcse_en", both, ranges=["queue.fifo.length=64..128:32"])
    assert [(name, one.low, one.high) for name, one in found.items()][1:] == [("queue.fifo.length", 64, 128)]
    found = space("mini/simcse_en", both, ranges=["queue.length=64..128:32"])
    assert [(name, one.high) for name, one in found.items()][1:] == [
        ("queue.fifo.length", 128), ("queue.hippocampus.length", 128)
    ]  # fmt: skip


REFUSED = [
    ("losses.info_nce=[focal_infonce]", "invalid_part", "'focal_infonce'. Did you mean 'focal_info_nce'"),
    ("queue=[fifo]", "invalid_part", "queue = fifo is not valid: queue: queue 'fifo' needs 'view'"),
    ("queue=[3]", "not_a_part", "3 is not a component"),
    ("queue=false", "one_part", "the recipe's queue"),
    ("losses.info_nce=dot_classification", "invalid_part", 'in the choice: { name = "…", remove = ["…"] }'),
    ("losses.infonce=[twins]", "unknown_parameter", "'losses.infonce'"),
    ('queue={ name = "fifo", view = "anchor", lenght = 3 }', "invalid_part", "Did you mean 'length'"),
]


@pytest.mark.parametrize(("choices", "code", "value"), REFUSED)
def test_a_choice_that_fits_nowhere_is_one_error(choices, code, value):
    with refuses(f"tune.{code}", value):
        space("mini/simcse_en", choices)


def test_a_name_in_two_places_is_ambiguous():
    with refuses("tune.ambiguous_parameter", "'temperature'", "3 parameters"):
        space(
            load("mini/ifcl_en", unset=["tune.temperature"]).path,
            "losses.identical=focal_info_nce",
            names=["temperature"],
        )


@pytest.mark.exhaustive
def test_a_search_over_parts(tmp_path, capsys):
    file = recipe(tmp_path)
    parameters = tuple(space(file, BARE, QUEUE, names=["temperature", "queue.length"]).values())
    asked = config(tmp_path, parameters=parameters, trials=24)
    seen = []

    def score(job, tell):
        part = job.loaded.recipe.losses["info_nce"]
        seen.append((part.name, job.loaded.recipe.queue and job.loaded.recipe.queue.name))
        return 1.0 if part.name == "focal_info_nce" else part.params.get("temperature", 0.0)

    ending, driver, engine = drive(asked, score)
    study = load_study("search")
    found = read_trials(study)
    invalid = [trial for trial in found if trial.state == "invalid"]
    assert (ending, driver.ran, len(engine.jobs), counts()["complete"]) == ("budget", 24, 24, 24)
    # The loss without negatives goes with no queue, and each such pair of parts is told once.
    assert {(trial.values["losses.info_nce"], bool(trial.values["queue"])) for trial in invalid} == {
        ("dot_classification", True)
    }
    assert 1 <= len(invalid) == len({trial.values["queue"] for trial in invalid}) <= 2
    assert all("no loss uses the queue" in trial.reason for trial in invalid)
    assert not any(name == "dot_classification" and queue for name, queue in seen)
    for trial in found:
        if trial.state == "complete":
            loss, fifo = trial.values["losses.info_nce"], "fifo" in str(trial.values["queue"])
            assert (f"losses.info_nce.{loss}.temperature" in trial.values) == (loss != "dot_classification")
            assert ("queue.fifo.length" in trial.values) == fifo
    assert set(importances(study)) == {"losses.info_nce", "queue"}
    assert len(draw(read_search(study), tmp_path / "figures")) == 6
    assert read_search(study).best.values["losses.info_nce"] == "focal_info_nce"
    assert stored_config(study).parameters == parameters
    with TuneScreen() as screen:
        screen.trial_invalid(invalid[0])
    assert "invalid: queue: no loss uses the queue" in " ".join(capsys.readouterr().err.split())
    print_search(read_search(study))
    numbers = ", ".join(str(trial.number) for trial in invalid)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"24 complete, {len(invalid)} invalid" in shown
    assert re.search(rf"invalid: trials? {numbers}: queue: no loss uses the queue", shown)
    assert drive(asked.model_copy(update={"trials": 26}), score)[1].ran == 2


@pytest.mark.exhaustive
def test_every_point_of_a_space_of_parts_is_tried_once(tmp_path):
    parameters = tuple(space(recipe(tmp_path), BARE, QUEUE, ranges=["queue.fifo.length=64..128:32"]).values())
    # Three losses times no queue, one queue of three lengths, one of a given length.
    assert len(points(parameters)) == len(points(parameters, 50)) == 3 * (1 + 3 + 1)
    for sampler in ("grid", "tpe"):
        ending, driver, _ = drive(config(tmp_path, name=sampler, parameters=parameters, trials=50, sampler=sampler))
        assert (ending, driver.ran) == ("exhausted", 2 * 5 + 1)  # without negatives: no queue alone


@pytest.mark.slow
def test_the_best_parts_are_saved(tmp_path):
    file = recipe(tmp_path, "parts")
    text = file.read_text() + '[queue]\nname = "fifo"\nview = "anchor"\n[tune.length]\npaths = ["queue.length"]\n'
    file.write_text(text + 'low = 64\nhigh = 128\n[tune.queue]\npaths = ["queue"]\nchoices = [false]\n')
    parameters = tuple(space(file, BARE, AUGMENT, names=["queue", "length", "temperature"]).values())
    asked = config(tmp_path, parameters=parameters, trials=12, recipe=str(file))
    drive(asked, lambda job, tell: len(job.loaded.recipe.views["positive"].augment) - bool(job.loaded.recipe.queue))
    search = read_search(load_study("search"))
    for trial in search.complete:
        saved, tuned = tmp_path / "better.toml", tuned_recipe(search, trial)
        save_recipe(saved, tuned, search, trial)
        recipe_saved = load(str(saved)).recipe
        assert recipe_saved.hash() == tuned.load().recipe.hash()
        assert (recipe_saved.queue is None) == (trial.values["queue"] is False and not trial.own)
    assert search.best.values["queue"] is False


def test_a_recipe_lists_its_parts(tmp_path):
    file = recipe(tmp_path)
    file.write_text(
        file.read_text() + '[tune.loss]\npaths = ["losses.info_nce"]\n'
        'choices = ["nt_xent", { name = "focal_info_nce", margin = 0.1 }]\n'
        '[tune.queue]\npaths = ["queue"]\nchoices = [{ name = "fifo", view = "anchor" }]\n'
        '[tune.length]\npaths = ["queue.length"]\nchoices = [32, 64]\n'
    )
    found = space(file, names=["loss,queue,length,temperature"])
    assert found["loss"].choices == ("info_nce", "nt_xent", '{ name = "focal_info_nce", margin = 0.1 }')
    names = [f"loss.{name}.temperature" for name in ("info_nce", "nt_xent", "focal_info_nce")]
    assert list(found)[2:] == ["queue.fifo.length", *names]
    assert found["queue.fifo.length"].choices == (512, 32, 64)
    assert found["queue.fifo.length"].when == ("queue", ('{ name = "fifo", view = "anchor" }',))


def test_an_omitted_loss_removes_its_table(tmp_path):
    file = tmp_path / "search.toml"
    file.write_text('extends = "mini/ifcl_en"\n[tune.twins]\npaths = ["losses.twins"]\nchoices = [false]\n')
    (twins,) = space(file, names=["twins"]).values()
    assert twins.settings(False)[1] == ["losses.twins", "tune.twins"]
    assert set(with_parts(load(str(file)), [twins], {"twins": False}).recipe.losses) == {"identical", "fraternal"}


@pytest.mark.parametrize("table", ['paths = ["queue"]', 'paths = ["queue", "train.steps"]\nchoices = [1, 2]'])
def test_a_part_needs_choices_of_its_own(table, tmp_path):
    file = tmp_path / "search.toml"
    file.write_text(f'extends = "mini/ifcl_en"\n[tune.memory]\n{table}\n')
    with pytest.raises(RecipeError, match="is a component"):
        load(str(file))


def test_a_range_of_an_unknown_path_is_refused(tmp_path):
    file = recipe(tmp_path)
    file.write_text(file.read_text() + '[tune.length]\npaths = ["queue.length"]\nchoices = [32, 64]\n')
    with pytest.raises(RecipeError, match=re.escape("the recipe has no 'queue.length'")):
        load(str(file))
    plain = file.read_text().replace("queue.length", "train.steps").replace("32", '{ name = "fifo" }')
    file.write_text(plain)
    with refuses("tune.not_a_part", "[tune.length]", "train.steps"):
        space(file, names=["length"])

"""`--set`, `--unset` and `changed`."""

from __future__ import annotations

import pytest

from cse_cli.recipe.load import changed, load
from cse_cli.recipe.overrides import Override
from cse_cli.recipe.problems import RecipeError
from tests.support.errors import refuses


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("train.steps=5", ("train", "steps"), 5),
        ("train.learning_rate = 1e-5", ("train", "learning_rate"), 1e-5),
        ("title=a = b", ("title",), "a = b"),
        ("data.dataset=[\"wiki1m\"]", ("data", "dataset"), ("wiki1m",)),
        ("evaluate.allow_test_selection=true", ("evaluate", "allow_test_selection"), True),
    ],
)  # fmt: skip
def test_a_value_is_toml_or_else_text(assignment, path, value):
    found = load("simcse_en", [assignment]).recipe
    for key in path:
        found = getattr(found, key)
    assert found == value


def test_components_and_items_of_arrays():
    overrides = [
        "losses.identical.temperature=0.1", "losses.twins.weight=0", "queue.length=512",
        "views.fraternal.augment.0.rate=0.5", "views.fraternal.augment.fuse_embeddings.mask=union",
        "losses.identical.views.positive=fraternal",
    ]  # fmt: skip
    recipe = load("ifcl_en", overrides).recipe
    assert recipe.losses["identical"].params["temperature"] == 0.1
    assert recipe.losses["identical"].views == {"anchor": "anchor", "positive": "fraternal"}
    assert recipe.losses["twins"].weight == 0
    assert recipe.queue is not None
    assert recipe.queue.params["length"] == 512
    assert recipe.views["fraternal"].augment[0].params["rate"] == 0.5
    assert recipe.views["fraternal"].augment[0].params["mask"] == "union"


def test_quoted_keys_and_new_tables():
    recipe = load("simcse_en", ["losses.'second'={ name = 'info_nce', weight = 0.5 }"]).recipe
    assert recipe.losses["second"].weight == 0.5


def test_a_table_is_merged_as_in_a_file():
    recipe = load("ifcl_en", ["queue={ length = 3 }", "train={ steps = 5 }"]).recipe
    assert recipe.queue is not None
    assert (recipe.queue.name, recipe.queue.params["length"], recipe.train.steps) == ("hippocampus", 3, 5)
    assert recipe.train.seed == load("ifcl_en").recipe.train.seed


def test_unset():
    recipe = load("ifcl_en", unset=["queue", "tune.queue_length", "paper"]).recipe
    assert (recipe.queue, recipe.paper) == (None, None)


@pytest.mark.parametrize(
    ("assignment", "code", "values"),
    [
        ("train.seed", "recipe.override_without_value", "--set train.seed: "),
        ("train..seed=1", "recipe.invalid_path", "--set train..seed: "),
        ("train.sead=1", "recipe.unknown_key", "--set train.sead: unknown key 'sead' of [train]. Did you mean 'seed'?"),
        ("train={ seed = -1 }", "recipe.invalid_value", "--set train: train.seed: should be at least 0"),
        ("title.x=1", "recipe.unknown_path", "--set title.x: 'title'"),
        ("views.fraternal.augment.1.rate=1", "recipe.unknown_path", "'views.fraternal.augment' has no element '1'"),
        ("views.fraternal.augment.0.rate=2", "recipe.invalid_value", "views.fraternal.augment.0.rate: "),
        ("losses.mine.weight=1", "recipe.unknown_component", "--set losses.mine.weight: losses.mine: "),
        ("temperature=0.1", "recipe.unknown_key", "losses.identical.temperature, losses.fraternal.temperature?"),
        ("train.temprature=1", "recipe.unknown_key", "losses.identical.temperature, losses.fraternal.temperature?"),
        ("learning-rate=1", "recipe.unknown_key", "Did you mean train.learning_rate?"),
        ("data.dataset=wiki", "recipe.unknown_dataset", "--set data.dataset: unknown dataset 'wiki'"),
        ("train.steps=1979-05-27", "recipe.invalid_value", "1979-05-27"),
    ],
)  # fmt: skip
def test_mistakes_name_the_option(assignment, code, values):
    with refuses(code, values):
        load("ifcl_en", [assignment])


def test_unset_of_what_is_not_there():
    with refuses("recipe.unknown_path", "--unset train.steps: "):
        load("simcse_en", unset=["train.steps"])
    with refuses("recipe.unknown_path", "--unset foo.bar: 'foo'"):
        load("simcse_en", unset=["foo.bar"])


@pytest.mark.parametrize("value", [1e-05, True, "a 'b' \\ ä", [1, [2.5]], {"name": "x", "a b": [{"c": {}}]}])
def test_the_text_of_an_override_has_its_value(value):
    override = Override.of('losses."a b"', value)
    assert Override.parse(str(override)) == override


def test_several_mistakes_at_once():
    with pytest.raises(RecipeError) as caught:
        load("simcse_en", ["a", "b"])
    assert len(caught.value.problems) == 2


def test_changing_one_value_of_a_loaded_recipe():
    loaded = load("ifcl_en", ["train.seed=3"])
    other = changed(loaded, [Override.of("queue.length", 512)])
    assert other.recipe.queue is not None
    assert loaded.recipe.queue is not None
    assert (other.recipe.queue.params["length"], loaded.recipe.queue.params["length"]) == (512, 416)
    assert other.recipe.train.seed == 3
    assert other.recipe.hash() != loaded.recipe.hash()
    assert changed(other, [Override.of("queue.length", 416)]).recipe == loaded.recipe


def test_the_later_of_steps_and_epochs_wins_and_says_so():
    loaded = load("mini/simcse_en", ["train.epochs=2"])
    assert (loaded.recipe.train.steps, loaded.recipe.train.epochs) == (None, 2)
    assert loaded.changes == ("train.epochs=2",)
    (note,) = loaded.notes
    assert note.startswith("train.epochs=2 replaces train.steps=60 (")
    assert "mini/simcse_en.toml:" in note
    loaded = load("simcse_en", ["train.steps=5"])
    assert (loaded.recipe.train.steps, loaded.recipe.train.epochs) == (5, 1)
    assert loaded.notes[0].startswith("train.steps=5 replaces train.epochs=1 (")
    assert load("mini/simcse_en", ["train.steps=5"]).notes == ()
    both = load("simcse_en", ["train.steps=5", "train.epochs=3"])
    assert (both.recipe.train.steps, both.recipe.train.epochs) == (None, 3)
    assert both.notes == ()
    assert load("mini/simcse_en", ["train.epochs=2"], ["train.steps"]).notes == ()
    assert load("simcse_en").notes == ()


def test_a_table_with_steps_and_epochs_is_refused():
    with refuses("recipe.conflict", "--set train: train.epochs: "):
        load("simcse_en", ["train={ steps = 1, epochs = 2 }"])

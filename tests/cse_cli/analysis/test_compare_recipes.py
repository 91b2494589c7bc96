"""Only what differs between resolved recipes, and its short text without defaults."""

from __future__ import annotations

import pytest

from cse_cli.analysis.experiments import recipe_changes
from cse_cli.analysis.rerun import short_setting
from cse_cli.recipe.load import load


def keys(*recipes):
    return {change.key: change.values for change in recipe_changes(recipes)}


def shipped(name: str, *overrides: str):
    return load(name, overrides).recipe.resolved()


def test_seed_prose_and_tuning_ranges_are_no_difference():
    one = shipped("mini/ifcl_en")
    other = shipped("mini/ifcl_en", "train.seed=7", 'title="x"', 'description="y"')
    assert keys(one, other) == {}
    assert keys(one, {key: value for key, value in other.items() if key != "tune"}) == {}


def test_one_key_of_three_recipes():
    found = keys(*(shipped("mini/ifcl_en", f"queue.length={n}") for n in (320, 416, 320)))
    assert found == {"queue.length": (320, 416, 320)}


def test_a_component_that_is_missing_stands_as_a_whole():
    found = keys(shipped("mini/simcse_en"), shipped("mini/ifcl_en"))
    assert found["queue"][0] is None
    assert found["queue"][1]["length"] == 416
    assert found["encoders.online.freeze"] == ([], ["embeddings"])
    assert not any(key.startswith("evaluators") for key in found)


def test_an_augmenter_is_named_as_set_names_it():
    change = "views.fraternal.augment.fuse_embeddings.rate"
    assert keys(shipped("mini/ifcl_en"), shipped("mini/ifcl_en", f"{change}=0.8")) == {change: (0.9, 0.8)}


def test_the_same_text_in_another_folder_is_the_same():
    one, other = ({"data": {"file": f"{folder}/a.txt"}, "train": {"seed": 1}} for folder in ("/x", "/y"))
    assert keys(one, other) == {}
    assert keys(one, {"data": {"file": "/x/b.txt"}}) == {"data.file": ("a.txt", "b.txt")}


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("train.steps", 60, "60"),
        ("train.steps", None, "—"),
        ("encoders.online.freeze", ["embeddings"], "[embeddings]"),
        ("encoders.online.heads.mlp", {"name": "mlp"}, "mlp"),
        ("views.anchor", {"encoder": "online", "column": "text", "augment": []}, "default"),
        ("views.anchor", {"encoder": "target", "column": "text", "augment": []}, "(encoder = target)"),
        ("queue", {"name": "fifo", "view": "key", "length": 64, "own": 1}, "fifo (view = key, length = 64, own = 1)"),
    ],
)
def test_texts(key, value, text):
    assert short_setting(key, value) == text


def test_components_that_only_one_recipe_has():
    recipes = [load(name).recipe.resolved() for name in ("mini/simcse_en", "mini/ifcl_en")]
    shown = {c.key: [short_setting(c.key, value) for value in c.values] for c in recipe_changes(recipes)}
    assert shown["losses.info_nce"] == ["info_nce", "—"]
    assert shown["losses.identical"] == ["—", "info_nce (views = (positive = identical))"]
    assert shown["views.positive"] == ["default", "—"]
    assert shown["views.fraternal"] == ["—", "(augment = fuse_embeddings (model = mini_de))"]
    assert shown["queue"] == ["—", "hippocampus (view = anchor)"]

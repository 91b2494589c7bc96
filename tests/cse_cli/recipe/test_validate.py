"""Validation accepts a recipe or raises a `RecipeError`, for any values."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cse_cli.recipe.load import load
from cse_cli.recipe.problems import RecipeError
from cse_cli.recipe.validate import is_test_split, validate


def changed(tables: dict[str, Any], path: tuple, value: Any) -> dict[str, Any]:
    result: Any = copy.deepcopy(tables)
    at = result
    for key in path[:-1]:
        at = at[key]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = copy.deepcopy(value)
    return result


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("train", "learning_rate"), True),
        (("encoders", "online", "first_layer_index"), False),
        (("losses", "twins", "weight"), "1"),
        (("tune", "queue_length", "choices"), []),
        (("views", "anchor", "column"), ""),
    ],
)
def test_values_that_only_look_right(path, value):
    loaded = load("ifcl_en")
    with pytest.raises(RecipeError):
        validate(changed(loaded.recipe.resolved(), path, value), loaded.origins)


@pytest.mark.parametrize("split", ["dev", "train", "train_1w", "validation", "val", "test", "all", "test_2016_flickr"])
def test_which_splits_may_select_a_state(split):
    assert is_test_split({"split": split}) is split.startswith(("test", "all"))
    assert is_test_split({})

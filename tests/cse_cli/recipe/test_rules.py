"""Which splits may choose a state."""

from __future__ import annotations

import pytest

from cse_cli.recipe.validate import is_test_split


@pytest.mark.parametrize("split", ["dev", "train", "train_1w", "validation", "val"])
def test_may_choose(split):
    assert not is_test_split({"split": split})


@pytest.mark.parametrize("params", [{"split": "test"}, {"split": "all"}, {"split": "test_2016_flickr"}, {}])
def test_must_not_choose(params):
    assert is_test_split(params)

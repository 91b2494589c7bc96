"""Evaluators that read a data set or a file of the user's own: exactly one, and a dev file may select."""

from __future__ import annotations

import pytest

from cse_cli.recipe.errors import RecipeError
from cse_cli.recipe.load import load

RECIPE = """\
title = "own pairs"
[data]
dataset = "wiki1m"
[encoders.online]
name = "transformer"
model = "bert-base-uncased"
[views.anchor]
[views.positive]
[losses.info_nce]
[evaluate]
select = "mine.{metric}"
[evaluators.mine]
name = "{name}"
"""


@pytest.fixture
def loaded(tmp_path):
    def load_with(extra, name="sts", metric="spearman"):
        path = tmp_path / "r.toml"
        path.write_text(RECIPE.format(name=name, metric=metric) + extra, encoding="utf-8")
        return load(str(path)).recipe

    return load_with


@pytest.mark.parametrize(("name", "metric"), [("sts", "spearman"), ("retrieval_at_k", "mrr")])
def test_a_file_counts_as_what_its_split_says(loaded, name, metric):
    recipe = loaded('file = "a.csv"\nsplit = "dev"\n', name, metric)
    assert recipe.evaluators["mine"].params["file"] == "a.csv"
    with pytest.raises(RecipeError, match="choosing a state by test data"):
        loaded('file = "a.csv"\n', name, metric)
    with pytest.raises(RecipeError, match="scores split 'mine'"):
        loaded('file = "a.csv"\nsplit = "mine"\n', name, metric)


@pytest.mark.parametrize("name", ["sts", "retrieval_at_k"])
def test_exactly_one_of_the_two(loaded, name):
    metric = {"sts": "spearman"}.get(name, "mrr")
    with pytest.raises(
        RecipeError, match=r"r\.toml:12:13: evaluators\.mine: needs 'dataset' .* or 'file', your own pairs"
    ):
        loaded('split = "dev"\n', name, metric)
    with pytest.raises(
        RecipeError, match=r"r\.toml:15:1: evaluators\.mine\.file: give either 'dataset' or 'file', not both"
    ):
        loaded('dataset = "stsb"\nfile = "a.csv"\nsplit = "dev"\n', name, metric)


def test_a_wrong_data_set_is_told_once(loaded):
    with pytest.raises(RecipeError) as told:
        loaded('dataset = "stsbb"\nsplit = "dev"\n')
    (problem,) = told.value.problems
    assert problem.message.startswith("unknown dataset 'stsbb'. Did you mean 'stsb'")
    with pytest.raises(RecipeError) as told:
        loaded('dataset = 3\nsplit = "dev"\n')
    assert len(told.value.problems) == 1

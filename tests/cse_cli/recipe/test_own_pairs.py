"""Evaluators that read a data set or your own file."""

from __future__ import annotations

import pytest

from cse_cli.recipe.errors import RecipeError
from cse_cli.recipe.load import load
from tests.support.errors import refuses

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
metric_for_best_model = "mine.{metric}"
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
    with refuses("recipe.test_selection"):
        loaded('file = "a.csv"\n', name, metric)
    with refuses("recipe.test_selection", "split 'mine'"):
        loaded('file = "a.csv"\nsplit = "mine"\n', name, metric)


@pytest.mark.parametrize("name", ["sts", "retrieval_at_k"])
def test_exactly_one_of_the_two(loaded, name):
    metric = {"sts": "spearman"}.get(name, "mrr")
    with refuses("recipe.missing_key", "r.toml:12:13: evaluators.mine: ", "'dataset'", "'file'"):
        loaded('split = "dev"\n', name, metric)
    with refuses("recipe.conflict", "r.toml:15:1: evaluators.mine.file: ", "'dataset'", "'file'"):
        loaded('dataset = "stsb"\nfile = "a.csv"\nsplit = "dev"\n', name, metric)


def test_a_wrong_data_set_is_one_problem(loaded):
    with pytest.raises(RecipeError) as told:
        loaded('dataset = "stsbb"\nsplit = "dev"\n')
    (problem,) = told.value.problems
    assert problem.code == "recipe.unknown_dataset"
    assert "Did you mean 'stsb'" in problem.message
    with pytest.raises(RecipeError) as told:
        loaded('dataset = 3\nsplit = "dev"\n')
    assert len(told.value.problems) == 1

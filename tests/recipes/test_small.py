"""The small recipes run from the package: without network, data and models of anybody."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cse_cli.data.requirements import Availability, availability
from cse_cli.recipe.cells import cells
from cse_cli.recipe.files import all_recipes, all_studies
from cse_cli.recipe.load import load
from cse_cli.recipe.requirements import requirements
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.study import load_study
from tests.support.chosen import trains

SMALL = [name for name in all_recipes() if name == "quickstart" or name.startswith("mini/")]
STUDIES = [name for name in all_studies() if name.startswith("studies/mini/")]


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine with the package only: an empty state directory, an empty cache of the Hub, no directories of data."""
    for name in ("CSE_DATA", "CSE_MODELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CSE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def lacking(recipe: Recipe) -> list[Availability]:
    found = [availability(one) for one in requirements(recipe)]
    return [one for one in found if (one.state, one.origin in ("package", "generated")) != ("here", True)]


@pytest.mark.parametrize("name", SMALL)
def test_a_small_recipe_requires_only_the_package(name, bare):
    assert lacking(load(name).recipe) == []


@pytest.mark.parametrize("study", STUDIES)
def test_a_small_study_requires_only_the_package(study, bare):
    made = cells(load_study(study))
    assert made
    assert [one for cell in made if cell.resolved is not None for one in lacking(cell.resolved)] == []


def test_a_data_set_or_model_outside_the_package_is_found(bare):
    settings = ["data.dataset=wiki1m", "evaluators.test.dataset=stsb", "encoders.online.model=bert-base-uncased"]
    names = {(one.requirement.kind, one.requirement.name) for one in lacking(load("mini/simcse_en", settings).recipe)}
    assert names == {("dataset", "wiki1m"), ("dataset", "stsb"), ("model", "bert-base-uncased")}
    assert {one.requirement.name for one in lacking(load("pretrain_mini_en").recipe)} == {"wiki_en_1m", "stsb"}


@pytest.mark.parametrize("name", SMALL)
def test_a_small_recipe_selects_on_dev_and_scores_test_of_the_package(name):
    recipe = load(name).recipe
    scored = {label: part for label, part in recipe.evaluators.items() if part.name == "sts"}
    if name == "mini/augmentation_quality_en":
        assert {part.params["dataset"] for part in recipe.evaluators.values()} == {"stsb_open"}
        return
    assert {label: (part.params["dataset"], part.params["split"]) for label, part in scored.items()} == {
        "dev": ("stsb_open", "dev"), "test": ("stsb_open", "test"),
    }  # fmt: skip
    assert recipe.evaluate.metric_for_best_model == (None if recipe.train.steps == 0 else "dev.spearman")


TRAINED = [name for name in SMALL if trains(name)]
STEPS = (
    "--set", "train.steps=4", "--set", "train.evaluate_every=4", "--set", "evaluate.eval_on_start=false",
    "--set", "evaluate.limit=64", "--set", "data.limit=2000",
)  # fmt: skip


@pytest.mark.process
@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("names", "options"),
    [(TRAINED[::2], STEPS), (TRAINED[1::2], STEPS), ([name for name in SMALL if name not in TRAINED], STEPS[-4:-2])],
    ids=["4 steps", "4 steps, others", "untrained"],
)
def test_every_small_recipe_runs_from_an_empty_home(names, options, tmp_path):
    """Nothing listens at the addresses of the Hub and GitHub, so a download would fail."""
    nowhere = "http://127.0.0.1:9"
    environment = {
        key: value for key, value in os.environ.items() if key not in ("CSE_DATA", "CSE_MODELS", "HF_HUB_OFFLINE")
    }
    environment |= {
        "CSE_HOME": str(tmp_path / "home"), "HF_HOME": str(tmp_path / "hub"), "HF_ENDPOINT": nowhere,
        "CSE_GITHUB_MIRROR": nowhere, "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }  # fmt: skip
    command = [sys.executable, "-P", "-m", "cse_cli", "run", *names, *options, "--device", "cpu"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(list((tmp_path / "home" / "runs").glob("*/result.json"))) == len(names)

"""Every recipe in the repository is valid, says whose numbers it answers, and survives being written out."""

from pathlib import Path

import pytest

from cse_cli.core.formatting import to_toml
from cse_cli.recipe.check import check_file, recipe_files
from cse_cli.recipe.load import load
from tests.support.chosen import one_of_each

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).resolve().parents[2] / "recipes"
FILES = sorted(FOLDER.rglob("*.toml"))
CHECKED = [path.relative_to(FOLDER).with_suffix("").as_posix() for path in FILES]
NAMES = [name for name in CHECKED if not name.startswith("studies/")]


@pytest.mark.exhaustive
def test_as_many_are_checked_as_there_are():
    checked = [check_file(path) for path in recipe_files([])]
    assert [one["problems"] for one in checked if not one["valid"]] == []
    assert sorted(one["name"] for one in checked) == sorted(CHECKED)
    assert len(checked) == len(FILES) > 0


@pytest.mark.parametrize("name", one_of_each(NAMES))
def test_resolved_loads_to_the_same_experiment(name, tmp_path):
    recipe = load(name).recipe
    path = tmp_path / "resolved.toml"
    path.write_text(to_toml(recipe.resolved()), encoding="utf-8")
    again = load(str(path)).recipe
    assert again == recipe
    assert again.hash() == recipe.hash()


def test_no_two_recipes_are_the_same_experiment_and_selection_is_on_a_dev_split():
    hashes: dict[str, list[str]] = {}
    for name in NAMES:
        recipe = load(name).recipe
        hashes.setdefault(recipe.hash(), []).append(name)
        assert not recipe.evaluate.allow_test_selection, name
        selected = recipe.evaluate.metric_for_best_model
        assert selected is None or "dev" in selected, name
    assert [names for names in hashes.values() if len(names) > 1] == []


def test_the_quickstart_is_the_small_recipe_with_another_encoder_whitening_and_learning_rate():
    quick, small = (
        load(name, overrides).recipe.resolved()
        for name, overrides in (("quickstart", []), ("mini/ifcl_en", ["data.dataset=tatoeba_open"]))
    )
    differences = (
        (("encoders",), ("white",)),
        (("encoders", "online"), ("name", "pooling", "block", "head")),
        (("train",), ("learning_rate", "evaluate_every", "seed")),
        (("evaluate",), ("encoder", "selection_encoder")),
        ((), ("title", "description", "tune")),
    )
    for recipe in (quick, small):
        for path, keys in differences:
            table = recipe
            for key in path:
                table = table[key]
            for key in keys:
                table.pop(key, None)
    assert quick == small


def test_no_recipe_speaks_of_a_folder_that_only_its_makers_have():
    assert [path for path in FILES if "../shared" in path.read_text(encoding="utf-8")] == []

"""Loading a recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.core.formatting import to_toml
from cse_cli.recipe.files import all_recipes, find, name_of, roots
from cse_cli.recipe.load import load
from cse_cli.recipe.problems import RecipeError
from tests.support.errors import refuses

MINIMAL = """\
title = "minimal"
[data]
dataset = "wiki1m"
[encoders.online]
name = "transformer"
model = "bert-base-uncased"
[views.anchor]
[views.positive]
[losses.info_nce]
temperature = 1
"""


@pytest.fixture
def written(write):
    return lambda text, name="r.toml": str(write(name, text))


def test_defaults_are_written_in(written):
    loaded = load(written(MINIMAL))
    recipe = loaded.recipe
    assert (loaded.name, loaded.text) == ("r", MINIMAL)
    assert recipe.data.dataset == ("wiki1m",)
    assert recipe.encoders["online"].params["pooling"] == "cls"
    loss = recipe.losses["info_nce"]
    assert loss.name == "info_nce"
    assert loss.views == {"anchor": "anchor", "positive": "positive"}
    assert loss.params["temperature"] == 1.0
    assert isinstance(loss.params["temperature"], float)


def test_an_optional_input_takes_the_view_of_its_name(written):
    assert "hard" not in load(written(MINIMAL)).recipe.losses["info_nce"].views
    recipe = load(written(f"{MINIMAL}[views.hard]\n")).recipe
    assert recipe.losses["info_nce"].views["hard"] == "hard"


@pytest.mark.parametrize("name", ["ifcl_en", "mini/simcse_en"])
def test_resolved_text_loads_to_the_same_recipe(name, written):
    recipe = load(name).recipe
    assert ("epochs" in recipe.resolved()["train"]) == (recipe.train.steps is None)
    again = load(written(to_toml(recipe.resolved()), "resolved.toml")).recipe
    assert (again, again.hash()) == (recipe, recipe.hash())


def test_hash_excludes_prose(written):
    path = written(MINIMAL)
    plain = load(path).recipe.hash()
    same = ["title=other", "train.seed=7", "language='en'", "losses.info_nce.temperature=1.0", "train.epochs=1",
            "train.compile=off"]  # fmt: skip
    assert {load(path, [one]).recipe.hash() for one in same} == {plain}
    # Pieces of a batch draw other dropout masks.
    other = ["train.batch_size=32", "losses.info_nce.weight=2", "data.limit=5", "encoders.online.pooling=mean",
             "train.mini_batch_size=16"]  # fmt: skip
    hashes = {load(path, [one]).recipe.hash() for one in other}
    assert len(hashes) == len(other)
    assert plain not in hashes


def test_a_data_file_is_searched_for_in_three_directories(written, folder, monkeypatch):
    text = MINIMAL.replace('dataset = "wiki1m"', 'file = "a.txt"')
    path = written(text, "sub/r.toml")
    assert load(path).recipe.data.file == "a.txt"
    hashed = load(path).recipe.hash()
    for one in (folder, folder / "data", folder / "sub"):
        one.mkdir(exist_ok=True)
        (one / "a.txt").write_text("x\n")
        if one.name == "data":
            monkeypatch.setenv("CSE_DATA", str(one))
        assert load(path).recipe.data.file == str(one / "a.txt")
        assert load(path).recipe.hash() == hashed


def test_selection_on_test_data_requires_a_key(written):
    extra = "[evaluators.stsb]\nname = 'sts'\ndataset = 'stsb'\n[evaluate]\nmetric_for_best_model = 'stsb.spearman'\n"
    with refuses("recipe.test_selection", "split 'test'"):
        load(written(MINIMAL + extra))
    assert (
        load(written(f"{MINIMAL}{extra}allow_test_selection = true\n")).recipe.evaluate.metric_for_best_model
        == "stsb.spearman"
    )


def test_several_data_sets_are_named_in_order(written):
    recipe = load(written(MINIMAL.replace('"wiki1m"', '["wiki_en", "wiki1m"]'))).recipe
    assert recipe.data.dataset == ("wiki_en", "wiki1m")
    with refuses("recipe.unknown_dataset", "r.toml:3:23: data.dataset.1: ", "'wiki1n'"):
        load(written(MINIMAL.replace('"wiki1m"', '["wiki_en", "wiki1n"]')))


def test_the_data_must_have_the_columns_that_are_read(written):
    augment = "[[views.positive.augment]]\nname = 'fuse_embeddings'\nmodel = 'm'\n"
    text = MINIMAL.replace("[views.positive]\n", augment)
    with refuses("recipe.unknown_column", "r.toml:8:18: ", "'translation'", "[data.columns.translation]"):
        load(written(text))
    assert load(written(text.replace("wiki1m", "tatoeba_en_de"))).recipe.views["positive"].augment


def test_validation_builds_and_fetches_nothing(written, monkeypatch):
    import registry.encoders.transformer as module

    def refuse(*_, **__):
        raise AssertionError("built while validating")

    monkeypatch.setattr(module.TransformerEncoder, "__init__", refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)
    assert load(written(MINIMAL)).recipe.title == "minimal"


def test_directories_globs_and_lists_of_files(written, folder):
    parts = folder / "sub" / "parts"
    parts.mkdir(parents=True)
    (parts / "a.txt").write_text("x\n")
    for value, expected in (
        ('"parts"', str(parts)),
        ('"parts/*.txt"', str(parts / "*.txt")),
        ('["parts/a.txt", "b.txt"]', (str(parts / "a.txt"), "b.txt")),
    ):
        recipe = load(written(MINIMAL.replace('dataset = "wiki1m"', f"file = {value}"), "sub/r.toml")).recipe
        assert recipe.data.file == expected
        assert load(written(to_toml(recipe.resolved()), "again.toml")).recipe.data == recipe.data
    moved = MINIMAL.replace('dataset = "wiki1m"', 'file = ["/elsewhere/a.txt", "/b.txt"]')
    assert load(written(moved, "sub/s.toml")).recipe.hash() == recipe.hash()


@pytest.mark.parametrize(
    ("data", "code", "values"),
    [
        ('dataset = "wiki1m"\nstreaming = true', "recipe.unknown_key", ("data.streaming",)),
        ('dataset = "wiki1m"\ncolumn = "x"', "recipe.conflict", ("data.column",)),
        ('dataset = "hf:wiki"', "recipe.unknown_dataset", ("r.toml:3:11: data.dataset: ", "'hf:wiki'", "hf:owner")),
        ("file = []", "recipe.invalid_value", ("data.file",)),
    ],
)
def test_keys_of_data_that_conflict(written, data, code, values):
    with refuses(code, *values):
        load(written(MINIMAL.replace('dataset = "wiki1m"', data)))


def test_data_sets_of_the_hub_and_of_the_catalog(written):
    data = 'dataset = ["wiki1m", "hf:owner/name:config@v1"]\ncolumn = "sentence"'
    recipe = load(written(MINIMAL.replace('dataset = "wiki1m"', data))).recipe
    assert recipe.data.dataset == ("wiki1m", "hf:owner/name:config@v1")
    assert recipe.data.column == "sentence"


# Names and paths of recipes.


SHIPPED = Path(__file__).resolve().parents[3] / "recipes"


def test_bare_names_mean_the_nearest_recipe(folder):
    assert find("ifcl_en") == SHIPPED / "ifcl_en.toml"
    own = folder / "recipes" / "mine" / "ifcl_en.toml"
    own.parent.mkdir(parents=True)
    own.write_text("")
    assert find("mine/ifcl_en") == own
    (folder / "recipes" / "ifcl_en.toml").write_text("")
    assert find("ifcl_en") == folder / "recipes" / "ifcl_en.toml"
    assert roots() == [folder / "recipes", SHIPPED]


def test_a_path_needs_its_suffix_or_a_file_beside(folder):
    assert find("anything.toml") == Path("anything.toml")
    (folder / "here.toml").write_text("")
    assert find("here") == Path("here.toml")
    assert find("./here") == Path("here.toml")


def test_name_of(folder):
    assert name_of(SHIPPED / "simcse_en.toml") == "simcse_en"
    assert name_of(folder / "else.toml") == "else"


def test_recipes_inside_an_installed_package(folder, monkeypatch):
    package = folder / "site-packages" / "cse_cli"
    (package / "_recipes" / "mini").mkdir(parents=True)
    (package / "_recipes" / "mini" / "own.toml").write_text("")
    (folder / "site-packages" / "recipes").mkdir()
    monkeypatch.setattr("cse_cli.recipe.files._PACKAGE", package)
    assert all_recipes() == {"mini/own": package / "_recipes" / "mini" / "own.toml"}
    assert find("mini/own") == package / "_recipes" / "mini" / "own.toml"


# Evaluators that read a data set or your own file.


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

"""How to run something again: the command leads to the very experiment, or says what is missing."""

from __future__ import annotations

import shlex
from types import SimpleNamespace

import pytest

from cse_cli.analysis.report import fingerprints
from cse_cli.core.identity import Identity
from cse_cli.recipe.changes import recipe_changes, rerun, short_setting, without_directories
from cse_cli.recipe.load import load
from tests.support.records import result


def made(recipe: str, overrides=(), unset=(), asked=None):
    loaded = load(recipe, [*overrides, "train.seed=4"], unset).recipe
    return result(recipe=asked or recipe, recipe_hash=loaded.hash(), seed=4), loaded.resolved()


def hash_of(command: str) -> str:
    """Return the hash of the recipe that a command runs."""
    words = shlex.split(command)
    assert words[:2] == ["cse", "run"]
    options = list(zip(words[3::2], words[4::2], strict=True))
    sets = [value for name, value in options if name == "--set"]
    unset = [value for name, value in options if name == "--unset"]
    return load(words[2], sets, unset).recipe.hash()


def test_the_recipe_as_it_stands():
    run, resolved = made("mini/ifcl_en")
    how = rerun(run, resolved, [4])
    assert (how.changes, how.command) == ((), "cse run mini/ifcl_en --seed 4")
    assert rerun(run, resolved, [0, 4]).command == "cse run mini/ifcl_en --seeds 0,4"


@pytest.mark.parametrize(
    ("overrides", "unset"),
    [
        (["train.precision=bf16", "encoders.online.freeze=[]"], []),
        (["train.steps=20"], ["queue", "tune.queue_length"]),
        (["losses.extra={ name = 'info_nce', views = { positive = 'identical' } }"], []),
    ],
)
def test_changed_settings_become_options(overrides, unset):
    run, resolved = made("mini/ifcl_en", overrides, unset)
    how = rerun(run, resolved, [4])
    assert hash_of(how.command) == run.recipe_hash
    assert how.changes
    assert how.obstacle == ""


def test_a_recipe_that_cannot_be_reached_is_to_be_saved_or_unknown():
    run, resolved = made("mini/ifcl_en", asked="gone")
    how = rerun(run, resolved, [4])
    assert (how.changes, how.command) == (None, "cse run recipe.toml --seed 4")
    assert "save the recipe above as recipe.toml" in how.obstacle
    run, resolved = made("mini/ifcl_en", ["queue.length=320"])
    how = rerun(run, None, [4])
    assert how.changes is None
    assert "unknown" in how.obstacle
    how = rerun(run.model_copy(update={"identity": Identity(settings="0" * 16)}), resolved, [4])
    assert how.command == "cse run recipe.toml --seed 4"


def test_directories_are_left_out():
    plain = {"data": {"file": "/home/me/secret/text.tsv", "max": 3}, "models": ["/a/b", "bert-base"]}
    assert without_directories(plain) == {"data": {"file": "text.tsv", "max": 3}, "models": ["b", "bert-base"]}


def test_different_data_under_one_name_are_listed():
    runs = [SimpleNamespace(fingerprints={"stsb/dev": digest, "training": "t"}) for digest in ("d", "e", "")]
    assert fingerprints(runs) == {"stsb/dev": "d, e", "training": "t"}


# What differs between resolved recipes, and its short text.


def keys(*recipes):
    return {change.key: change.values for change in recipe_changes(recipes)}


def shipped(name: str, *overrides: str):
    return load(name, overrides).recipe.resolved()


@pytest.mark.parametrize(
    ("override", "same"),
    [
        ("train.seed=7", True),
        ('title="x"', True),
        ('train.compile="off"', True),
        ("queue.length=320", False),
    ],
)
def test_equal_hashes_and_no_difference_are_one_rule(override, same):
    one, other = (load("mini/ifcl_en", overrides).recipe for overrides in ([], [override]))
    assert (one.hash() == other.hash(), keys(one.resolved(), other.resolved()) == {}) == (same, same)


def test_differences_are_keys_of_set_or_a_missing_component_as_a_whole():
    found = keys(*(shipped("mini/ifcl_en", f"queue.length={n}") for n in (320, 416, 320)))
    assert found == {"queue.length": (320, 416, 320)}
    change = "views.fraternal.augment.fuse_embeddings.rate"
    assert keys(shipped("mini/ifcl_en"), shipped("mini/ifcl_en", f"{change}=0.8")) == {change: (0.9, 0.8)}
    found = keys(shipped("mini/simcse_en"), shipped("mini/ifcl_en"))
    assert found["queue"][0] is None
    assert found["queue"][1]["length"] == 416
    assert found["encoders.online.freeze"] == ([], ["embeddings"])
    assert not any(key.startswith("evaluators") for key in found)
    one = shipped("mini/ifcl_en")
    assert keys(one, {key: value for key, value in one.items() if key != "tune"}) == {}
    one, other = ({"data": {"file": f"{folder}/a.txt"}, "train": {"seed": 1}} for folder in ("/x", "/y"))
    assert keys(one, other) == {}
    assert keys(one, {"data": {"file": "/x/b.txt"}}) == {"data.file": ("a.txt", "b.txt")}


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("train.steps", None, "—"),
        ("encoders.online.freeze", ["embeddings"], "[embeddings]"),
        ("views.anchor", {"encoder": "online", "column": "text", "augment": []}, "default"),
        ("views.anchor", {"encoder": "target", "column": "text", "augment": []}, "(encoder = target)"),
        ("queue", {"name": "fifo", "view": "key", "length": 64, "own": 1}, "fifo (view = key, length = 64, own = 1)"),
    ],
)
def test_texts(key, value, text):
    assert short_setting(key, value) == text

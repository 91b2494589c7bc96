"""Errors of invalid recipes: exit code 2, a place, a suggestion, and no file on disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cse_cli.recipe.load import load
from cse_cli.recipe.problems import RecipeError
from tests.cse_cli.recipe.broken_recipes import BROKEN, Broken
from tests.support.command import refused
from tests.support.errors import refuses


@pytest.mark.parametrize("broken", BROKEN, ids=lambda b: b.name)
def test_broken_recipe(broken: Broken, folder: Path, home: Path):
    (folder / "broken.toml").write_text(broken.text, encoding="utf-8")
    error = refused("run", "broken.toml")
    assert isinstance(error, RecipeError)
    assert broken.is_in(error), error
    assert error.exit_code == 2
    assert not home.exists()
    assert [path.name for path in folder.iterdir()] == ["broken.toml"]


def test_all_problems_are_in_one_error(folder):
    (folder / "many.toml").write_text(
        'extends = "simcse_en"\ntitel = "x"\n[train]\nseed = -1\nsteps = "9"\n[losses.info_nce]\ntemperature = 0\n'
        "views = { positive = 'anchr' }\n[views.anchor]\nencoder = 'x'\n"
        "[evaluate]\nmetric_for_best_model = 'stsb.spearman'\n"
    )
    with pytest.raises(RecipeError) as caught:
        load("many.toml")
    places = [problem.where for problem in caught.value.problems]
    assert [where for where in places if where.startswith("many")] == [
        "many.toml:2:1", "many.toml:4:8", "many.toml:5:9", "many.toml:7:15", "many.toml:8:22", "many.toml:10:11",
        "many.toml:12:25",
    ]  # fmt: skip
    assert str(caught.value).startswith(f"{len(places)} problems")


def test_a_mistake_in_a_parent_points_into_the_parent(folder):
    (folder / "parent.toml").write_text('extends = "simcse_en"\n[train]\nseed = "one"\n')
    (folder / "child.toml").write_text('extends = "parent.toml"\n[train]\nsteps = 3\n')
    with refuses("recipe.invalid_value", "parent.toml:3:8: train.seed: "):
        load("child.toml")


def test_a_value_that_the_child_replaces_is_not_checked(folder):
    (folder / "parent.toml").write_text('extends = "simcse_en"\n[train]\nseed = "one"\n')
    (folder / "child.toml").write_text('extends = "parent.toml"\n[train]\nseed = 1\n')
    assert load("child.toml").recipe.train.seed == 1


def test_long_circle(folder):
    (folder / "a.toml").write_text('extends = "b.toml"\n')
    (folder / "b.toml").write_text('extends = "a.toml"\n')
    with refuses("recipe.circular_extends", "b.toml:1:11: extends: ", "a.toml → b.toml → a.toml"):
        load("a.toml")


def test_parent_beside_the_child_by_bare_name(folder):
    (folder / "mother.toml").write_text('extends = "simcse_en"\n')
    (folder / "child.toml").write_text('extends = "mother"\n')
    with refuses("recipe.unknown_recipe", "Did you mean 'mother.toml'?"):
        load("child.toml")


@pytest.mark.parametrize(
    ("argument", "code", "values"),
    [
        ("ifcl_enn", "recipe.unknown_recipe", ("'ifcl_enn'", "'ifcl_en'", "cse list recipes")),
        ("gone.toml", "recipe.missing_file", ("gone.toml:1:1: ", "Did you mean 'gonee.toml'")),
        (".", "recipe.unknown_recipe", ("'.'",)),
        ("folder.toml", "recipe.is_directory", ("cse check",)),
        ("latin.toml", "recipe.not_utf8", ("latin.toml:2:1: ", "0xe9")),
        ("", "recipe.unknown_recipe", ("''",)),
    ],
)
def test_no_recipe(argument, code, values, folder, home):
    (folder / "gonee.toml").write_text("")
    (folder / "folder.toml").mkdir()
    (folder / "latin.toml").write_bytes(b'schema = 1\ntitle = "\xe9"\n')
    with refuses(code, *values):
        raise refused("run", argument)
    assert not home.exists()


def test_unreadable(folder, monkeypatch):
    def refuse(path: Path, _mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (folder / "secret.toml").write_text("")
    monkeypatch.setattr(Path, "open", refuse)
    with refuses("recipe.unreadable", "secret.toml:1:1: ", "Permission denied"):
        load("secret.toml")


def test_a_byte_order_mark_is_accepted(folder):
    (folder / "bom.toml").write_bytes(b'\xef\xbb\xbfextends = "simcse_en"\r\n[train]\r\nseed = 3\r\n')
    assert load("bom.toml").recipe.train.seed == 3


@pytest.mark.process
def test_in_a_separate_process(folder, home):
    (folder / "broken.toml").write_text('extends = "simcse_en"\n[train]\nseed = -1\n')
    command = [sys.executable, "-m", "cse_cli", "run", "broken.toml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: broken.toml:3:8: train.seed: should be at least 0, not -1\n"
    assert not home.exists()

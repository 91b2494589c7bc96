"""Shell completion: what it offers, where it takes it from, and that it imports nothing heavy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from cse_cli.recipe import completion
from cse_cli.recipe.completion import complete_anything, complete_component, complete_kind, complete_recipe, remember
from registry import REGISTRIES

HEAVY = ("torch", "transformers", "mlflow", "datasets", "pandas", "scipy", "optuna", "numpy")


def names(offered: list[tuple[str, str]]) -> list[str]:
    return [name for name, _ in offered]


@pytest.fixture
def index(home):
    return home / "cache" / "completion.json"


def test_without_an_index_names_come_from_the_files(index):
    assert sorted(names(complete_component(""))) == sorted(entry.name for kind in REGISTRIES for entry in kind)
    assert names(complete_recipe("simcse_en_r")) == ["simcse_en_roberta", "simcse_en_roberta_large"]
    assert not index.exists()


def test_with_an_index_names_have_summaries(index):
    remember()
    assert json.loads(index.read_text())["version"] == 3
    assert dict(complete_component("twi"))["twins"].startswith("Hold the gap")
    assert dict(complete_anything("ifcl_z")) == {"ifcl_zh": "IFCL, Chinese, BERT base"}
    assert [path.name for path in index.parent.iterdir()] == ["completion.json"]


def test_an_index_is_stale_after_any_change(index, tmp_path, monkeypatch):
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    monkeypatch.chdir(tmp_path)
    remember()
    assert completion._index()
    own = recipes / "own.toml"
    own.write_text('title = "mine"\n')
    assert not completion._index()
    assert dict(complete_recipe("ow")) == {"own": ""}
    remember()
    assert dict(complete_recipe("ow")) == {"own": "mine"}
    os.utime(own, ns=(time.time_ns() + 10**9, time.time_ns() + 10**9))
    assert not completion._index()


def test_an_index_of_another_folder_is_stale(index, tmp_path, monkeypatch):
    remember()
    (tmp_path / "recipes").mkdir()
    monkeypatch.chdir(tmp_path)
    assert not completion._index()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 0}'])
def test_a_broken_index_is_replaced(index, text):
    index.parent.mkdir(parents=True)
    index.write_text(text)
    assert "ifcl_zh" in names(complete_recipe("ifcl_z"))
    remember()
    assert completion._index()


def test_a_home_that_cannot_be_written_is_no_error(home):
    home.parent.mkdir(exist_ok=True)
    home.write_text("a file where the folder should be")
    remember()
    assert complete_component("info")


def test_files_and_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zfolder").mkdir()
    (tmp_path / "zfolder" / "a.toml").write_text("")
    (tmp_path / "zfolder" / "b.txt").write_text("")
    (tmp_path / "one.toml").write_text("")
    assert names(complete_recipe("zf")) == ["zfolder/"]
    assert names(complete_recipe("zfolder/")) == ["zfolder/a.toml"]
    assert names(complete_recipe("./o")) == ["./one.toml"]
    assert names(complete_recipe(f"{tmp_path}/one")) == [f"{tmp_path}/one.toml"]
    assert names(complete_recipe("nowhere/")) == []


def test_kinds():
    assert complete_kind("lo") == ["losses"]
    assert complete_kind("re") == ["recipes"]


def completed(words: str, position: int) -> list[str]:
    environment = {**os.environ, "COMP_WORDS": words, "COMP_CWORD": str(position), "_CSE_COMPLETE": "complete_bash"}
    command = "import sys; sys.argv = ['cse']; from cse_cli.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", command], env=environment, capture_output=True, text=True, check=False)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("cse run simcse_en_r", ["simcse_en_roberta", "simcse_en_roberta_large"]),
        ("cse show hippo", ["hippocampus"]),
        ("cse check ifcl_z", ["ifcl_zh"]),
        ("cse list eval", ["evaluators"]),
    ],
)
def test_in_the_shell(words, offered):
    assert completed(words, 2) == offered


@pytest.mark.parametrize("with_index", [False, True])
def test_imports_nothing_heavy(with_index):
    if with_index:
        remember()
    program = (
        "import sys; from cse_cli.recipe.completion import *; complete_anything('i'); "
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

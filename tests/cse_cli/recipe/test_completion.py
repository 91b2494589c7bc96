"""Shell completion: what it offers, where it takes it from, and that it imports nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cse_cli.recipe.completion import (
    complete_anything,
    complete_component,
    complete_kind,
    complete_recipe,
    complete_recipe_or_study,
    complete_study,
)
from registry import REGISTRIES

HEAVY = ("torch", "transformers", "mlflow", "datasets", "pandas", "scipy", "optuna", "numpy")


def names(offered: list[tuple[str, str]]) -> list[str]:
    return [name for name, _ in offered]


@pytest.mark.slow
def test_every_component_has_its_name_and_summary():
    assert dict(complete_component("")) == {entry.name: entry.summary for kind in REGISTRIES for entry in kind}


@pytest.mark.slow
def test_recipes_have_titles(tmp_path, monkeypatch):
    assert names(complete_recipe("simcse_en_r")) == ["simcse_en_roberta", "simcse_en_roberta_large"]
    assert dict(complete_anything("glove_e")) == {"glove_en": "GloVe averages, English"}
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "own.toml").write_text('title = "mine"\n')
    monkeypatch.chdir(tmp_path)
    assert dict(complete_recipe("ow")) == {"own": "mine"}


@pytest.mark.slow
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
    assert complete_kind("stu") == ["studies"]


@pytest.mark.slow
def test_studies_and_recipes():
    assert names(complete_recipe_or_study("studies/ifcl_q")) == ["studies/ifcl_queue_length"]
    assert names(complete_study("studies/ifcl_q")) == ["studies/ifcl_queue_length"]
    assert complete_recipe("studies/ifcl_q") == []
    assert complete_recipe_or_study("simcse_en_r")[0][0] == "simcse_en_roberta"


def completed(words: str, position: int) -> list[str]:
    environment = {**os.environ, "COMP_WORDS": words, "COMP_CWORD": str(position), "_CSE_COMPLETE": "complete_bash"}
    command = "import sys; sys.argv = ['cse']; from cse_cli.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", command], env=environment, capture_output=True, text=True, check=False)
    return done.stdout.split()


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("cse run simcse_en_r", ["simcse_en_roberta", "simcse_en_roberta_large"]),
        ("cse show hippo", ["hippocampus"]),
        ("cse check ifcl_z", ["ifcl_zh", "ifcl_zh_fixed_margin"]),
        ("cse list eval", ["evaluators"]),
    ],
)
def test_in_the_shell(words, offered):
    assert completed(words, 2) == offered


@pytest.mark.process
def test_imports_nothing_heavy():
    program = (
        "import sys; from cse_cli.recipe.completion import *; complete_anything('i'); "
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

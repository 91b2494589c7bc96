"""Screens of `cse show`, `cse cp`, `cse schema` and `cse check`, with typical errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cse_cli.recipe.view import print_badge
from registry import papers
from registry.papers.audits import SHARED, Code
from tests.support.command import cse, refused

BROKEN = """\
extends = "simcse_en"
titel = "x"
[losses.info_nce]
temprature = 0.1
[views.positive]
encoder = "onlin"
[train]
steps = -1
[evaluate]
metric_for_best_model = "stsb.spearman"
"""


CODE = Code.model_validate(
    {
        "repository": "owner/name",
        "commit": "23d5ebe" + 33 * "0",
        "authors": True,
        "read": "2026-11-25",
        "by": "cse",
        "compared": 23,
        "agree": 22,
        "points": [*SHARED, *(f"point {number}" for number in range(22 - len(SHARED)))],
        "differences": [{"point": "seed", "code": "train.py:1", "here": "42", "page": "S2"}],
    }
)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("COLUMNS", "120")


@pytest.mark.parametrize("command", ["show", "cite", "cp", "schema"])
def test_help(command, capsys, snapshot):
    assert cse(command, "--help", capsys=capsys)[1] == snapshot


def test_show_a_component(capsys, snapshot):
    out = cse("show", "info_nce", capsys=capsys)[1]
    assert out[out.index("\ninputs: ") :] == snapshot  # without its file and documentation


def test_the_checks_of_a_recipe(capsys, snapshot):
    measured = papers.measured_rows()["quickstart"]
    print_badge(replace(papers.badge_of("simcse_en"), page="simcse", equations=("one", "two"), code=(CODE,)))
    print_badge(papers.Badge("mine", "ifcl", measured=measured, code=(CODE.model_copy(update={"authors": False}),)))
    print_badge(papers.Badge("mini/ifcl_en"))
    assert capsys.readouterr().err == snapshot


def test_check_with_problems(capsys, snapshot):
    Path("broken.toml").write_text(BROKEN)
    assert cse("check", "broken.toml", "simcse_en", capsys=capsys)[1:] == snapshot


@pytest.mark.slow
def test_errors(snapshot):
    Path("mine.toml").write_text("")
    errors = [refused("show", "info_nec"), refused("cp", "quickstart", "mine.toml"), refused("check", "simcse_em")]
    assert [(error.code, str(error)) for error in errors] == snapshot

"""The doubtful points of a recipe are those that its comments cite, and their options are valid."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from cse_cli.recipe.load import load
from cse_cli.reproduce.doubts import _pages, doubts

METHODS = Path(__file__).parents[3] / "docs" / "methods"


def of(recipe: str):
    return {one.point: one for one in doubts(load(recipe))}


def test_every_row_of_the_method_pages_is_read():
    rows = sum(page.read_text(encoding="utf-8").count('\n| <a id="') for page in METHODS.glob("*.md"))
    assert len(_pages()) == rows > 300
    page, text, default, switch = _pages()["A10"]
    assert (page, default, switch) == ("ifcl", "the newest (Figure 3)", "`order`")
    assert text == "Whether the newest or the oldest entry has the largest weight."


def test_points_of_a_recipe_with_its_switches():
    found = of("ifcl_en")
    assert {f"A{number}" for number in (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 16)} <= found.keys()
    # Misprints without a switch, and points of other evaluators, are not settings of this recipe.
    assert not {"A8", "A20", "A21", "A23"} & found.keys()
    assert found["A13"].options == (
        "--set losses.identical.weight_on=logit --set losses.fraternal.weight_on=logit",
    )  # fmt: skip
    assert found["A10"].options == ("--set queue.order=oldest_first",)
    assert found["A10"].settings == ("queue.order = newest_first",)
    assert "newest or the oldest" in found["A10"].text
    assert found["A16"].settings == ("views.fraternal.augment.0.model = bert-base-multilingual-uncased",)
    assert (found["A14"].text[:7], found["A12"].options) == ("ε = 0.3", ())


def test_a_switch_with_a_value():
    found = of("diffcse_en")
    assert found["D1"].options == ("--set losses.replaced_token_detection.decode=sample",)
    assert found["D3"].options == ("--set losses.replaced_token_detection.pads=false",)


def test_points_of_the_extended_recipe_come_last():
    points = list(of("ifcl_en"))
    assert points.index("A1") < points.index("S1")
    assert next(iter(of("simcse_en"))).startswith("S")


def test_a_recipe_of_your_own_has_the_points_of_its_parent(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('extends = "focal_infonce_en"\ntitle = "Mine"\n')
    assert "F7" in of(str(file))


@pytest.mark.parametrize("recipe", ["ifcl_en", "mocose_en", "conisi_s_en", "focal_infonce_en", "diffcse_en"])
def test_every_option_changes_the_recipe(recipe):
    before = load(recipe).recipe.hash()
    options = [option for one in of(recipe).values() for option in one.options if "train.precision" not in option]
    assert len(options) > 1
    for option in options:
        words = shlex.split(option)
        assert words[::2] == ["--set"] * (len(words) // 2)
        assert load(recipe, words[1::2]).recipe.hash() != before, option

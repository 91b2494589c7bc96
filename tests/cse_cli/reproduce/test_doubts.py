"""Doubtful points: each is explained on its page, belongs to a recipe, and has options that the recipe accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.recipe.load import load
from cse_cli.reproduce.target import doubts
from registry import papers

METHODS = Path(__file__).parents[3] / "docs" / "methods"


def of(recipe: str) -> dict[str, list[str]]:
    return {point.name: options for point, options in doubts(load(recipe))}


def test_each_point_is_a_row_of_its_page():
    points = papers.doubtful_points()
    assert len({point.name for point in points}) == len(points) > 100
    for point in points:
        page = (METHODS / f"{point.page}.md").read_text(encoding="utf-8")
        assert f"</a>{point.name} | " in page, point.name
        assert point.about[0] != " "
        assert point.recipes


def test_points_of_a_recipe_with_options():
    found = of("ifcl_en")
    assert found["A10"] == ["--set queue.order=oldest_first"]
    # Both losses change together, and a part of this change is not another option.
    assert found["A13"] == ["--set losses.identical.weight_on=logit --set losses.fraternal.weight_on=logit"]
    assert of("ifcl_en_no_fi_tl")["A13"] == ["--set losses.identical.weight_on=logit"]
    # A23 is about other evaluators.
    assert "A23" not in found


def test_points_of_the_extended_recipe_come_last():
    points = list(of("ifcl_en"))
    assert points.index("A1") < points.index("S1")


def test_a_recipe_of_your_own_has_the_points_of_its_parent(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('extends = "focal_infonce_en"\ntitle = "Mine"\n')
    assert "F7" in of(str(file))


@pytest.mark.slow
def test_every_option_is_accepted_by_one_of_its_recipes():
    accepted: dict[str, set[str]] = {}
    for recipe in {recipe for point in papers.doubtful_points() for recipe in point.recipes}:
        for name, options in of(recipe).items():
            accepted.setdefault(name, set()).update(options)
    assert accepted.keys() == {point.name for point in papers.doubtful_points()}

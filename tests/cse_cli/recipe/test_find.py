"""Names and paths of recipes."""

from __future__ import annotations

from pathlib import Path

from cse_cli.recipe.files import all_recipes, find, name_of, roots

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


def test_all_recipes_are_sorted_and_exist():
    found = all_recipes()
    assert list(found) == sorted(found)
    assert len(found) == len([path for path in SHIPPED.rglob("*.toml") if "studies" not in path.parts])
    assert all(path.is_file() for path in found.values())


def test_recipes_inside_an_installed_package(folder, monkeypatch):
    package = folder / "site-packages" / "cse_cli"
    (package / "_recipes" / "mini").mkdir(parents=True)
    (package / "_recipes" / "mini" / "own.toml").write_text("")
    (folder / "site-packages" / "recipes").mkdir()
    monkeypatch.setattr("cse_cli.recipe.files._PACKAGE", package)
    assert all_recipes() == {"mini/own": package / "_recipes" / "mini" / "own.toml"}
    assert find("mini/own") == package / "_recipes" / "mini" / "own.toml"

"""`cse cp`: a recipe as a file of one's own."""

from __future__ import annotations

import pytest

from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import load
from tests.cse_cli.jobs.running import cse


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_recipe_that_inherits_nothing_keeps_its_text(folder, capsys):
    code, out, err = cse("cp", "quickstart", "my.toml", capsys=capsys)
    assert (code, out) == (0, "my.toml\n")
    assert err == "next: change it, then  cse check my.toml  and  cse run my.toml\n"
    assert (folder / "my.toml").read_bytes() == all_recipes()["quickstart"].read_bytes()
    assert cse("check", "my.toml", capsys=capsys)[:2] == (0, "1 recipe checked: all valid\n")


@pytest.mark.parametrize("name", ["ifcl_en", "open/mocose_en", "mini/cross/conisi_fgsm"])
def test_what_is_inherited_is_written_in(name, folder, capsys):
    assert cse("cp", name, "my.toml", capsys=capsys)[0] == 0
    text = (folder / "my.toml").read_text(encoding="utf-8")
    assert text.startswith(f"# A copy of {name}: all that it inherits is written in; its comments: cse show {name}\n")
    assert "extends" not in text.partition("\n")[2]
    assert load("my.toml").recipe == load(name).recipe
    assert [path.name for path in folder.iterdir()] == ["my.toml"]


def test_paths_of_data_still_lead_to_it(folder, capsys):
    (folder / "one").mkdir()
    (folder / "one" / "text.txt").write_text("a sentence\n")
    text = 'extends = "quickstart"\nremove = ["data.dataset"]\n[data]\nfile = ["text.txt", "elsewhere.txt"]\n'
    (folder / "one" / "base.toml").write_text(text)
    (folder / "two").mkdir()
    assert cse("cp", "one/base.toml", "two/my.toml", capsys=capsys)[0] == 0
    assert 'file = ["../one/text.txt", "elsewhere.txt"]' in (folder / "two" / "my.toml").read_text()
    assert load("two/my.toml").recipe.data.files == (str(folder / "one" / "text.txt"), "elsewhere.txt")


@pytest.mark.parametrize(
    ("recipe", "target", "message"),
    [
        ("quickstart", "there.toml", "there.toml exists already"),
        ("quickstart", "my", "'my' does not end in .toml, as a recipe's file does\n  → cse cp quickstart my.toml"),
        ("quickstart", "no/my.toml", "there is no folder no"),
        ("quickstart", "", ". is a folder\n  → cse cp quickstart my.toml"),
        ("quickstrat", "my.toml", "Did you mean 'quickstart'?"),
        ("studies/ifcl_ablation", "my.toml", "is a study, not a recipe"),
        ("broken.toml", "my.toml", "broken.toml:2:1: data: "),
    ],
)
def test_nothing_is_written_where_it_cannot_be(recipe, target, message, folder, capsys):
    (folder / "there.toml").write_text("mine")
    (folder / "broken.toml").write_text('extends = "quickstart"\ndata = 3\n')
    code, out, err = cse("cp", recipe, target, capsys=capsys)
    assert (code, out) == (2, "")
    assert message in err
    assert {path.name: path.read_text() for path in folder.iterdir()}["there.toml"] == "mine"
    assert sorted(path.name for path in folder.iterdir()) == ["broken.toml", "there.toml"]

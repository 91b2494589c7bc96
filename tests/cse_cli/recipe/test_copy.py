"""`cse cp`."""

from __future__ import annotations

import pytest

from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import load
from tests.support.command import cse, refused
from tests.support.errors import refuses

pytestmark = pytest.mark.usefixtures("folder")


def test_a_recipe_that_inherits_nothing_keeps_its_text(folder, capsys):
    code, out, err = cse("cp", "quickstart", "my.toml", capsys=capsys)
    assert (code, out) == (0, "my.toml\n")
    assert "cse check my.toml" in err
    assert (folder / "my.toml").read_bytes() == all_recipes()["quickstart"].read_bytes()
    assert cse("check", "my.toml", capsys=capsys)[:2] == (0, "1 recipe checked: all valid\n")


@pytest.mark.parametrize("name", ["ifcl_en", "mini/mocose_en"])
def test_what_is_inherited_is_written_in(name, folder, capsys):
    assert cse("cp", name, "my.toml", capsys=capsys)[0] == 0
    text = (folder / "my.toml").read_text(encoding="utf-8")
    assert text.startswith(f"# A copy of {name} ")
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
    ("recipe", "target", "code", "value"),
    [
        ("quickstart", "there.toml", "copy.exists", "'there.toml'"),
        ("quickstart", "my", "copy.wrong_suffix", "→ cse cp quickstart my.toml"),
        ("quickstart", "no/my.toml", "copy.missing_directory", "'no'"),
        ("quickstart", "", "copy.is_directory", "→ cse cp quickstart my.toml"),
        ("quickstrat", "my.toml", "recipe.unknown_recipe", "Did you mean 'quickstart'"),
        ("studies/ifcl_ablation", "my.toml", "recipe.not_a_recipe", "cse run studies/ifcl_ablation"),
        ("broken.toml", "my.toml", "recipe.invalid_value", "broken.toml:2:8: data: "),
    ],
)
def test_an_error_leaves_no_file(recipe, target, code, value, folder):
    (folder / "there.toml").write_text("mine")
    (folder / "broken.toml").write_text('extends = "quickstart"\ndata = 3\n')
    with refuses(code, value):
        raise refused("cp", recipe, target)
    assert {path.name: path.read_text() for path in folder.iterdir()}["there.toml"] == "mine"
    assert sorted(path.name for path in folder.iterdir()) == ["broken.toml", "there.toml"]

"""`cse show`, `cp`, `check` and `schema`."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import load
from cse_cli.recipe.schema import tune_of
from cse_cli.recipe.view import levels
from registry import REGISTRIES
from registry.tokens import Embedded
from registry.types import Augmenter, Step
from tests.support.command import cse, refused
from tests.support.errors import refuses

pytestmark = pytest.mark.usefixtures("folder")
RECIPES = Path(__file__).resolve().parents[3] / "recipes"
STUDIES = len(list((RECIPES / "studies").rglob("*.toml")))
COUNT = len(list(RECIPES.rglob("*.toml"))) - STUDIES


def document(text: str) -> dict:
    found = json.loads(text)
    assert found["schema_version"] == 1
    return found


def test_levels_are_told_by_what_is_overridden():
    class Both(Augmenter):
        def on_text(self, samples, rng):
            return samples

        def on_embeddings(self, embedded: Embedded, view: str, step: Step) -> Embedded:
            return embedded

    assert levels(Both) == ["text", "embeddings"]
    assert levels(Augmenter) == []


def test_show_component_as_json(capsys):
    _, out, _ = cse("show", "losses/info_nce", "--json", capsys=capsys)
    (about,) = document(out)["components"]
    assert about["kind"] == "losses"
    assert Path(about["file"]).name == "info_nce.py"
    assert next(p for p in about["parameters"] if p["name"] == "temperature") == {
        "name": "temperature", "type": "number", "required": False, "default": 0.05, "bounds": "> 0",
        "tune": {"low": 0.01, "high": 0.5, "log": True, "step": None},
        "description": "Divisor τ of the cosines. Small values put more weight on the hardest negatives.",
    }  # fmt: skip


@pytest.mark.exhaustive
def test_show_every_component(capsys):
    for registry in REGISTRIES:
        for entry in registry:
            code, out, err = cse("show", f"{registry.kind}/{entry.name}", capsys=capsys)
            assert (code, err) == (0, "")
            assert entry.summary in out


def test_a_range_is_found_inside_an_optional_type(capsys):
    field = next(e for r in REGISTRIES for e in r if e.name == "transformer").parameters.model_fields["dropout"]
    tune = tune_of(field)
    assert tune is not None
    assert (tune.low, tune.high) == (0.05, 0.3)


@pytest.mark.slow
def test_show_recipe_as_written_and_resolved(capsys):
    _, out, _ = cse("show", "ifcl_en", capsys=capsys)
    assert out == (RECIPES / "ifcl_en.toml").read_text(encoding="utf-8")
    _, out, _ = cse("show", "ifcl_en", "--resolved", "--set", "queue.length=512", capsys=capsys)
    assert tomllib.loads(out) == load("ifcl_en", ["queue.length=512"]).recipe.resolved()
    _, out, _ = cse("show", str(RECIPES / "ifcl_en.toml"), "--json", capsys=capsys)
    found = document(out)
    assert found["hash"] == load("ifcl_en").recipe.hash()
    assert [Path(path).name for path in found["extends"]] == ["simcse_en.toml"]


@pytest.mark.slow
def test_show_the_checks_of_a_recipe_beside_its_text(capsys, folder):
    _, out, err = cse("show", "ifcl_en", capsys=capsys)
    assert out == (RECIPES / "ifcl_en.toml").read_text(encoding="utf-8")
    assert err.startswith("checks of ifcl_en, explained in docs/fidelity.md:\n  equations: 4 tests ")
    assert max(map(len, err.splitlines())) <= 80
    badge = document(cse("show", "ifcl_en", "--json", capsys=capsys)[1])["badge"]
    assert (badge["recipe"], badge["line"]) == ("ifcl_en", "equations")
    assert cse("show", "ifcl_en", "--resolved", capsys=capsys)[2] == err


@pytest.mark.slow
def test_only_an_unchanged_recipe_of_the_package_has_checks(capsys, folder):
    assert cse("show", "ifcl_en", "--set", "queue.length=512", capsys=capsys)[2] == ""
    changed = document(cse("show", "ifcl_en", "--set", "queue.length=512", "--json", capsys=capsys)[1])
    assert changed["badge"] is None
    _, _, err = cse("show", "mini/ifcl_en", capsys=capsys)
    assert "none. A recipe has no part in the checks of the recipe that it extends" in err.replace("\n   ", "")
    (folder / "recipes").mkdir()
    (folder / "recipes" / "ifcl_en.toml").write_text('extends = "simcse_en"\n')
    assert cse("show", "ifcl_en", capsys=capsys)[1:] == ('extends = "simcse_en"\n', "")


@pytest.mark.slow
def test_show_a_data_set(capsys):
    code, out, _ = cse("show", "tatoeba_open", capsys=capsys)
    assert code == 0
    assert "license: CC BY 2.0 France; attribution: tatoeba.org and www.manythings.org/anki\n" in out
    assert out.split("\n")[-2].split() == ["train", "12,000", "package", "text,", "translation"]
    _, out, _ = cse("show", "stsb_open", "--json", capsys=capsys)
    about = document(out)["dataset"]
    assert (about["kind"], about["license"][:12]) == ("pairs", "CC BY-SA 4.0")
    assert [(split["name"], split["rows"], split["where"]) for split in about["splits"]] == [
        ("dev", 750, "package"), ("test", 629, "package"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "near"), [("info_nec", "info_nce"), ("simcse_em", "simcse_en"), ("tatoeba_opne", "tatoeba_open")]
)
def test_show_suggests(name, near, capsys):
    code, out, err = cse("show", name, capsys=capsys)
    assert (code, out) == (2, "")
    assert f"'{near}'" in err


def test_check_folder_with_a_mistake(tmp_path, monkeypatch, home, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "good.toml").write_text('extends = "simcse_en"\n')
    (tmp_path / "sub" / "bad.toml").write_text('extends = "simcse_en"\n[train]\nseed = -1\nsteps = -1\n')
    code, out, _ = cse("check", "sub", "ifcl_en", capsys=capsys)
    assert code == 2
    assert out.split("\n") == [
        "sub/bad.toml:3:8: train.seed: should be at least 0, not -1",
        "sub/bad.toml:4:9: train.steps: should be at least 0, not -1",
        "3 recipes checked: 1 with problems", "",
    ]  # fmt: skip
    code, out, _ = cse("check", "sub", "--json", capsys=capsys)
    found = document(out)
    assert (code, found["checked"], found["invalid"]) == (2, 2, 1)
    assert found["recipes"][0]["problems"][0]["where"] == "sub/bad.toml:3:8"
    assert found["recipes"][1]["hash"] == load("simcse_en").recipe.hash()
    assert not home.exists()


def test_check_of_an_empty_folder(tmp_path, capsys):
    code, out, err = cse("check", str(tmp_path), capsys=capsys)
    assert (code, out) == (2, "")
    assert "contains no recipe (*.toml)" in err


@pytest.mark.slow
def test_schema_to_stdout_and_to_a_file(folder, capsys):
    _, out, _ = cse("schema", capsys=capsys)
    assert json.loads(out)["$schema"].endswith("2020-12/schema")
    target = folder / "recipe.schema.json"
    code, nothing, _ = cse("schema", "--output", str(target), capsys=capsys)
    assert (code, nothing) == (0, "")
    assert target.read_text(encoding="utf-8") == out
    assert [path.name for path in folder.iterdir()] == ["recipe.schema.json"]
    code, _, err = cse("schema", "--output", "no/x.json", capsys=capsys)
    assert code == 2
    assert "cannot write" in err


# cse cp.


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

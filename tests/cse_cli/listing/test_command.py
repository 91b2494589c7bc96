"""`cse list`: components, studies and recipes, and which recipes run on this machine."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cse_cli.listing.inventory import recipe_lines
from cse_cli.listing.view import needs
from cse_cli.recipe.files import all_recipes
from registry import LOSSES, REGISTRIES
from tests.support.command import cse, refused

pytestmark = pytest.mark.slow

RECIPES = Path(__file__).resolve().parents[3] / "recipes"
STUDIES = len(list((RECIPES / "studies").rglob("*.toml")))
COUNT = len(list(RECIPES.rglob("*.toml"))) - STUDIES
SMALL = sorted(path.stem for path in (RECIPES / "mini").glob("*.toml"))


@pytest.fixture(autouse=True)
def nothing_cached(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def test_one_screen_names_small_recipes_and_every_component(capsys):
    code, out, err = cse("list", capsys=capsys)
    assert (code, err) == (0, "")
    assert f"recipes ({COUNT}). Small ones, and yours:\n" in out
    assert f"\nmini/: {', '.join(SMALL)}\n" in out
    assert f"studies ({STUDIES})" in out
    assert all(entry.name in out for registry in REGISTRIES for entry in registry)
    assert out.count("\n") < 25


def test_small_recipes_need_no_download():
    files = all_recipes()
    lines = recipe_lines(
        {name: files[name] for name in ("quickstart", *(f"mini/{name}" for name in SMALL))}, in_full=True
    )
    assert {line["name"]: line["state"] for line in lines if line["state"] != "here"} == {}


def test_all_of_it_has_a_line_each(capsys):
    code, out, err = cse("list", "--all", capsys=capsys)
    assert (code, err) == (0, "")
    for registry in REGISTRIES:
        assert f"{registry.kind} ({len(registry)})" in out
        assert all(entry.name in out and entry.summary in out for entry in registry)
    assert f"recipes ({COUNT})" in out
    assert f"studies ({STUDIES})" in out
    assert "ifcl · sts_en · IFCL-BERT base" in out


def test_recipes_with_their_titles(capsys):
    code, out, _ = cse("list", "recipes", capsys=capsys)
    assert code == 0
    rows = dict(re.findall(r"^(\S+) {2,}(.*)$", out, re.MULTILINE))
    assert rows["quickstart"] == "Quickstart: IFCL, Ditto, whitening, English, mini_en"
    assert rows["mini/bert_avg_en"] == "First-last average, English, mini_en"
    assert len(rows) == COUNT + 1
    assert "info_nce" not in out


def test_recipes_with_what_they_need(capsys):
    code, out, _ = cse("list", "recipes", "--all", capsys=capsys)
    assert code == 0
    rows = dict(re.findall(r"^(\S+) {2,}.*?  (.*)$", out, re.MULTILINE))
    assert "wiki1m (120 MB), bert-base-uncased (441 MB)" in rows["simcse_en"]
    assert "wiki1m (120 MB), google-t5/t5-base (894 MB), bert-base-uncased (441 MB)" in rows["ifcl_en"]
    assert "wiki_en_1m (no download)" in rows["pretrain_mini_en"]


def test_small_data_sets_are_listed_if_nothing_else_is():
    def one(kind, name, size, state="fetchable"):
        return {"kind": kind, "name": name, "state": state, "bytes": size}

    lacks = [one("dataset", "small", 1000), one("dataset", "large", 20_000_000), one("model", "tiny", 1_500_000)]
    assert needs(lacks) == "large (20 MB), tiny (1.5 MB)"
    assert needs([one("model", "unknown", None), *lacks[:1]]) == "unknown"
    assert needs(lacks[:1]) == "small (1.0 kB)"
    assert needs([*lacks[:1], one("dataset", "other", 20_000)]) == "2 small data sets (21 kB)"


def test_list_as_json(capsys):
    _, out, _ = cse("list", "--json", capsys=capsys)
    brief = {line["name"]: line for line in json.loads(out)["recipes"]}
    assert set(brief["ifcl_en_no_tl"]) == {"name", "title", "path"}
    _, out, _ = cse("list", "--all", "--json", capsys=capsys)
    found = json.loads(out)
    assert found["schema_version"] == 1
    assert found["losses"] == [
        {"kind": "losses", "name": entry.name, "summary": entry.summary, "distribution": "cse"} for entry in LOSSES
    ]
    recipes = {line["name"]: line for line in found["recipes"]}
    assert recipes["ifcl_en_no_tl"]["title"].startswith("IFCL without")
    assert (recipes["quickstart"]["state"], recipes["quickstart"]["needs"]) == ("here", [])
    assert recipes["bert_avg_en"]["state"] == "fetchable"
    assert (recipes["ifcl_en"]["checks"], recipes["mini/ifcl_en"]["checks"]) == ("equations", "")
    assert recipes["bert_avg_en"]["needs"][0] == {
        "kind": "model", "name": "bert-base-uncased", "split": "", "state": "fetchable", "bytes": 441147956,
        "problem": "", "action": "",
    }  # fmt: skip
    assert recipes["ifcl_en"]["state"] == "fetchable"
    assert "google-t5/t5-base" in [need["name"] for need in recipes["ifcl_en"]["needs"]]
    text = next(need for need in recipes["ifcl_zh"]["needs"] if need["name"] == "wiki_zh")
    assert (recipes["ifcl_zh"]["state"], text["state"]) == ("missing", "missing")


def test_list_of_an_unknown_kind():
    error = refused("list", "loss")
    assert error.code == "list.unknown_kind"
    assert "'losses'" in error.message


@pytest.fixture
def list_with(tmp_path, monkeypatch, capsys):
    """Return what writes a recipe of one's own and lists all."""

    def listed(name, text):
        (tmp_path / "recipes").mkdir()
        (tmp_path / "recipes" / name).write_text(text)
        monkeypatch.chdir(tmp_path)
        code, out, _ = cse("list", "recipes", "--all", capsys=capsys)
        assert code == 0
        return out

    return listed


def test_a_recipe_that_is_broken_does_not_hide_the_others(list_with):
    out = list_with("bad.toml", "title = \n")
    assert re.search(r"^bad +\(not valid: see `cse check`\)", out, re.MULTILINE)
    assert "ifcl_en" in out


def test_rich_markup_in_a_recipe_is_shown_as_it_is(list_with):
    assert "[/bold] a [red]b" in list_with("own.toml", 'extends = "quickstart"\ntitle = "[/bold] a [red]b"\n')

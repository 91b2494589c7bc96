"""`cse list`: components, studies, and which recipes run on this machine."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cse_cli.data.requirements import Availability
from cse_cli.listing.inventory import recipe_lines
from cse_cli.listing.view import needs
from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.requirements import Requirement
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


def test_one_screen_names_what_runs_here_and_every_component(capsys):
    code, out, err = cse("list", capsys=capsys)
    assert (code, err) == (0, "")
    assert f"recipes ({COUNT}). Ready to run:\n" in out
    examples = "pairs_csv, search, triplets_jsonl"
    assert f":\nquickstart\nexamples/: {examples}\nmini/: {', '.join(SMALL)}\n" in out
    assert f"studies ({STUDIES})" in out
    assert all(entry.name in out for registry in REGISTRIES for entry in registry)
    assert out.count("\n") < 25


def test_all_of_it_has_a_line_each(capsys):
    code, out, err = cse("list", "--all", capsys=capsys)
    assert (code, err) == (0, "")
    for registry in REGISTRIES:
        assert f"{registry.kind} ({len(registry)})" in out
        assert all(entry.name in out and entry.summary in out for entry in registry)
    assert f"recipes ({COUNT})" in out
    assert f"studies ({STUDIES})" in out
    assert "ifcl · sts_en · IFCL-BERT base" in out


def test_recipes_by_state_with_what_they_need(capsys):
    code, out, _ = cse("list", "recipes", capsys=capsys)
    assert code == 0
    rows = dict(re.findall(r"^(\S+) {2,}(.*)$", out, re.MULTILINE))
    assert rows["quickstart"] == "Quickstart: IFCL, Ditto, whitening, English, mini_en"
    assert rows["simcse_en"] == "wiki1m (120 MB), bert-base-uncased (441 MB)"
    assert rows["mini/bert_avg_en"] == "First-last average, English, mini_en"
    assert rows["mini/ifcl_en"] == "IFCL, English, mini_en"
    assert rows["ifcl_en"].startswith("wiki1m (120 MB), google-t5/t5-base (894 MB), bert-base-uncased (441 MB)")
    assert rows["pretrain_mini_en"].startswith("wiki_en_1m (not published)")
    headings = re.findall(r"^([a-z ]+) \(\d+\): ", out, re.MULTILINE)
    assert headings == ["recipes ready to run", "recipes that need a download", "recipes that need your data"]
    assert "info_nce" not in out


def test_small_data_sets_are_listed_if_nothing_else_is():
    def one(kind, name, size, state="fetchable"):
        return Availability(Requirement(kind, name, "test"), state, bytes=size)

    lacks = [one("dataset", "small", 1000), one("dataset", "large", 20_000_000), one("model", "tiny", 1_500_000)]
    assert needs(lacks) == "large (20 MB), tiny (1.5 MB)"
    assert needs([one("model", "unknown", None), *lacks[:1]]) == "unknown"
    assert needs(lacks[:1]) == "small (1.0 kB)"
    assert needs([*lacks[:1], one("dataset", "other", 20_000)]) == "2 small data sets (21 kB)"


def test_list_of_one_kind(capsys):
    code, out, _ = cse("list", "losses", capsys=capsys)
    assert code == 0
    assert "info_nce" in out
    assert LOSSES["info_nce"].summary in out
    assert "transformer" not in out


def test_list_as_json(capsys):
    _, out, _ = cse("list", "--json", capsys=capsys)
    found = json.loads(out)
    assert found["schema_version"] == 1
    assert [line["name"] for line in found["losses"]] == LOSSES.names()
    assert next(line for line in found["augmenters"] if line["name"] == "fuse_embeddings")["levels"] == ["embeddings"]
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


def test_what_is_here_is_not_needed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {"glove_en": all_recipes()["glove_en"]}
    assert "glove.840B.300d.txt" in [one.requirement.name for one in recipe_lines(files)[0].lacks]
    (tmp_path / "glove.840B.300d.txt").write_text("a 1 2\n")
    (line,) = recipe_lines(files)
    assert line.state == "fetchable"
    assert "glove.840B.300d.txt" not in [one.requirement.name for one in line.lacks]


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
        code, out, _ = cse("list", "recipes", capsys=capsys)
        assert code == 0
        return out

    return listed


def test_a_recipe_that_is_broken_does_not_hide_the_others(list_with):
    out = list_with("bad.toml", "title = \n")
    assert re.search(r"^recipes that are not valid \(1\): .*\nname +title\nbad +\(not valid", out, re.MULTILINE)
    assert "ifcl_en" in out


def test_rich_markup_in_a_recipe_is_shown_as_it_is(list_with):
    assert "[/bold] a [red]b" in list_with("own.toml", 'extends = "quickstart"\ntitle = "[/bold] a [red]b"\n')

"""`cse cite`: which entries recipes, data sets, models and runs have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cse_cli.listing.citations import citations
from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import load
from cse_cli.recipe.requirements import requirements
from registry.papers import method_keys
from registry.papers.bibliography import TOOL, references
from registry.resources.models import known
from tests.support.command import cse, refused
from tests.support.records import recorded, result


def keys(*names: str) -> list[str]:
    return [one.key for one in citations(names).references]


def test_the_entries_of_a_recipe(capsys, snapshot):
    assert cse("cite", "mini/focal_infonce_en", capsys=capsys) == snapshot


def test_without_a_name_it_is_the_tool(capsys):
    code, out, err = cse("cite", capsys=capsys)
    assert (code, out, err) == (0, f"{references()[TOOL].bibtex}\n", "")


def test_a_method_is_followed_by_those_that_it_extends_and_by_models_and_data():
    assert keys("diffcse_en")[:4] == [TOOL, "chuang2022diffcse", "gao2021simcse", "devlin2019bert"]
    assert keys("echo_en")[:4] == [TOOL, "springer2024repetition", "jiang2024scaling", "reimers2019sentence"]
    assert "jiang2023mistral" in keys("echo_en")
    assert "hou2023improving" in keys("mini/focal_infonce_en")  # as focal_infonce_en, which it does not extend
    evaluated = {"agirre2012semeval", "agirre2016semeval", "cer2017semeval", "marelli2014sick"}
    assert evaluated <= set(keys("diffcse_en"))


def test_several_names_have_each_entry_once():
    assert keys("stsb", "roberta-base") == [TOOL, "cer2017semeval", "liu2019roberta"]
    assert keys("stsb_open", "stsb") == [TOOL, "cer2017semeval"]
    assert keys("google-bert/bert-base-uncased", "bert-large-uncased") == [TOOL, "devlin2019bert"]
    assert keys("mini_en") == [TOOL]


def test_json(capsys):
    document = json.loads(cse("cite", "stsb", "--json", capsys=capsys)[1])
    assert document["schema_version"] == 1
    assert document["without"] == []
    tool, entry = document["references"]
    assert (tool["key"], entry["type"], entry["fields"]["year"]) == (TOOL, "inproceedings", "2017")
    assert entry["bibtex"] == references()["cer2017semeval"].bibtex


def test_a_recipe_of_yours(folder, capsys):
    Path("mine.toml").write_text('extends = "mini/simcse_en"\n')
    assert keys("mine.toml") == keys("mini/simcse_en")
    (folder / "sentences.txt").write_text("one\ntwo\n")
    Path("own.toml").write_text(
        'schema = 1\ntitle = "Mine"\nlanguage = "en"\n[data]\nfile = "sentences.txt"\n'
        '[encoders.online]\nname = "transformer"\nmodel = "me/unlisted"\npooling = "mean"\n'
        "[views.anchor]\n[views.positive]\n[losses.info_nce]\n"
        "[train]\nsteps = 1\nbatch_size = 2\nlearning_rate = 1e-4\n"
    )
    code, out, err = cse("cite", "own.toml", capsys=capsys)
    assert (code, out) == (0, f"{references()[TOOL].bibtex}\n")
    assert err == "note: cse has no entry for the method of own, me/unlisted\n"


def test_a_run_has_the_methods_of_its_recipe_and_the_models_of_its_record(folder):
    resolved = load("mini/diffcse_en", ["encoders.online.model=roberta-base"]).recipe.resolved()
    run_id = recorded(result(recipe="mini/diffcse_en"), resolved=resolved, name="a run").run_id
    expected = keys("mini/diffcse_en")
    assert keys(run_id[:8]) == keys("a run")
    assert set(keys("a run")) == {*expected, "liu2019roberta"}
    moved = recorded(result(recipe="gone.toml", source=str(folder / "gone.toml")), resolved=resolved, name="b").run_id
    assert "chuang2022diffcse" not in keys(moved)
    assert citations([moved]).without == ("the method of b",)


@pytest.mark.parametrize(
    ("name", "closest"),
    [("simcse_enn", "simcse_en"), ("wiki1n", "wiki1m"), ("roberta-bas", "roberta-base"), ("studies/open", "")],
)
def test_an_unknown_name(name, closest):
    error = refused("cite", name)
    assert (error.code, error.exit_code) == ("cite.unknown_name", 2)
    assert f"'{name}'" in str(error)
    assert closest in str(error)


def test_recipes_without_methods_of_their_own_are_known():
    """They only change the encoder, the data or a setting of the recipe that they extend."""
    assert {name for name in all_recipes() if not method_keys(name)} == {
        "augmentation_quality_zh", "bsl_en_roberta", "examples/pairs_csv", "examples/pairs_hub",
        "examples/triplets_jsonl", "roberta_whitening_en", "roberta_whitening_en_large", "simcse_en_eurobert",
        "simcse_en_gemma3", "simcse_en_modernbert", "simcse_en_qwen3", "simcse_zh", "simcse_zh_cstsb",
    }  # fmt: skip


@pytest.mark.slow
def test_every_recipe_of_the_package_has_entries_of_methods_encoders_and_data():
    for name in all_recipes():
        found = citations([name])
        assert [one for one in found.without if not one.startswith("hf:")] == [], name
        models = [known(one.name) for one in requirements(load(name).recipe) if one.kind == "model"]
        of_models = {key for about in models if about is not None for key in about.cite}
        assert of_models <= {one.key for one in found.references}
        assert len(found.references) > 1

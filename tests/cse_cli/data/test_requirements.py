"""What a recipe needs, told before anything is downloaded."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cse_cli.data import requirements as module
from cse_cli.data.requirements import availability, fetch, parse_requirements
from cse_cli.recipe.check import requirements_of
from cse_cli.recipe.load import load
from cse_cli.recipe.requirements import Requirement, merged_requirements, requirements
from registry.errors import MissingError
from registry.resources import hub, models
from registry.resources.models import known_models, model_state
from tests.support.command import cse
from tests.support.errors import refuses
from tests.support.shrunken import recipe


def silent(*_):
    pass


def needs(name, *overrides):
    return [(one.kind, one.name, one.split) for one in requirements(load(name, overrides).recipe)]


def test_a_recipes_models_and_data_are_listed_once_in_its_order():
    assert needs("ifcl_en") == [
        ("dataset", "wiki1m", "train"),
        ("model", "google-t5/t5-base", ""),
        ("model", "bert-base-uncased", ""),
        ("model", "bert-base-multilingual-uncased", ""),
        ("dataset", "stsb", "dev"),
        *(("dataset", f"sts{year}", "test") for year in range(12, 17)),
        ("dataset", "stsb", "test"),
        ("dataset", "sickr", "test"),
    ]


def test_places_of_the_recipe_that_name_it_are_told():
    found = {one.name: one.wanted_by for one in requirements(load("diffcse_en").recipe)}
    assert found["distilbert-base-uncased"] == ("losses.replaced_token_detection.generator",)
    assert found["bert-base-uncased"] == (
        "encoders.online.model",
        "losses.replaced_token_detection.discriminator",
    )


def test_without_training_the_training_text_is_not_needed():
    assert ("dataset", "wiki1m", "train") in needs("simcse_en")
    assert ("dataset", "wiki1m", "train") not in needs("bert_avg_en")


def test_an_encoder_fitted_to_evaluators_needs_whole_data_sets():
    fitted = needs("bert_whitening_en", 'encoders.white.fit_on="target"')
    assert ("dataset", "stsb", "all") in fitted
    assert ("dataset", "sickr", "all") in fitted
    assert ("dataset", "stsb", "test") not in fitted
    assert all(name not in ("target", "") for _, name, _ in fitted)


def test_every_split_is_needed_where_an_evaluator_names_none():
    part = 'evaluators.mr={ name = "transfer", task = "mr" }'
    assert ("dataset", "mr", "all") in needs("mini/simcse_en", part)


def test_lists_and_files_count_too():
    assert {("dataset", "stsb", "dev"), ("dataset", "sickr", "dev")} <= set(needs("dclr_en"))
    assert ("file", "glove.840B.300d.txt", "") in needs("glove_en")
    own = 'evaluators.own={ name = "sts", file = "hf:owner/name", split = "validation" }'
    assert ("dataset", "hf:owner/name", "validation") in needs("mini/simcse_en", own)


def test_words_of_a_command_line():
    assert [
        (one.kind, one.name, one.split)
        for one in parse_requirements(["stsb/dev", "trec", "bert-base-uncased", "hf:a/b"])
    ] == [
        ("dataset", "stsb", "dev"),
        ("dataset", "trec", "train"),
        ("dataset", "trec", "test"),
        ("model", "bert-base-uncased", ""),
        ("dataset", "hf:a/b", "train"),
    ]


def test_the_quickstart_has_everything_in_the_package():
    found = [availability(one) for one in merged_requirements([load("quickstart").recipe])]
    assert {(one.requirement.name, one.state, one.origin) for one in found} == {
        ("tatoeba_open", "here", "package"),
        ("wiki1m_prefix", "here", "package"),
        ("stsb_open", "here", "package"),
        ("mini_en", "here", "package"),
        ("mini_de", "here", "package"),
    }


def test_the_check_of_what_is_needed_heeds_set(capsys):
    setting = "encoders.online.model=mini_de"
    code, out, _ = cse("check", "--data", "quickstart", "--set", setting, "--json", capsys=capsys)
    needed = {one["requirement"]["name"] for one in json.loads(out)["requirements"]}
    assert code == 0
    assert needed == {"tatoeba_open", "wiki1m_prefix", "stsb_open", "mini_de"}
    requirement = requirements_of(["studies/mini/ifcl_queue_length"], ["data.dataset=tatoeba_open"])
    assert "tatoeba_open" in {one.name for one in requirement}


@pytest.fixture
def nothing_cached(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def test_what_can_be_fetched_says_from_where_and_how_much(nothing_cached):
    one = availability(Requirement("model", "bert-base-uncased"))
    assert (one.state, one.origin) == ("fetchable", "hf:google-bert/bert-base-uncased@86b5e0934494")
    assert one.bytes == pytest.approx(441e6, rel=0.01)
    assert availability(Requirement("dataset", "wiki1m", "train")).license == "CC BY-SA (Wikipedia)"


def test_what_makes_a_column_is_required(nothing_cached):
    wanted = merged_requirements([load("ifcl_en").recipe])
    assert [one.name for one in wanted[:2]] == ["wiki1m", "google-t5/t5-base"]
    assert wanted[1].wanted_by == ("data.columns.translation.model",)
    evaluated = requirements(load("augmentation_quality_en").recipe)
    assert "google-t5/t5-base" in [one.name for one in evaluated]


def test_a_known_file_is_downloaded_unless_it_is_here(nothing_cached, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    vectors = next(one for one in requirements(load("glove_en").recipe) if one.kind == "file")
    found = availability(vectors)
    assert (found.state, found.origin) == ("fetchable", "https://nlp.stanford.edu/data/glove.840B.300d.zip")
    assert found.bytes == 2_176_768_927
    Path("glove.840B.300d.txt").write_text("a 1 2\n")
    assert availability(vectors).state == "here"
    assert availability(replace(vectors, name="mine.txt")).state == "missing"


def test_a_model_without_an_address_is_not_searched_on_the_hub(nothing_cached):
    without = [about for about in known_models().values() if not about.downloadable]
    assert len(without) == 7
    for about in without:
        (name,) = about.names
        one = availability(Requirement("model", name), ask_hub=True)
        what = f"model '{name}' is not on this machine, and cse has no address to download it from. It is {about.note}"
        assert (one.state, one.problem) == ("missing", what)
        assert one.action == f"put its directory, with the name {name}, into the directory that CSE_MODELS names"


def test_the_origin_of_models_that_others_publish(nothing_cached):
    of = {"llm2vec_mntp": "McGill-NLP/LLM2Vec-Sheared-LLaMA-mntp", "TNCSE_BERT_encoder1": "huggingface.co/UCASzty"}
    for name, origin in of.items():
        with pytest.raises(MissingError, match=origin) as caught:
            model_state(name)
        assert "published" not in caught.value.message


def test_all_missing_ones_are_reported_before_a_download(nothing_cached, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub, "unreachable", lambda: None)
    monkeypatch.setattr(models, "locate", lambda *_, **__: pytest.fail("downloaded"))
    mine = load("simcse_en", [f"data.file={tmp_path}/mine.txt"], ["data.dataset"]).recipe
    wanted = [*merged_requirements([load("ifcl_zh").recipe]), *merged_requirements([mine])]
    expected = ["wiki_zh", "mine.txt", "GB"]
    with refuses("data.missing_requirement", *expected, "nothing was downloaded") as caught:
        fetch(wanted, silent)
    assert caught.value.exit_code == 3


def test_without_a_network_all_downloads_are_missing(nothing_cached, monkeypatch):
    monkeypatch.setattr(hub, "unreachable", lambda: "HF_HUB_OFFLINE forbids asking the hub")
    expected = ["model bert-base-uncased (441.1 MB), dataset stsb/dev (86.4 kB): not on this machine, and HF_HUB"]
    with refuses("data.missing_requirement", *expected) as caught:
        fetch(parse_requirements(["bert-base-uncased", "stsb/dev"]), silent)
    message = str(caught.value)
    assert message.count("HF_HUB_OFFLINE forbids") == message.count("cse data download") == 1  # grouped by reason


def test_an_unknown_data_set_is_told_with_the_nearest_name():
    found = availability(Requirement("dataset", "stbs", "dev"))
    assert found.state == "missing"
    assert "Did you mean 'stsb'" in found.problem


def test_shared_archives_are_counted_once(nothing_cached):
    found = [availability(one) for one in parse_requirements(["mr", "cr"])]
    assert [one.state for one in found] == ["fetchable", "fetchable"]
    assert found[0].bytes == found[1].bytes
    assert module.download_size(found) == module.download_size(found[:1])


@pytest.mark.slow
def test_requirements_of_a_study_are_reported_once(folder, parts, capsys):
    recipe(folder, parts)
    (folder / "lacking.toml").write_text(
        '[study]\ntitle = "Lacking"\nrecipe = "small.toml"\nseeds = 3\nset = ["encoders.online.model=/no/such/model"]\n'
        '[[study.rows]]\nrow = "one"\n[[study.rows]]\nrow = "other"\nset = ["train.learning_rate=1e-3"]\n'
    )
    code, out, err = cse("run", "lacking.toml", capsys=capsys)
    assert (code, out) == (3, "")
    assert err.count("error:") == 1
    assert cse("runs", "ls", "--json", capsys=capsys)[1].count("run_id") == 0


def test_an_optional_package_that_is_not_installed_is_named_before_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("cse_cli.recipe.requirements.find_spec", lambda name: None)
    file = tmp_path / "mine.toml"
    file.write_text('extends = "quickstart"\n[evaluators.task]\nname = "mteb"\ntask = "STS12"\n')
    found = needs(str(file))
    assert ("package", "mteb", "") in found
    assert ("package", "peft", "") not in found  # lora_rank is not set
    code, out, err = cse("check", str(file), capsys=capsys)
    assert (code, out) == (0, "1 recipe checked: all valid\n")
    assert err == f"warning: {file}: package mteb: it is not installed; run `pip install mteb`\n"
    assert cse("check", "--data", str(file), capsys=capsys)[0] == 3
    with refuses("data.missing_requirement", "package mteb"):
        fetch([one for one in requirements(load(str(file)).recipe) if one.kind == "package"], silent)

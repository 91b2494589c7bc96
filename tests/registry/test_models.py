import json
import os
import re
import shutil
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file

from registry.resources import hub
from registry.resources.models import (
    PRETRAINED,
    complete,
    find,
    known,
    known_models,
    load_config,
    load_model,
    load_tokenizer,
    local_names,
    locate,
    model_state,
    needed_files,
    settings_sha256,
    weights_sha256,
)
from tests.fake_hub.fixture import use
from tests.fake_hub.server import FakeHub
from tests.support.errors import refuses
from tests.support.tiny import tiny_bert


@pytest.fixture(autouse=True)
def _no_models(monkeypatch):
    monkeypatch.delenv("CSE_MODELS", raising=False)


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def test_a_relative_directory_becomes_absolute(tmp_path, monkeypatch):
    tiny_bert(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert locate("./tiny") == locate("tiny") == tmp_path / "tiny"


def test_a_name_under_cse_models_comes_before_the_shipped_one(tmp_path, monkeypatch):
    assert locate("mini_en") == PRETRAINED / "mini_en"
    tiny_bert(tmp_path, name="mini_en")
    monkeypatch.setenv("CSE_MODELS", str(tmp_path))
    assert locate("mini_en") == tmp_path / "mini_en"
    assert "mini_en" in local_names()
    tiny_bert(tmp_path, name="bert-base-uncased")
    assert locate("google-bert/bert-base-uncased") == locate("bert-base-uncased") == tmp_path / "bert-base-uncased"


def test_a_directory_without_a_model_is_not_a_model(tmp_path, monkeypatch):
    (tmp_path / "mini_en").mkdir()
    monkeypatch.chdir(tmp_path)
    assert locate("mini_en") == PRETRAINED / "mini_en"


@pytest.mark.parametrize(("name", "state"), [("nowhere", "does not exist"), ("empty", "no config.json")])
def test_a_path_that_is_no_model_is_named(tmp_path, name, state):
    (tmp_path / "empty").mkdir()
    with refuses("models.no_model_directory", name, state):
        locate(str(tmp_path / name))


def test_a_misspelled_name_gets_the_nearest_and_three_ways_out_and_an_impossible_one_none(offline):
    ways = ("$CSE_MODELS", "hf download mini_em", "HF_ENDPOINT")
    with refuses("hub.unreachable", "Did you mean 'mini_en'", *ways) as caught:
        locate("mini_em")
    assert caught.value.exit_code == 3
    with refuses("hub.invalid_name", "'bert base uncased'"):
        locate("bert base uncased")


def keys(folder):
    return weights_sha256(folder), settings_sha256(folder)


def test_every_file_of_a_model_except_documentation_is_in_its_key(tmp_path):
    """One byte more in each file, with the size, time and place of the file that it replaces."""
    folder = tiny_bert(tmp_path)
    (folder / "1_Pooling").mkdir()
    for name in ("modules.json", "1_Pooling/config.json", "special_tokens_map.json", "chat_template.jinja"):
        (folder / name).write_text('{"a": 1}')
    (folder / "linked.json").symlink_to(folder / "modules.json")
    (folder / "README.md").write_text("prose")
    before = keys(folder)
    assert keys(shutil.copytree(folder, tmp_path / "copy")) == before
    for file in sorted(one for one in folder.rglob("*") if one.is_file() and not one.is_symlink()):
        content, state = file.read_bytes(), file.stat()
        file.write_bytes(content.replace(b"a", b"b") if b"a" in content else content[:-1] + b"\x01")
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
        assert (keys(folder) == before) == (file.name == "README.md"), file
        file.write_bytes(content)
    assert keys(folder) == before


def test_several_weight_files_have_one_digest(tmp_path):
    folder = tiny_bert(tmp_path)
    whole = (folder / "model.safetensors").read_bytes()
    assert weights_sha256(folder) == sha256(whole).hexdigest()
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text("{}")
    for number in (2, 1):
        (folder / f"model-0000{number}-of-00002.safetensors").write_bytes(bytes(number))
    each = [sha256(bytes(number)).hexdigest() for number in (1, 2)]
    assert weights_sha256(folder) == sha256("".join(each).encode()).hexdigest()


def test_a_file_of_the_hub_that_was_overwritten_has_another_digest(tmp_path, monkeypatch):
    """Its name in the cache is still the SHA-256 of the download."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    repository, commit = tmp_path / "hub" / "models--someone--bert", "3" * 40
    shutil.copytree(tiny_bert(tmp_path), repository / "snapshots" / commit)
    weights = repository / "snapshots" / commit / "model.safetensors"
    blob = repository / "blobs" / sha256(weights.read_bytes()).hexdigest()
    blob.parent.mkdir()
    weights.rename(blob)
    weights.symlink_to(blob)
    assert weights_sha256(locate(f"someone/bert@{commit}")) == blob.name
    blob.write_bytes(blob.read_bytes()[:-1] + b"\x01")
    assert weights_sha256(locate(f"someone/bert@{commit}")) != blob.name


def test_shipped_models_are_small_and_load_as_float32():
    model = load_model("mini_en")
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.pooler is None
    assert not model.training
    assert model.config._attn_implementation == "sdpa"
    assert sum(file.stat().st_size for file in PRETRAINED.rglob("*") if file.is_file()) < 12e6


@pytest.mark.slow
def test_configuration_values_can_be_overridden_and_missing_weights_are_refused(tmp_path):
    model = load_model(str(tiny_bert(tmp_path)), hidden_dropout_prob=0.3)
    assert model.encoder.layer[0].output.dropout.p == 0.3
    assert load_config(str(tmp_path / "tiny")).hidden_dropout_prob == 0.1
    folder = tiny_bert(tmp_path)
    weights = load_file(folder / "model.safetensors")
    save_file({k: v for k, v in weights.items() if "pooler" not in k}, folder / "model.safetensors", {"format": "pt"})
    load_model(str(folder))
    save_file({k: v for k, v in weights.items() if "layer.1" not in k}, folder / "model.safetensors", {"format": "pt"})
    with refuses("models.missing_weights", "16 weights", "'encoder.layer.1"):
        load_model(str(folder))


def test_random_weights_need_no_checkpoint_and_follow_the_seed(tmp_path):
    folder = tiny_bert(tmp_path)
    (folder / "model.safetensors").unlink()
    torch.manual_seed(3)
    first = load_model(str(folder), random_weights=True)
    torch.manual_seed(3)
    second = load_model(str(folder), random_weights=True)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    with refuses("models.invalid_weights", folder):
        load_model(str(folder))


DAMAGE = {
    "wrong bytes": (load_model, "invalid_weights", lambda path: (path / "model.safetensors").write_bytes(b"\0" * 40)),
    "another shape": (
        load_model,
        "invalid_weights",
        lambda path: shutil.copy(tiny_bert(path, name="wide", width=32) / "model.safetensors", path),
    ),
    "no tokenizer": (load_tokenizer, "no_tokenizer", lambda path: (path / "tokenizer.json").unlink()),
    "a damaged tokenizer": (
        load_tokenizer, "invalid_tokenizer", lambda path: (path / "tokenizer.json").write_text("{"),
    ),
    "the tokenizer of another model": (
        load_tokenizer, "wrong_tokenizer", lambda path: shutil.copy(PRETRAINED / "mini_en" / "tokenizer.json", path),
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_model_is_named(tmp_path, damage):
    load, code, apply = DAMAGE[damage]
    folder = tiny_bert(tmp_path)
    apply(folder)
    with refuses(f"models.{code}", folder):
        load(str(folder))


def test_the_shipped_german_model_is_an_embedding_layer_only():
    with refuses("models.embeddings_only", "mini_de"):
        load_model("mini_de")
    assert len(load_model("mini_de", embeddings_only=True).encoder.layer) == 0
    assert set(load_file(PRETRAINED / "mini_de" / "model.safetensors")) == {
        f"embeddings.{name}"
        for name in (
            "LayerNorm.bias",
            "LayerNorm.weight",
            "position_embeddings.weight",
            "token_type_embeddings.weight",
            "word_embeddings.weight",
        )
    }


BERT = "config.json model.safetensors tokenizer.json vocab.txt"
SHARDS = "config.json pytorch_model.bin.index.json pytorch_model-00001-of-00002.bin pytorch_model-00002-of-00002.bin"
ROUTER = "modules.json router_config.json query_0_Static/model.safetensors 0_Router/doc_0_X/tokenizer.json"


@pytest.mark.parametrize(
    ("wanted", "others"),
    [
        (BERT, "pytorch_model.bin tf_model.h5 onnx/model.onnx onnx/config.json README.md"),
        ("config.json pytorch_model.bin", "flax_model.msgpack"),
        (SHARDS, ""),
        ("model.safetensors.index.json model-00001-of-00001.safetensors", "pytorch_model.bin.index.json"),
        ("source.spm target.spm vocab.json pytorch_model.bin", ""),
        ("modules.json 1_Pooling/config.json 2_Dense/model.safetensors", "2_Dense/pytorch_model.bin x/y.json"),
        (ROUTER, ""),
        ("cse.json base/cse.json base/config.json base/1_Pooling/config.json", "y/config.json adapter/a.safetensors"),
        ("model.safetensors", "model.fp16.safetensors adapter.safetensors"),
    ],
)
def test_what_is_fetched_of_a_repository(wanted, others):
    assert sorted(needed_files([*wanted.split(), *others.split()])) == sorted(wanted.split())


def test_a_snapshot_is_complete_with_all_shards_and_a_vocabulary(tmp_path):
    folder = tiny_bert(tmp_path)
    assert complete(folder)
    weights = (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"a": weights.name, "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert not complete(folder)
    shutil.copy(weights, folder / "model-00002-of-00002.safetensors")
    assert complete(folder)
    for vocabulary in ("tokenizer.json", "vocab.txt"):
        (folder / vocabulary).unlink(missing_ok=True)
    assert not complete(folder)


def test_a_snapshot_of_several_encoders_needs_each(tmp_path):
    (tmp_path / "cse.json").touch()
    for name in ("first", "second"):
        tiny_bert(tmp_path, name=name)
        (tmp_path / name / "cse.json").touch()
    assert complete(tmp_path)
    (tmp_path / "second" / "model.safetensors").unlink()
    assert not complete(tmp_path)


def test_a_snapshot_without_a_model_at_its_root_has_weights_in_its_modules(tmp_path):
    (tmp_path / "modules.json").write_text("[]")
    module = tmp_path / "query_0_StaticEmbedding"
    module.mkdir()
    for name, whole in (("model.safetensors", False), ("tokenizer.json", True)):
        (module / name).touch()
        assert complete(tmp_path) is whole
    (tmp_path / "config.json").touch()
    assert not complete(tmp_path)


def test_the_table_of_models_is_sound_and_knows_those_of_recipes():
    names = [name for about in known_models().values() for name in (about.id, *about.names)]
    assert len(names) == len(set(names))
    for about in known_models().values():
        assert about.license
        assert about.revision is None or re.fullmatch("[0-9a-f]{40}", about.revision)
        assert about.revision or about.note, about.id
        assert about.tokenizer is None or about.tokenizer in known_models()
    recipes = Path(__file__).parents[2] / "recipes"
    found = set()

    def walk(value, key=""):
        if isinstance(value, dict):
            for name, inside in value.items():
                walk(inside, name)
        elif isinstance(value, list):
            for inside in value:
                walk(inside, key)
        elif key in ("model", "generator", "discriminator") and isinstance(value, str):
            found.add(value)

    for file in recipes.rglob("*.toml"):
        walk(tomllib.loads(file.read_text(encoding="utf-8")))
    ours = {name for name in found if name.startswith("mini_")}  # shipped, or below $CSE_MODELS only
    assert len(found - ours) > 10
    assert {name for name in found - ours if known(name) is None} == set()


def test_what_is_not_here_has_a_size_and_a_license(offline, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    state = model_state("roberta-base")
    assert (state.path, state.license) == (None, "MIT")
    assert state.bytes == known("FacebookAI/roberta-base").bytes
    assert state.repository.id == "FacebookAI/roberta-base"
    assert model_state("mini_en").bytes == 0
    assert model_state("owner/unknown").bytes is None
    with refuses("models.no_model_directory", "./nowhere"):
        model_state("./nowhere")
    assert find("roberta-base") is None


@pytest.fixture
def fake_hub(tmp_path, monkeypatch):
    """A hub with models of the table, of which some lack something, and one that is not in it."""
    models = tmp_path / "content/models"
    for name in ("google-bert/bert-base-uncased", "google-bert/bert-base-chinese", "someone/unlisted"):
        tiny_bert(models, name=name)
    cantonese, simbert = (
        tiny_bert(models, name=name) for name in ("denpa92/bert-base-cantonese", "peterchou/simbert-chinese-base")
    )
    for file in (*cantonese.glob("tokenizer*"), *simbert.glob("tokenizer*")):
        file.unlink()
    (simbert / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n你\n好\n")
    config = json.loads((simbert / "config.json").read_text())
    (simbert / "config.json").write_text(json.dumps({key: config[key] for key in config if key != "model_type"}))
    with FakeHub(tmp_path / "content") as hub:
        use(hub, tmp_path / "hf", monkeypatch)
        yield hub


@pytest.mark.process
def test_two_spellings_are_one_download(fake_hub, monkeypatch):
    first = locate("bert-base-uncased")
    assert first.name == known("bert-base-uncased").revision
    fake_hub.log.clear()
    assert locate("google-bert/bert-base-uncased") == locate("bert-base-uncased") == first
    assert fake_hub.log == []
    assert hub.used() == {"model google-bert/bert-base-uncased": first.name}
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert find("bert-base-uncased") == first
    assert model_state("bert-base-uncased").bytes == 0


@pytest.mark.process
def test_a_revision_behind_the_name_and_a_bare_name_that_only_the_cache_knows(fake_hub):
    assert locate(f"bert-base-uncased@{'3' * 40}").name == "3" * 40
    assert hub.used() == {"model google-bert/bert-base-uncased": "3" * 40}
    with refuses("hub.unknown_revision", "'v9'"):
        locate("bert-base-uncased@v9")
    folder = locate("someone/unlisted")
    fake_hub.log.clear()
    assert locate("unlisted") == folder
    assert fake_hub.log == []


@pytest.mark.process
def test_a_cache_under_the_bare_name_is_used_and_completed(fake_hub):
    folder = locate("bert-base-chinese")
    root = folder.parents[1]
    root.rename(root.with_name("models--bert-base-chinese"))
    fake_hub.log.clear()
    found = locate("bert-base-chinese")
    assert found.parents[1].name == "models--bert-base-chinese"
    assert fake_hub.log == []
    (found / "tokenizer.json").unlink()
    assert find("bert-base-chinese") is None
    lacking = model_state("bert-base-chinese", ask_hub=True)
    assert lacking.bytes
    assert (locate("bert-base-chinese") / "tokenizer.json").is_file()


@pytest.mark.process
def test_models_that_lack_something_are_completed_by_the_table(fake_hub):
    assert load_tokenizer("denpa92/bert-base-cantonese").get_vocab() == load_tokenizer("bert-base-chinese").get_vocab()
    assert load_config("peterchou/simbert-chinese-base").model_type == "bert"
    assert load_model("peterchou/simbert-chinese-base").config.hidden_size == 16
    assert len(load_tokenizer("peterchou/simbert-chinese-base")("你好")["input_ids"]) == 4

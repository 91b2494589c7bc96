import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from registry import hub
from registry.errors import CseError, MissingError, UnknownNameError
from registry.models import PRETRAINED, digest, load_config, load_model, load_tokenizer, local_names, locate
from tests.tiny import tiny_bert


@pytest.fixture(autouse=True)
def _no_models(monkeypatch):
    monkeypatch.delenv("CSE_MODELS", raising=False)


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr(hub, "unreachable", lambda: "the hub does not answer")


def test_a_directory_is_found(tmp_path):
    assert locate(str(tiny_bert(tmp_path))) == tmp_path / "tiny"


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


def test_a_folder_that_happens_to_have_the_name_of_a_model_is_passed_over(tmp_path, monkeypatch):
    (tmp_path / "mini_en").mkdir()
    monkeypatch.chdir(tmp_path)
    assert locate("mini_en") == PRETRAINED / "mini_en"


@pytest.mark.parametrize(("name", "state"), [("nowhere", "does not exist"), ("empty", "holds no config.json")])
def test_a_path_that_is_no_model_is_named(tmp_path, name, state):
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingError, match=state):
        locate(str(tmp_path / name))


def test_a_misspelt_name_gets_the_nearest_and_three_ways_out(offline):
    with pytest.raises(MissingError) as caught:
        locate("mini_em")
    assert "Did you mean 'mini_en'" in caught.value.message
    for way in ("$CSE_MODELS", "hf download mini_em", "HF_ENDPOINT"):
        assert way in str(caught.value)
    assert caught.value.exit_code == 3


def test_a_name_no_hub_takes(offline):
    with pytest.raises(UnknownNameError, match="is no model name"):
        locate("bert base uncased")


def test_digest_sees_weights_configuration_and_vocabulary(tmp_path):
    folder = tiny_bert(tmp_path)
    before = digest(folder)
    assert len(before) == 16
    assert digest(tiny_bert(tmp_path, name="again")) == before
    assert digest(tiny_bert(tmp_path, name="other", seed=1)) != before
    (folder / "README.md").write_text("prose")
    assert digest(folder) == before
    (folder / "vocab.txt").write_text("a\n")
    assert digest(folder) != before


def test_half_precision_checkpoints_load_as_float32_without_pooler():
    model = load_model("mini_en")
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.pooler is None
    assert not model.training
    assert model.config._attn_implementation == "sdpa"


def test_configuration_values_can_be_overridden(tmp_path):
    model = load_model(str(tiny_bert(tmp_path)), hidden_dropout_prob=0.3)
    assert model.encoder.layer[0].output.dropout.p == 0.3
    assert load_config(str(tmp_path / "tiny")).hidden_dropout_prob == 0.1


def test_missing_weights_are_refused_poolers_excepted(tmp_path):
    folder = tiny_bert(tmp_path)
    weights = load_file(folder / "model.safetensors")
    save_file({k: v for k, v in weights.items() if "pooler" not in k}, folder / "model.safetensors", {"format": "pt"})
    load_model(str(folder))
    save_file({k: v for k, v in weights.items() if "layer.1" not in k}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(MissingError, match=r"lacks 16 weights, among them 'encoder\.layer\.1"):
        load_model(str(folder))


def test_random_weights_need_no_checkpoint_and_follow_the_seed(tmp_path):
    folder = tiny_bert(tmp_path)
    (folder / "model.safetensors").unlink()
    torch.manual_seed(3)
    first = load_model(str(folder), random_weights=True)
    torch.manual_seed(3)
    second = load_model(str(folder), random_weights=True)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    with pytest.raises(MissingError, match="cannot be loaded"):
        load_model(str(folder))


def test_a_damaged_checkpoint_is_named(tmp_path):
    folder = tiny_bert(tmp_path)
    (folder / "model.safetensors").write_bytes(b"\0" * 40)
    with pytest.raises(MissingError, match="cannot be loaded"):
        load_model(str(folder))


def test_weights_of_another_shape_are_named(tmp_path):
    folder = tiny_bert(tmp_path)
    shutil.copy(tiny_bert(tmp_path, name="wide", width=32) / "model.safetensors", folder)
    with pytest.raises(MissingError, match="cannot be loaded"):
        load_model(str(folder))


def test_an_unknown_architecture_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "abacus"}))
    with pytest.raises(CseError, match="abacus"):
        load_config(str(tmp_path))


def test_a_missing_tokenizer_is_named(tmp_path):
    folder = tiny_bert(tmp_path)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(MissingError, match="no tokenizer file"):
        load_tokenizer(str(folder))


def test_a_damaged_tokenizer_is_named(tmp_path):
    folder = tiny_bert(tmp_path)
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(MissingError, match="cannot be loaded"):
        load_tokenizer(str(folder))


def test_the_tokenizer_of_another_model_is_refused(tmp_path):
    folder = tiny_bert(tmp_path)
    shutil.copy(PRETRAINED / "mini_en" / "tokenizer.json", folder)
    with pytest.raises(CseError, match="has 8192 entries, its embedding layer 50"):
        load_tokenizer(str(folder))


def test_the_shipped_german_model_is_an_embedding_layer_only():
    with pytest.raises(MissingError, match="embedding layer only"):
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


def test_shipped_models_stay_small():
    assert sum(file.stat().st_size for file in PRETRAINED.rglob("*") if file.is_file()) < 12e6


def test_importing_checkpoints_is_light(run_python):
    out = run_python("import sys, registry.models; print(sorted({'torch', 'transformers'} & set(sys.modules)))")
    assert out.strip() == "[]"


@pytest.fixture
def run_python():
    import subprocess

    root = Path(__file__).parents[2]

    def run(code):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
        return done.stdout

    return run

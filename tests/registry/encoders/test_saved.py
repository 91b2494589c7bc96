import json
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

from registry.encoders.export import usage
from registry.encoders.saved import open_encoder
from registry.encoders.transformer import TransformerEncoder
from registry.errors import MissingError
from registry.heads.mlp import Mlp
from registry.prompts import Prompts
from tests.registry.encoders.vectors import encoding
from tests.support.errors import refuses
from tests.support.tiny import sentences, tiny_bert

TEXTS = [*sentences(), " ".join(["the cat sees a dog"] * 5)]


def exported(tmp_path, make=tiny_bert, form=("mean", 0, False), max_length=12):
    pooling, first, head = form
    torch.manual_seed(1)
    encoder = TransformerEncoder(str(make(tmp_path)), eval_pooling=pooling, first_layer_index=first, head_at_eval=head)
    encoder.attach({"mlp": Mlp()})
    folder = tmp_path / "out" / "model"
    encoder.export(folder, max_length)
    return encoder, folder


def vectors(encoder, length=12):
    return encoding(encoder, length)(TEXTS)


@pytest.mark.slow
def test_transformers_loads_the_weights_exactly_and_the_encoder_stays(tmp_path):
    encoder, folder = exported(tmp_path)
    tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(TEXTS[:1], 12))
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(folder)(tokens.ids, attention_mask=tokens.mask).last_hidden_state
    assert torch.equal(hidden, encoder.eval().encode(tokens, encoder.embed(tokens)).hidden)
    encoder, _ = exported(tmp_path, form=("last2", 0, False))
    assert encoder.backbone.config.output_hidden_states is False
    assert encoder.vocabulary.tokenizer.model_max_length > 12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "start", "weights"),
    [(("last2", 0, False), 3, [1.0, 1.0]), (("first_last", 1, False), 1, [1.0, 0.0, 0.0, 1.0])],
)
def test_two_layers_are_written_as_weights(tmp_path, form, start, weights):
    _, folder = exported(tmp_path, partial(tiny_bert, layers=4), form)
    module = folder / "1_WeightedLayerPooling"
    assert json.loads((module / "config.json").read_text())["layer_start"] == start
    assert load_file(module / "model.safetensors")["layer_weights"].tolist() == weights


def test_the_layout_is_the_classic_one(tmp_path):
    _, folder = exported(tmp_path, form=("mean", 0, True))
    kinds = [(m["path"], m["type"]) for m in json.loads((folder / "modules.json").read_text())]
    assert kinds == [
        ("", "sentence_transformers.models.Transformer"),
        ("1_Pooling", "sentence_transformers.models.Pooling"),
        ("2_Dense", "sentence_transformers.models.Dense"),
    ]
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_mean_tokens"] is True
    assert pooling["pooling_mode_cls_token"] is False
    assert json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"] == 12
    assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == 12
    assert str(tmp_path / "tiny") in (folder / "README.md").read_text()


def test_a_card_shows_the_prompts_and_the_sides_that_have_their_own():
    named = Prompts({"query": "find: ", "anchor": "not "}, notes=["views.x.template is only for training"])
    shown = usage("me/tiny", named).split("\n")
    assert [line.partition(" = ")[2] for line in shown if " = " in line] == [
        'SentenceTransformer("me/tiny")',
        'model.encode(["A sentence."])',
        'model.encode_query(["A query."])',
    ]
    assert shown[-4:] == ["- `query`: `'find: '`", "- `anchor`: `'not '`", "", "views.x.template is only for training."]
    template = Prompts().after("to: ")
    assert (template.named, template.default) == (dict.fromkeys(("default", "query", "document"), "to: "), "default")
    text = usage("a", template, native=False)
    assert 'SentenceTransformer("a", trust_remote_code=True).encode(' in text
    assert "encode_query" not in text
    both = {"query": "to: find: ", "anchor": "to: not ", "default": "to: ", "document": "to: "}
    assert named.after("to: ").named == both


@pytest.mark.slow
def test_an_export_replaces_an_earlier_one_and_a_damaged_one_is_named(tmp_path):
    encoder, folder = exported(tmp_path)
    with torch.no_grad():
        encoder.backbone.embeddings.word_embeddings.weight.mul_(2)
    encoder.export(folder, 12)
    assert torch.equal(vectors(open_encoder(str(folder))[0]), vectors(encoder))
    assert [child.name for child in folder.parent.iterdir()] == ["model"]
    _, folder = exported(tmp_path, max_length=512)
    assert open_encoder(str(folder))[1] == 64
    _, folder = exported(tmp_path)
    (folder / "cse.json").write_text("{")
    with refuses("encoders.unreadable_settings", folder / "cse.json") as caught:
        open_encoder(str(folder))
    assert caught.type is MissingError


def test_a_failed_export_leaves_nothing(tmp_path, monkeypatch):
    encoder = TransformerEncoder(str(tiny_bert(tmp_path)))

    def full(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr(encoder.vocabulary.tokenizer, "save_pretrained", full)
    with pytest.raises(OSError, match="no space"):
        encoder.export(tmp_path / "out" / "model", 12)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.slow
def test_a_plain_model_is_pooled_as_asked_and_no_pooling_replaces_an_unknown_one(tmp_path):
    folder = str(tiny_bert(tmp_path))
    encoder, max_length = open_encoder(folder)
    assert (encoder.eval_pooling, max_length) == ("cls", 64)
    assert open_encoder(folder, "first_last")[0].eval_pooling == "first_last"
    with refuses("encoders.unknown_pooling", "'maen'", "Did you mean 'mean'"):
        open_encoder(folder, "maen")


def sentence_transformers_directory(tmp_path, pooling, modules=("Transformer", "Pooling", "Normalize")):
    """A directory as sentence-transformers writes it, the transformer in a sub-folder as its oldest releases did."""
    root = tmp_path / "st"
    tiny_bert(root, name="0_Transformer")
    kinds = [f"sentence_transformers.models.{kind}" for kind in modules]
    listed = [
        {"name": str(i), "path": f"{i}_{kind}", "type": of}
        for i, (kind, of) in enumerate(zip(modules, kinds, strict=True))
    ]
    (root / "modules.json").write_text(json.dumps(listed))
    (root / "0_Transformer" / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 20}))
    (root / "1_Pooling").mkdir()
    (root / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return root


@pytest.mark.parametrize(
    "pooling",
    [
        {"word_embedding_dimension": 16, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True},
        {"embedding_dimension": 16, "pooling_mode": "mean"},
    ],
)
def test_sentence_transformers_directories_of_either_form(tmp_path, pooling):
    encoder, max_length = open_encoder(str(sentence_transformers_directory(tmp_path, pooling)))
    assert (encoder.eval_pooling, max_length) == ("mean", 20)

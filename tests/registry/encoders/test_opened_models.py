"""What of a checkpoint is not used is an error, and every sentence has one embedding, alone and in a batch."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    BertModel,
    ConvBertConfig,
    ConvBertModel,
    FNetConfig,
    FNetModel,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
    XLNetConfig,
    XLNetModel,
)

from cse_cli.evaluation.model import load_model as open_model
from registry.encoders import backbone
from registry.encoders.library import UNLIMITED
from registry.encoders.saved import open_encoder
from registry.encoders.transformer import TransformerEncoder
from registry.resources.models import load_language_model, load_model, load_tokenizer
from tests.support.errors import refuses
from tests.support.families import tiny
from tests.support.tiny import SPECIALS, WORDS, _write, sentences, tiny_bert, tiny_llama, with_prediction_head

SHAPE = {
    "vocab_size": len(SPECIALS) + len(WORDS),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
TEXTS = sentences(6)


def encoded(encoder, texts=TEXTS, length=32):
    return encoder.encode_for_eval(encoder.vocabulary.pad(encoder.vocabulary.ids(texts, length)))


def layers(folder, texts):
    """The (L, D) states of transformers' own forward pass for each single sentence, of every layer."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), load_tokenizer(str(folder))
    with torch.no_grad():
        made = [model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True) for text in texts]
    return [[states[0] for states in one.hidden_states] for one in made]


def edit(file, **changes):
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def add_weights(folder, **weights):
    file = folder / "model.safetensors"
    named = {name.replace("__", "."): value for name, value in weights.items()}
    save_file({**load_file(file), **named}, file, metadata={"format": "pt"})


@pytest.mark.slow
@pytest.mark.parametrize(("config", "model"), [(RobertaConfig, RobertaModel), (XLMRobertaConfig, XLMRobertaModel)])
def test_every_padding_id_of_the_roberta_family(tmp_path, config, model):
    for padding in (0, 1, 3, 6):
        settings = config(**SHAPE, max_position_embeddings=80, pad_token_id=padding)
        folder = _write(model, settings, tmp_path / str(padding), 0)
        encoder = TransformerEncoder(str(folder), "mean")
        # transformers gives a token of the sentence with the ID of padding the position of padding.
        texts = [text for text in TEXTS if padding not in encoder.vocabulary.ids([text], 32)[0]]
        assert bool(texts) is (padding not in (2, 3))  # [CLS] and [SEP]
        if texts:
            expected = torch.stack([states[-1].mean(0) for states in layers(folder, texts)])
            torch.testing.assert_close(encoded(encoder, texts), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "model"),
    [(FNetConfig(**SHAPE), FNetModel), (ConvBertConfig(**SHAPE, embedding_size=16), ConvBertModel)],
    ids=["mixes the row", "convolves"],
)
def test_a_model_that_reads_padding_is_refused(tmp_path, config, model):
    folder = _write(model, config, tmp_path / "model", 0)
    with refuses("encoders.unsupported_architecture", model.__name__, "padded batch"):
        TransformerEncoder(str(folder), "mean")


@pytest.mark.slow
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_named(tmp_path, bad):
    folder = tiny_bert(tmp_path)
    weights = load_file(folder / "model.safetensors")
    name = "encoder.layer.1.output.dense.weight"
    weights[name][0, 0] = bad
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for open_it in (open_encoder, load_model, TransformerEncoder):
        with refuses("models.not_finite", name, folder):
            open_it(str(folder))


@pytest.mark.slow
def test_weights_of_a_part_that_the_model_uses_are_not_dropped(tmp_path):
    """The distances of BERT's relative positions, which transformers 5 does not compute."""
    folder = tiny_bert(tmp_path)
    edit(folder / "config.json", position_embedding_type="relative_key")
    names = [f"encoder__layer__{block}__attention__self__distance_embedding__weight" for block in (0, 1)]
    add_weights(folder, **{name: torch.randn(127, 8) for name in names})
    for open_it in (open_encoder, load_language_model):
        if open_it is load_language_model:
            with_prediction_head(folder)
            add_weights(folder, **{f"bert__{name}": torch.randn(127, 8) for name in names})
        with refuses("models.unused_weights", "2 weights", names[0].replace("__", ".")):
            open_it(str(folder))


def test_a_block_that_the_configuration_leaves_out_is_not_dropped(tmp_path):
    folder = tiny_bert(tmp_path)
    edit(folder / "config.json", num_hidden_layers=1)
    with refuses("models.unused_weights", "16 weights", "encoder.layer.1."):
        open_encoder(str(folder))
    assert load_model(str(folder), embeddings_only=True) is not None


@pytest.mark.slow
def test_code_of_the_authors_is_reported_and_truncation_on_the_left_refused(tmp_path):
    folder = tiny_bert(tmp_path)
    edit(folder / "config.json", auto_map={"AutoModel": "modeling_x.XModel"})
    with pytest.warns(UserWarning, match=r"modeling_x\.XModel.*BertModel"):
        open_encoder(str(folder))
    edit(folder / "tokenizer_config.json", truncation_side="left")
    with refuses("models.unsupported_truncation", folder, "truncation_side"):
        open_encoder(str(folder))


@pytest.mark.slow
def test_heads_poolers_and_position_numbers_are_left_out(tmp_path):
    folder = with_prediction_head(tiny_bert(tmp_path))
    expected = encoded(open_encoder(str(folder))[0])
    add_weights(
        folder,
        bert__pooler__dense__weight=torch.eye(16),
        bert__pooler__dense__bias=torch.ones(16),
        bert__embeddings__position_ids=torch.arange(64)[None],
        cls__seq_relationship__weight=torch.ones(2, 16),
    )
    assert torch.equal(encoded(open_encoder(str(folder))[0]), expected)


@pytest.mark.slow
def test_a_model_without_a_length_limit(tmp_path):
    folder = tiny(tmp_path, "t5")
    edit(folder / "config.json", max_position_embeddings=None)
    edit(folder / "tokenizer_config.json", model_max_length=int(1e30))
    assert open_encoder(str(folder), "mean")[1] == UNLIMITED
    text = " ".join(["the cat sees a dog"] * 40)
    rows = load_tokenizer(str(folder))(text, return_tensors="pt")
    with torch.no_grad():
        expected = load_model(str(folder))(**{key: rows[key] for key in ("input_ids", "attention_mask")})
    made = torch.from_numpy(open_model(folder, pooling="mean").encode(text))
    torch.testing.assert_close(made, expected.last_hidden_state[0].mean(0), rtol=0, atol=1e-5)


def test_xlnet_has_no_length_limit_and_bert_no_warning(tmp_path, recwarn):
    model = XLNetModel(XLNetConfig(vocab_size=50, d_model=16, n_layer=1, n_head=2, d_inner=32)).eval()
    assert backbone.longest(model) is None
    tokens = backbone.example(model, padded=True)
    assert torch.equal(backbone.positions(model, tokens), torch.arange(7).expand(2, 7))
    assert isinstance(load_model(str(tiny_bert(tmp_path))), BertModel)
    assert not [one for one in recwarn if issubclass(one.category, UserWarning)]


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mask", "last_mask"])
def test_the_mask_of_a_template_that_is_tokenized_with_the_sentence(tmp_path, pooling):
    folder, template = tiny_bert(tmp_path), "the {mask} cat : {text} means {mask} ."
    encoder = TransformerEncoder(str(folder), pooling, template=template, template_joined=True)
    expected = []
    rows = [template.replace("{mask}", "[MASK]").replace("{text}", text) for text in TEXTS]
    for ids, states in zip(load_tokenizer(str(folder))(rows)["input_ids"], layers(folder, rows), strict=True):
        states = states[-1][torch.tensor(ids) == encoder.vocabulary.mask]
        assert len(states) == 2
        expected.append(states.mean(0) if pooling == "mask" else states[1])
    torch.testing.assert_close(encoded(encoder), torch.stack(expected), rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("make", [tiny_bert, tiny_llama])
def test_the_two_averages_of_the_first_and_the_last_layer(tmp_path, make):
    folder = make(tmp_path)
    states = layers(folder, TEXTS)
    other = TransformerEncoder(str(folder), "first_last", first_layer_index=1)
    other.export(tmp_path / "saved", 24)
    for name, first in {"first_last": 0, "avg_first_last": 1}.items():
        expected = torch.stack([((each[first] + each[-1]) / 2).mean(0) for each in states])
        for model in (folder, tmp_path / "saved"):
            torch.testing.assert_close(encoded(open_encoder(str(model), name)[0]), expected, rtol=0, atol=1e-5)

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cse_cli.evaluation.model import load_model
from registry.encoders.library import UNLIMITED, LibraryEncoder
from registry.encoders.saved import open_encoder
from registry.errors import MissingError
from registry.prompts import Prompts
from tests.registry.encoders.test_saved import sentence_transformers_directory
from tests.support.errors import refuses
from tests.support.tiny import sentences, tiny_bert

pytestmark = pytest.mark.xdist_group("sentence_transformers")  # imported by one process
TEXTS = sentences(5)


def opened_by_library(folder):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


def static(tmp_path, seed, width=8):
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tiny_bert(tmp_path, name=f"words{seed}") / "tokenizer.json"))
    rows = torch.randn(tokenizer.get_vocab_size(), width, generator=torch.Generator().manual_seed(seed))
    return StaticEmbedding(tokenizer, embedding_weights=rows.numpy())


def saved(tmp_path, module, **options):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(modules=[module], device="cpu", **options)
    model.save(str(tmp_path / "model"))
    return model, tmp_path / "model"


def router(tmp_path, default):
    from sentence_transformers.sentence_transformer.modules import Router

    sides = [static(tmp_path, 1)], [static(tmp_path, 2)]
    return Router.for_query_document(*sides, default_route=default, allow_empty_key=False)


@pytest.mark.slow
def test_static_embeddings_are_those_of_the_library(tmp_path):
    model, folder = saved(tmp_path, static(tmp_path, 1), prompts={"query": "the "}, default_prompt_name="query")
    encoder, length = open_encoder(str(folder))
    assert isinstance(encoder, LibraryEncoder)
    assert (encoder.dim, length, encoder.modules_named) == (8, UNLIMITED, "StaticEmbedding")
    assert encoder.prompts == Prompts({"query": "the "}, "query")
    made = encoder.encode_texts(TEXTS, length, "the ", None)
    assert torch.equal(made, model.encode(TEXTS, convert_to_tensor=True))
    assert not torch.equal(made, encoder.encode_texts(TEXTS, length, "", None))


@pytest.mark.slow
def test_a_router_encodes_each_side_by_its_modules_and_requires_a_route(tmp_path):
    model, folder = saved(tmp_path, router(tmp_path, "document"))
    encoder, length = open_encoder(str(folder))
    assert encoder.routed
    query, document = (encoder.encode_texts(TEXTS, length, "", side) for side in ("query", "document"))
    assert torch.equal(query, model.encode_query(TEXTS, convert_to_tensor=True))
    assert torch.equal(document, model.encode_document(TEXTS, convert_to_tensor=True))
    assert torch.equal(encoder.encode_texts(TEXTS, length, "", None), document)
    assert not torch.equal(query, document)
    encoder, length = open_encoder(str(saved(tmp_path, router(tmp_path, None))[1]))
    with refuses("encoders.no_route", "default_route"):
        encoder.encode_texts(TEXTS, length, "", None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pooling", "code"),
    [
        ({"pooling_mode": "max"}, "encoders.unsupported_pooling"),
        ({"pooling_mode": "mean", "include_prompt": False}, "encoders.unsupported_setting"),
    ],
    ids=["max", "prompt"],
)
def test_a_pooling_that_we_do_not_read(tmp_path, pooling, code):
    folder = sentence_transformers_directory(tmp_path, {"embedding_dimension": 16, **pooling})
    encoder, length = open_encoder(str(folder))
    assert length == 20
    theirs = opened_by_library(folder)
    expected = theirs.encode(TEXTS, prompt="the cat ", convert_to_tensor=True)
    torch.testing.assert_close(encoder.encode_texts(TEXTS, length, "the cat ", None), expected, rtol=0, atol=1e-6)
    with refuses(code, "--pooling"):
        open_encoder(str(folder), "mean")


@pytest.mark.slow
def test_our_reader_normalizes_and_reads_prompts(tmp_path):
    folder = sentence_transformers_directory(tmp_path, {"embedding_dimension": 16, "pooling_mode": "mean"})
    expected = opened_by_library(folder).encode(TEXTS)
    np.testing.assert_allclose(load_model(folder).encode(TEXTS), expected, rtol=0, atol=1e-6)
    settings = {"prompts": {"query": "", "passage": "the "}, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    assert open_encoder(str(folder))[0].prompts == Prompts({"passage": "the "})


def test_a_normalization_before_a_dense_layer_is_left_to_the_library(tmp_path):
    kinds = ("Transformer", "Pooling", "Normalize", "Dense")
    folder = sentence_transformers_directory(tmp_path, {"embedding_dimension": 16, "pooling_mode": "mean"}, kinds)
    with refuses("encoders.unsupported_module", "Transformer, Pooling, Normalize, Dense"):
        open_encoder(str(folder), "cls")


def test_the_length_cuts_sentences(tmp_path):
    folder = sentence_transformers_directory(tmp_path, {"embedding_dimension": 16, "pooling_mode": "max"})
    encoder, _ = open_encoder(str(folder))
    first = " ".join(TEXTS[0].split()[:2])
    torch.testing.assert_close(
        encoder.encode_texts([TEXTS[0]], 4, "", None), encoder.encode_texts([first], 20, "", None)
    )


@pytest.mark.parametrize("change", [("find_spec", None), ("version", "5.2.0")], ids=["missing", "old"])
def test_without_the_package_the_extra_is_named(tmp_path, monkeypatch, change):
    folder = sentence_transformers_directory(tmp_path, {"embedding_dimension": 16, "pooling_mode": "max"})
    name, value = change
    monkeypatch.setattr(f"registry.encoders.library.{name}", lambda package: value)
    with refuses("encoders.missing_package", 'pip install "sentence-transformers') as caught:
        open_encoder(str(folder))
    assert isinstance(caught.value, MissingError)


@pytest.mark.parametrize("pooling", [None, "mean"])
def test_code_of_a_model_is_not_executed(tmp_path, pooling):
    folder = sentence_transformers_directory(tmp_path, {"embedding_dimension": 16, "pooling_mode": "max"})
    listed = json.loads((folder / "modules.json").read_text())
    listed[1]["type"] = "own.Pooling"
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    (folder / "modules.json").write_text(json.dumps(listed))
    with refuses("encoders.custom_module", "modules.json", "own.Pooling", "Pooling in 1_Pooling", "--plugin"):
        open_encoder(str(folder), pooling)
    assert not (tmp_path / "ran").exists()


MEAN = {"embedding_dimension": 16, "pooling_mode": "mean"}
TOKENS = {"module_input_name": "token_embeddings"}
DENSE = {"in_features": 16, "out_features": 16, "bias": True, "activation_function": "torch.nn.modules.linear.Identity"}
KINDS = ("Transformer", "Pooling", "Normalize")
OTHER = [
    ("0_Transformer/sentence_bert_config.json", {"processor_kwargs": {"model_max_length": 6}}, KINDS),
    ("0_Transformer/sentence_bert_config.json", {"tokenizer_args": {"model_max_length": 6}}, KINDS),
    ("0_Transformer/sentence_bert_config.json", {"processing_kwargs": {"text": {"max_length": 6}}}, KINDS),
    ("0_Transformer/sentence_bert_config.json", {"max_seq_length": 20, "config_args": {"num_hidden_layers": 1}}, KINDS),
    ("0_Transformer/tokenizer_config.json", {"truncation_side": "left"}, KINDS),
    ("config_sentence_transformers.json", {"truncate_dim": 8}, KINDS),
    ("2_Normalize/config.json", TOKENS, ("Transformer", "Pooling", "Normalize")),
    ("1_Normalize/config.json", TOKENS, ("Transformer", "Normalize", "Pooling")),
    ("2_Dense/config.json", {**DENSE, "module_output_name": "other"}, ("Transformer", "Pooling", "Dense")),
]


def changed(tmp_path, file, settings, kinds):
    """Return a directory of sentence-transformers with settings added to one of its files."""
    folder = sentence_transformers_directory(tmp_path, MEAN, kinds)
    if kinds[2] == "Pooling":
        (folder / "2_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").rename(folder / "2_Pooling" / "config.json")
    if "Dense" in kinds:
        (folder / "2_Dense").mkdir()
        weights = {"linear.weight": torch.eye(16).roll(1, 0) * 2, "linear.bias": torch.ones(16)}
        save_file(weights, folder / "2_Dense" / "model.safetensors")
    path = folder / file
    path.parent.mkdir(exist_ok=True)
    known = json.loads(path.read_text()) if path.name == "tokenizer_config.json" else {}
    path.write_text(json.dumps({**known, **settings}))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("file", "settings", "kinds"), OTHER)
def test_settings_that_we_do_not_read_are_left_to_the_library(tmp_path, file, settings, kinds):
    folder = changed(tmp_path, file, settings, kinds)
    long = [" ".join(TEXTS[:4]), *TEXTS]
    opened = load_model(folder)
    assert isinstance(opened.encoder, LibraryEncoder)
    np.testing.assert_allclose(opened.encode(long), opened_by_library(folder).encode(long), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_the_length_is_read_under_each_name_of_its_file(tmp_path):
    folder = sentence_transformers_directory(tmp_path, MEAN)
    file = folder / "0_Transformer" / "sentence_bert_config.json"
    for name in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"):
        file = file.rename(file.with_name(f"sentence_{name}_config.json"))
        encoder, length = open_encoder(str(folder))
        assert (type(encoder).__name__, length) == ("TransformerEncoder", 20)
        assert opened_by_library(folder).max_seq_length == 20

"""Vectors through a view: as evaluation represents them, or as training compares them."""

from __future__ import annotations

import zlib

import pytest
import torch

from cse_cli.core.devices import choose
from cse_cli.data.batches import ViewSpec
from cse_cli.evaluation.encoder import SentenceEncoder
from registry import AUGMENTERS, ENCODERS, EVALUATORS, HEADS
from registry.errors import CseError
from tests.support.tiny import sentences, tiny_bert

TEXTS = sentences(9)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(tiny_bert(tmp_path_factory.mktemp("model")))


def built(model, *heads, **values):
    encoder = ENCODERS["transformer"].build({"model": model, "pooling": "cls", "eval_pooling": "mean", **values})
    torch.manual_seed(0)
    encoder.attach({name: HEADS[name].build({}) for name in heads})
    return encoder


def looking(encoder, *augmenters):
    for augmenter in augmenters:
        augmenter.bind(encoder)
    views = {"anchor": [], "positive": [], "changed": augmenters}
    specs = {name: ViewSpec("text", encoder.vocabulary, augmenters=list(of)) for name, of in views.items()}
    return SentenceEncoder(encoder, choose("cpu"), 4096, 32, specs)


def trained(encoder, texts):
    """Return what losses would see of the sentences, in whatever mode the encoder is."""
    tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(texts, 32))
    with torch.no_grad():
        return encoder.encode(tokens, encoder.embed(tokens)).sentence


@pytest.mark.slow
def test_dropout_of_views_differs_only_in_training_mode(model):
    encode = looking(built(model))
    columns = {"text": TEXTS}
    one, other = (encode.encode_view(view, columns, training=True) for view in ("anchor", "positive"))
    assert (one - other).abs().max() > 0.01
    assert torch.equal(encode.encode_view("anchor", columns), encode.encode_view("positive", columns))
    torch.testing.assert_close(encode.encode_view("anchor", columns), encode(TEXTS), rtol=0, atol=1e-6)


def test_sentences_are_scored_through_a_view(model):
    """MoCoSE's code leaves cut-offs on in evaluation: what is scored equals a forward pass with those places zero."""
    cut = AUGMENTERS["token_cutoff"].build({"rate": 0.3, "scope": "all", "at_least": 1})
    encoder = built(model)
    specs = looking(encoder, cut).specs
    encode = SentenceEncoder(encoder, choose("cpu"), 4096, 32, specs, "changed")
    found = encode(TEXTS)
    tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(TEXTS, 32))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        noise = torch.rand(tokens.ids.shape)
    vectors = encoder.embed(tokens).detach().clone()
    for row in range(tokens.rows):
        for place in sorted(range(tokens.length), key=lambda at: float(noise[row, at]))[: int(tokens.length * 0.3)]:
            vectors[row, place] = 0
    torch.testing.assert_close(found, encoder.encode_for_eval(tokens, vectors), rtol=0, atol=1e-6)
    plain = SentenceEncoder(encoder, choose("cpu"), 4096, 32, specs)(TEXTS)
    assert (found - plain).abs().max() > 1e-3
    assert torch.equal(encode(TEXTS), found)


def test_draws_are_the_same_in_every_call(model):
    encode = looking(built(model))
    first = encode.encode_view("anchor", {"text": TEXTS}, training=True)
    torch.rand(3)
    encode(TEXTS)
    assert torch.equal(encode.encode_view("anchor", {"text": TEXTS}, training=True), first)


def test_equal_sentences_of_a_call_get_masks_of_their_own(model):
    twice = looking(built(model)).encode_view("anchor", {"text": [TEXTS[0]] * 2}, training=True)
    assert (twice[0] - twice[1]).abs().max() > 0.01


@pytest.mark.parametrize("heads", [(), ("mlp",)])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_equals_a_forward_pass_of_training_under_the_same_seed(model, heads, dropout):
    encoder = built(model, *heads, dropout=dropout).train()
    with torch.random.fork_rng():
        torch.manual_seed(zlib.crc32(b"anchor"))
        wanted = trained(encoder, TEXTS)
    encode = looking(encoder.eval())
    found = encode.encode_view("anchor", {"text": TEXTS}, training=True)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)
    assert (found - encode.encode_view("anchor", {"text": TEXTS})).abs().max() > 0.01


def test_augmenters_act_in_training_mode_too(model):
    encoder = built(model, dropout=0.0)
    encode = looking(encoder, AUGMENTERS["embedding_dropout"].build({"rate": 0.5}))
    plain, changed = (encode.encode_view(view, {"text": TEXTS}, training=True) for view in ("anchor", "changed"))
    assert (plain - changed).abs().max() > 0.01


@pytest.mark.parametrize("mode", [True, False])
def test_modes_statistics_and_random_streams_are_as_before(model, mode):
    encoder = built(model, "batch_norm_relu").train(mode)
    encoder.backbone.eval()
    modes = [module.training for module in encoder.modules()]
    state = {name: value.clone() for name, value in encoder.state_dict().items()}
    buffers = [id(buffer) for buffer in encoder.buffers()]
    streams = torch.get_rng_state()
    found = looking(encoder).encode_view("anchor", {"text": TEXTS}, training=True)
    assert not found.requires_grad
    assert [module.training for module in encoder.modules()] == modes
    assert [id(buffer) for buffer in encoder.buffers()] == buffers
    assert all(torch.equal(value, state[name]) for name, value in encoder.state_dict().items())
    assert torch.equal(torch.get_rng_state(), streams)
    # Statistics were those of the batch: its columns have mean 0 before the affine part, there is none.
    torch.testing.assert_close(found.mean(dim=0), torch.zeros(found.shape[1]), rtol=0, atol=1e-5)


def test_modes_are_put_back_after_an_error(model):
    encoder = built(model, "batch_norm_relu").eval()
    with pytest.raises(CseError, match="one row"):
        looking(encoder).encode_view("anchor", {"text": TEXTS[:1]}, training=True)
    assert not any(module.training for module in encoder.modules())


def test_an_unknown_view_is_told(model):
    with pytest.raises(CseError, match=r"unknown view 'anchr'\. Did you mean 'anchor'"):
        looking(built(model)).encode_view("anchr", {"text": TEXTS}, training=True)


@pytest.mark.slow
def test_mutual_information_of_dropout_views(model, tmp_path):
    """The more dropout, the less a view tells of the other; without any, two views are one."""
    path = tmp_path / "x.txt"
    path.write_text("".join(f"{text}\n" for text in sentences(64)), encoding="utf-8")
    values = {"first": "anchor", "second": "positive", "file": str(path), "mi_n": 32, "temperature": 0.05}
    found = []
    for rate in (0.0, 0.1, 0.5):
        score = EVALUATORS["mutual_information"].build(values)(looking(built(model, dropout=rate)))
        found.append(score["mutual_information"])
        assert score["mutual_information"] <= score["bound"]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[2] + 0.3

"""However rows are laid out, states, gradients and the rate of dropout are the same; memory is what differs."""

from itertools import product

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from registry.encoders import blocks
from registry.encoders.transformer import TransformerEncoder
from tests.registry.encoders.test_transformer import MAKERS
from tests.registry.encoders.vectors import tokens_of
from tests.support.chosen import these
from tests.support.tiny import sentences

WAYS = ["packed", "small packs", "rows", "packed rows"]
POOLINGS = ["cls, first alone", "mean", "last2", "first_last", "cls"]


def lay_out(way, monkeypatch):
    """Arrange for one way; return `mini_batch_size`."""
    if way == "small packs":
        monkeypatch.setattr(blocks, "PACK_TOKENS", 10)
    if way in ("padded", "rows"):
        monkeypatch.setattr(blocks, "_packs", lambda *_: False)
    return 2 if "rows" in way else None


def outcome(encoder, tokens, hidden_read, rows):
    """Sentence vectors, states of real tokens, and the gradient of every weight."""
    encoder.expect(hidden_read=hidden_read, mini_batch_size=rows)
    encoder.zero_grad()
    vectors = encoder.embed(tokens)
    vectors.retain_grad()
    encoded = encoder.encode(tokens, vectors)
    weights = torch.linspace(-1, 1, encoded.sentence.numel(), dtype=torch.float64).view_as(encoded.sentence)
    (encoded.sentence * weights).sum().backward()
    real = tokens.mask.bool()
    states = [encoded.hidden[real]] if hidden_read else []
    gradients = {name: weight.grad for name, weight in encoder.named_parameters() if weight.grad is not None}
    return encoded.sentence.detach(), states, {**gradients, "vectors": vectors.grad[real]}


def same(found, expected):
    torch.testing.assert_close(found[:2], expected[:2])
    assert found[2].keys() == expected[2].keys()
    for name, gradient in found[2].items():
        torch.testing.assert_close(gradient, expected[2][name], msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "pooling"), these(zip(MAKERS, POOLINGS, strict=False), product(MAKERS, POOLINGS)))
def test_every_layout_gives_the_same_vectors_and_gradients(tmp_path, make, pooling):
    encoder = TransformerEncoder(str(make(tmp_path)), pooling=pooling.partition(",")[0], dropout=0.0).double()
    tokens = tokens_of(encoder, sentences(7))
    assert not tokens.mask.all()
    with pytest.MonkeyPatch.context() as patch:
        lay_out("padded", patch)
        vectors, states, gradients = outcome(encoder, tokens, True, None)
    hidden_read = "alone" not in pooling
    for way in WAYS:
        with pytest.MonkeyPatch.context() as patch:
            rows = lay_out(way, patch)
            same(outcome(encoder, tokens, hidden_read, rows), (vectors, states * hidden_read, gradients))


def test_single_precision_agrees_to_a_millionth(tmp_path, monkeypatch):
    encoder = TransformerEncoder(str(MAKERS[0](tmp_path)), dropout=0.0)
    tokens = tokens_of(encoder, sentences(7))
    vectors = encoder.embed(tokens)
    packed = encoder.encode(tokens, vectors).sentence
    lay_out("padded", monkeypatch)
    torch.testing.assert_close(packed, encoder.encode(tokens, vectors).sentence, rtol=0, atol=1e-6)


def test_states_nobody_reads_are_not_made(tmp_path):
    encoder = TransformerEncoder(str(MAKERS[0](tmp_path)))
    tokens = tokens_of(encoder)
    rows = []
    last = encoder.backbone.encoder.layer[-1].intermediate
    last.register_forward_hook(lambda _, given, __: rows.append(given[0].shape[:-1].numel()))
    encoder.encode(tokens, encoder.embed(tokens))
    encoder.expect(hidden_read=False, mini_batch_size=None)
    assert encoder.encode(tokens, encoder.embed(tokens)).hidden.shape == (tokens.rows, 1, encoder.width)
    assert rows == [int(tokens.mask.sum()), tokens.rows]


def test_a_row_that_begins_with_a_hidden_token_is_padded(tmp_path):
    encoder = TransformerEncoder(str(MAKERS[0](tmp_path)), dropout=0.0)
    tokens = tokens_of(encoder)
    tokens.mask[0, 0] = 0
    expected = encoder.backbone.eval()(inputs_embeds=None, input_ids=tokens.ids, attention_mask=tokens.mask)
    encoder.backbone.train()
    found = encoder.encode(tokens, encoder.embed(tokens)).sentence
    torch.testing.assert_close(found, expected.last_hidden_state[:, 0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("hidden_read", [True, False])
def test_dropout_stays_on_at_its_rate(tmp_path, hidden_read):
    encoder = TransformerEncoder(str(MAKERS[0](tmp_path)), dropout=0.3)
    encoder.expect(hidden_read=hidden_read, mini_batch_size=None)
    tokens = tokens_of(encoder, sentences(40))
    kept = []
    for module in encoder.backbone.modules():
        if isinstance(module, nn.Dropout):
            module.register_forward_hook(lambda _, given, out: kept.append((out[given[0] != 0] != 0).float().mean()))
    one, other = (encoder.encode(tokens, encoder.embed(tokens)).sentence for _ in range(2))
    assert (one - other).abs().max() > 1e-3
    assert kept
    assert all(abs(share - 0.7) < 0.06 for share in kept)


@pytest.mark.slow
def test_rows_computed_again_see_the_same_dropout(tmp_path, monkeypatch):
    encoder = TransformerEncoder(str(MAKERS[0](tmp_path)), dropout=0.3)
    tokens = tokens_of(encoder, sentences(7))
    lay_out("rows", monkeypatch)

    def gradients(held):
        monkeypatch.setattr(blocks, "checkpoint", held)
        torch.manual_seed(3)
        return outcome(encoder.double(), tokens, False, 2)

    again = gradients(checkpoint)
    kept = gradients(lambda run, *given, **_: run(*given))
    same(again, kept)


@pytest.mark.slow
def test_rows_at_once_bounds_what_is_held(tmp_path):
    encoder = TransformerEncoder(str(MAKERS[0](tmp_path)))
    tokens = tokens_of(encoder, sentences(40))

    def held(rows):
        encoder.expect(hidden_read=False, mini_batch_size=rows)
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
            encoder.encode(tokens, encoder.embed(tokens))
        return sum(kept)

    assert held(4) < held(None) / 3

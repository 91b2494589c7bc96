"""Heads that are dropped: which, what becomes of the others, and that no layout of the rows changes it."""

import math

import pytest
import torch
from torch.nn.functional import gelu, layer_norm

from registry.encoders.ema import Ema
from registry.encoders.head_dropout import HeadDropout
from registry.encoders.transformer import TransformerEncoder
from tests.registry.encoders.test_blocks import WAYS, lay_out
from tests.registry.encoders.vectors import tokens_of
from tests.support.errors import refuses
from tests.support.tiny import sentences, tiny_albert, tiny_bert

RATE = 0.5


def encoder_of(folder, make=tiny_bert, **options):
    return TransformerEncoder(str(make(folder)), dropout=0.0, drophead=RATE, **options).double()


def block_by_hand(block, states, weights):
    """One sentence through one of BERT's blocks: each head by itself, times its weight."""
    own, width = block.attention.self, states.shape[-1] // len(weights)
    heads = []
    for number, weight in enumerate(weights):
        part = slice(number * width, (number + 1) * width)
        query, key, value = ((states @ m.weight.T + m.bias)[:, part] for m in (own.query, own.key, own.value))
        heads.append(weight * ((query @ key.T / math.sqrt(width)).softmax(-1) @ value))
    context = torch.cat(heads, dim=-1)
    for layer, norm in (
        (block.attention.output.dense, block.attention.output.LayerNorm),
        (block.output.dense, block.output.LayerNorm),
    ):
        if layer is block.output.dense:
            context = gelu(states @ block.intermediate.dense.weight.T + block.intermediate.dense.bias)
        made = context @ layer.weight.T + layer.bias + states
        states = layer_norm(made, made.shape[-1:], norm.weight, norm.bias, norm.eps)
    return states


@pytest.mark.parametrize(("way", "hidden_read"), [*zip(["padded", *WAYS], [True, False] * 3, strict=False)])
def test_equals_the_blocks_by_hand(tmp_path, monkeypatch, way, hidden_read):
    encoder = encoder_of(tmp_path)
    tokens = tokens_of(encoder, sentences(7))
    encoder.expect(hidden_read=hidden_read, mini_batch_size=lay_out(way, monkeypatch))
    vectors = encoder.embed(tokens)
    torch.manual_seed(4)
    found = encoder.encode(tokens, vectors).sentence
    torch.manual_seed(4)
    weights = encoder.drophead.draw(7, vectors.device).double()
    assert sorted(set(weights.flatten().tolist())) == [0.0, 1.0, 2.0]  # of two heads both stay, or one counts twice
    for row in range(7):
        states = vectors[row, : int(tokens.mask[row].sum())]
        for number, block in enumerate(encoder.backbone.encoder.layer):
            states = block_by_hand(block, states, weights[row, number].tolist())
        torch.testing.assert_close(found[row], states[0], atol=1e-9, rtol=0)


def test_heads_are_dropped_at_their_rate_and_never_all():
    drop = HeadDropout(0.2, 4, 12)
    torch.manual_seed(0)
    weights = drop.draw(5000, torch.device("cpu"))
    assert weights.shape == (5000, 4, 12)
    kept = weights > 0
    assert abs(1 - kept.float().mean().item() - 0.2) < 0.005
    torch.testing.assert_close(weights.sum(-1), torch.full((5000, 4), 12.0))
    torch.testing.assert_close(weights[kept], (12 / kept.sum(-1, keepdim=True)).expand_as(weights)[kept])
    few = HeadDropout(0.9, 1, 2).draw(4000, torch.device("cpu"))
    both = (few == 1).all(-1).float().mean().item()
    assert abs(both - (0.1**2 + 0.9**2)) < 0.03  # neither drawn, or both: none is dropped


@pytest.mark.slow
def test_off_is_the_same_to_the_bit_and_draws_nothing(tmp_path):
    model = str(tiny_bert(tmp_path))
    plain, off = TransformerEncoder(model), TransformerEncoder(model, drophead=0.0)
    made = []
    for encoder in (plain, off):
        tokens = tokens_of(encoder)
        torch.manual_seed(1)
        made.append((encoder.encode(tokens, encoder.embed(tokens)).sentence, torch.rand(1)))
    assert torch.equal(made[0][0], made[1][0])
    assert torch.equal(made[0][1], made[1][1])


@pytest.mark.slow
def test_evaluation_and_a_momentum_encoder_without_dropout_drop_none(tmp_path):
    encoder = encoder_of(tmp_path)
    tokens = tokens_of(encoder)
    plain = TransformerEncoder(encoder.model).double()
    encoder.encode(tokens, encoder.embed(tokens))
    assert torch.equal(encoder.encode_for_eval(tokens), plain.encode_for_eval(tokens))
    assert not any(block.attention.output._forward_pre_hooks for block in encoder.backbone.encoder.layer)
    target = Ema(encoder, dropout=0.0)
    twice = [target.encode(tokens, target.embed(tokens)).sentence for _ in range(2)]
    assert torch.equal(twice[0], twice[1])
    target = Ema(encoder)
    assert not torch.equal(*(target.encode(tokens, target.embed(tokens)).sentence for _ in range(2)))
    with refuses("encoders.unsupported_architecture", "drophead", "AlbertModel"):
        encoder_of(tmp_path, tiny_albert)

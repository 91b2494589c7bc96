"""Attention weights that a loss reads: what they are, and that nothing else the encoder gives is changed by them."""

import math

import pytest
import torch

from cse_cli.training.method import encode_together
from registry.encoders.ema import Ema
from registry.encoders.frozen_copy import FrozenCopy
from registry.encoders.prefixed import PrefixedEncoder
from registry.encoders.transformer import TransformerEncoder
from registry.tokens import Embedded
from tests.registry.encoders.test_head_dropout import block_by_hand
from tests.registry.encoders.vectors import tokens_of
from tests.support.errors import refuses
from tests.support.tiny import sentences, tiny_albert, tiny_bert, tiny_roberta

HEADS = 2


def encoder_of(folder, make=tiny_bert, **options):
    return TransformerEncoder(str(make(folder)), **{"dropout": 0.0, **options}).double()


def weights_by_hand(encoder, tokens, row):
    """Weights (H, n, n) of each block for one sentence, head by head."""
    length = int(tokens.mask[row].sum())
    states = encoder.embed(tokens)[row, :length].detach()
    width, found = states.shape[-1] // HEADS, []
    for block in encoder.backbone.encoder.layer:
        own = block.attention.self
        query, key = (states @ part.weight.T + part.bias for part in (own.query, own.key))
        scores = [
            query[:, h * width : (h + 1) * width] @ key[:, h * width : (h + 1) * width].T / math.sqrt(width)
            for h in range(HEADS)
        ]
        found.append(torch.stack(scores).softmax(-1))
        states = block_by_hand(block, states, [1.0] * HEADS)
    return found


@pytest.mark.parametrize(("make", "rows"), [(tiny_bert, None), (tiny_roberta, 3)])
def test_weights_are_those_of_each_head_by_hand(tmp_path, make, rows):
    encoder = encoder_of(tmp_path, make)
    encoder.expect(hidden_read=False, mini_batch_size=rows)
    encoder.keep_attentions([1, 0])
    tokens = tokens_of(encoder, sentences(5))
    attentions = encoder.encode(tokens, encoder.embed(tokens)).attentions
    assert list(attentions) == [0, 1]
    for row, length in enumerate(tokens.mask.sum(1).tolist()):
        for block, weights in enumerate(weights_by_hand(encoder, tokens, row)):
            torch.testing.assert_close(attentions[block][row, :, :length, :length], weights)
            assert not attentions[block][row, :, :, length:].any()


@pytest.mark.slow
def test_mini_batches_give_the_same_gradient_through_the_weights(tmp_path):
    encoder = encoder_of(tmp_path)
    encoder.keep_attentions([0, 1])
    tokens = tokens_of(encoder, sentences(5))
    found = []
    for rows in (None, 2):
        encoder.expect(hidden_read=False, mini_batch_size=rows)
        encoder.zero_grad()
        attentions = encoder.encode(tokens, encoder.embed(tokens)).attentions
        sum(weights.square().sum() for weights in attentions.values()).backward()
        found.append(encoder.backbone.encoder.layer[1].attention.self.query.weight.grad.clone())
    assert found[0].any()
    torch.testing.assert_close(found[1], found[0])


def test_dropout_of_attention_weights_is_in_them(tmp_path):
    encoder = encoder_of(tmp_path, dropout=0.4)
    encoder.keep_attentions([0])
    tokens = tokens_of(encoder, ["the cat sees a dog"] * 50)
    assert (encoder.encode(tokens, encoder.embed(tokens)).attentions[0] == 0).double().mean() == pytest.approx(
        0.4, abs=0.05
    )
    encoder.eval()
    assert (encoder.encode(tokens, encoder.embed(tokens)).attentions[0] > 0).all()


def test_views_are_given_their_own_rows_and_length(tmp_path):
    encoder = encoder_of(tmp_path)
    encoder.keep_attentions([0])
    members = {}
    for view, texts in {"short": ["the cat"], "long": ["the cat sees a dog in the house", "a dog"]}.items():
        tokens = tokens_of(encoder, texts)
        members[view] = Embedded(tokens, encoder.embed(tokens))
    together = encode_together(encoder, members)
    for view, member in members.items():
        alone = encoder.encode(member.tokens, member.vectors).attentions[0]
        real = member.tokens.mask[:, None, :, None].bool()
        torch.testing.assert_close(together[view].attentions[0] * real, alone * real)


def test_a_momentum_encoder_gives_those_of_its_copy(tmp_path):
    encoder = encoder_of(tmp_path)
    slow = Ema(encoder)
    slow.keep_attentions([1])
    tokens = tokens_of(encoder, sentences(2))
    assert list(slow.encode(tokens, slow.embed(tokens)).attentions) == [1]
    assert not encoder.encode(tokens, encoder.embed(tokens)).attentions


@pytest.mark.slow
def test_what_has_no_such_weights_is_refused(tmp_path):
    with refuses("encoders.unknown_block", "[1, 7]", "has 2 blocks", "0 to 1"):
        encoder_of(tmp_path).keep_attentions([1, 7])
    with refuses("encoders.unsupported_architecture", "attention weights", "AlbertModel"):
        encoder_of(tmp_path, tiny_albert).keep_attentions([0])
    for made in (PrefixedEncoder(model=str(tiny_bert(tmp_path))), FrozenCopy(encoder_of(tmp_path))):
        with refuses("encoder.no_attentions", "[0]", type(made).__name__):
            made.keep_attentions([0])

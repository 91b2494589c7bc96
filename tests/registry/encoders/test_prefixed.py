"""Learned keys and values in front of a sentence's own, in every block."""

import math
from copy import deepcopy

import pytest
import torch

from registry.encoders.prefixed import PrefixedEncoder
from tests.registry.encoders.vectors import tokens_of
from tests.support.errors import refuses
from tests.support.tiny import sentences, tiny_albert, tiny_bert, tiny_roberta

TEXTS = sentences(4)


def encoder(folder, make=tiny_bert, **given):
    torch.manual_seed(0)
    values = {"length": 3, "initial": 0.5, "dropout": 0.0, **given}
    return PrefixedEncoder(model=str(make(folder)), **values)


def by_hand(made, ids):
    """The last layer's states (n, D) of one sentence: BERT's blocks written out, P more keys and values in each.

    The positions are those of transformers 4.2.1, which PromCSE's code requires: P cached keys move tokens to P, P + 1,
    … (`modeling_bert.py:194`), in RoBERTa to P + padding_idx + 1, … (`modeling_roberta.py:1489`).
    """
    backbone = made.backbone
    parts = backbone.embeddings
    first = made.prefix.shape[2] + (parts.padding_idx + 1 if backbone.config.model_type == "roberta" else 0)
    rows = [
        parts.word_embeddings.weight[token]
        + parts.position_embeddings.weight[first + place]
        + parts.token_type_embeddings.weight[0]
        for place, token in enumerate(ids)
    ]
    x = torch.stack([(row - row.mean()) / (row.var(unbiased=False) + parts.LayerNorm.eps).sqrt() for row in rows])
    x = x * parts.LayerNorm.weight + parts.LayerNorm.bias
    for block, (keys, values) in zip(backbone.encoder.layer, made.prefix, strict=True):
        own = block.attention.self
        query = torch.nn.functional.linear(x, own.query.weight, own.query.bias)
        key = torch.cat([keys, torch.nn.functional.linear(x, own.key.weight, own.key.bias)])
        value = torch.cat([values, torch.nn.functional.linear(x, own.value.weight, own.value.bias)])
        size, found = own.attention_head_size, []
        for head in range(own.num_attention_heads):
            part = slice(head * size, (head + 1) * size)
            found.append((query[:, part] @ key[:, part].T / math.sqrt(size)).softmax(1) @ value[:, part])
        x = block.feed_forward_chunk(block.attention.output(torch.cat(found, 1), x))
    return x


@pytest.mark.parametrize(("make", "pooling"), [(tiny_bert, "cls"), (tiny_roberta, "mean")])
def test_every_block_sees_the_prefix(tmp_path, make, pooling):
    made = encoder(tmp_path, make, pooling=pooling).double().eval()
    tokens = tokens_of(made)
    assert not tokens.mask.all()
    with torch.no_grad():
        trained, scored = made.encode(tokens, made.embed(tokens)).sentence, made.encode_for_eval(tokens)
        for row in range(len(TEXTS)):
            states = by_hand(made, tokens.ids[row][tokens.mask[row] == 1].tolist())
            expected = states[0] if pooling == "cls" else states.mean(0)
            torch.testing.assert_close(trained[row], expected, rtol=0, atol=1e-10)
            torch.testing.assert_close(scored[row], expected, rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("make", [tiny_bert, tiny_roberta])
def test_value_and_gradient_of_the_authors_code(tmp_path, make):
    made = encoder(tmp_path, make, freeze=["embeddings", "encoder"]).double()
    tokens = tokens_of(made)
    value = made.encode(tokens, made.embed(tokens)).sentence.sin().sum()
    rows = [by_hand(made, ids[mask == 1].tolist())[0] for ids, mask in zip(tokens.ids, tokens.mask, strict=True)]
    theirs = torch.stack(rows).sin().sum()
    torch.testing.assert_close(value, theirs, rtol=1e-9, atol=0)
    (found,), (expected,) = (torch.autograd.grad(each, [made.prefix]) for each in (value, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-12)


def test_the_prefix_takes_positions(tmp_path):
    made = encoder(tmp_path, length=60, freeze=["embeddings", "encoder"])
    assert made.max_length == 4  # of 64
    tokens = tokens_of(made, [" ".join(["the"] * 9)])
    assert made.encode_for_eval(tokens).isfinite().all()  # tokens after the last position share it


@pytest.mark.slow
def test_the_prefix_is_trained_and_copied_and_needs_keys(tmp_path):
    made = encoder(tmp_path, freeze=["embeddings", "encoder"])
    assert [name for name, weights in made.named_parameters() if weights.requires_grad] == ["prefix"]
    tokens = tokens_of(made)
    made.encode(tokens, made.embed(tokens)).sentence.square().sum().backward()
    assert made.prefix.grad is not None
    assert (made.prefix.grad.flatten(2).abs().sum(2) > 0).all()
    made = encoder(tmp_path)
    copied, tokens = deepcopy(made), tokens_of(made)
    before = copied.encode_for_eval(tokens)
    with torch.no_grad():
        made.prefix.mul_(-3)
    assert torch.equal(copied.encode_for_eval(tokens), before)
    assert not torch.allclose(made.encode_for_eval(tokens), before, atol=1e-3)
    with refuses("encoders.unsupported_architecture", "prefixed", "AlbertModel"):
        encoder(tmp_path, tiny_albert)


@pytest.mark.slow
def test_rows_computed_again_give_the_same_gradient(tmp_path):
    made = encoder(tmp_path)
    tokens, found = tokens_of(made), []
    for rows in (None, 2):
        made.expect(hidden_read=False, mini_batch_size=rows)
        made.zero_grad()
        made.encode(tokens, made.embed(tokens)).sentence.sin().sum().backward()
        found.append(made.prefix.grad.clone())
    torch.testing.assert_close(found[0], found[1])


def test_its_dropout_follows_the_encoder_s(tmp_path):
    made = encoder(tmp_path, dropout=0.4)
    made.dropout.p = 0.0
    for block in made.backbone.encoder.layer:
        for part in block.modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
    tokens = tokens_of(made, [TEXTS[0]] * 2)
    first, second = made.encode(tokens, made.embed(tokens)).sentence
    assert made.prefix_dropout.p == 0.4
    assert not torch.allclose(first, second, atol=1e-4)

"""A sentence's vector depends on the sentence alone: not on its batch, its place, or how often it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cse_cli.devices import choose
from cse_cli.encoding import SentenceEncoder
from registry.encoders.transformer import TransformerEncoder
from tests.fakes import FakeEncoder
from tests.tiny import sentences, tiny_bert

TEXTS = sentences(23)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> TransformerEncoder:
    return TransformerEncoder(str(tiny_bert(tmp_path_factory.mktemp("model"))), pooling="mean")


def encode(encoder: TransformerEncoder | FakeEncoder, batch_size: int = 8, max_length: int = 64) -> SentenceEncoder:
    return SentenceEncoder(encoder, choose("cpu"), batch_size, max_length)


@pytest.mark.parametrize("batch_size", [1, 2, 7, 23, 100])
def test_the_batch_size_changes_nothing(encoder, batch_size):
    one_by_one = torch.cat([encode(encoder)([text]) for text in TEXTS])
    together = encode(encoder, batch_size)(TEXTS)
    assert together.shape == (23, 16)
    assert together.dtype == torch.float32
    torch.testing.assert_close(together, one_by_one, rtol=0, atol=1e-6)


def test_the_order_changes_nothing(encoder):
    order = torch.randperm(23, generator=torch.Generator().manual_seed(0)).tolist()
    shuffled = encode(encoder)([TEXTS[i] for i in order])
    torch.testing.assert_close(shuffled, encode(encoder)(TEXTS)[order], rtol=0, atol=1e-6)


def test_each_distinct_sentence_is_encoded_once_and_equal_ones_are_equal():
    class Counting(FakeEncoder):
        rows = 0

        def represent(self, tokens):
            self.rows += len(tokens.ids)
            return super().represent(tokens)

    encoder = Counting()
    vectors = encode(encoder, batch_size=2)(["a b", "c", "a b", "d e f", "c", "a b"])
    assert encoder.rows == 3
    assert encoder.passes == 2
    assert torch.equal(vectors[0], vectors[2])
    assert torch.equal(vectors[0], vectors[5])
    assert torch.equal(vectors[1], vectors[4])
    assert not torch.equal(vectors[0], vectors[1])


def test_nothing_to_encode(encoder):
    assert encode(encoder)([]).shape == (0, 16)


def test_an_empty_sentence_has_a_vector(encoder):
    assert torch.isfinite(encode(encoder)(["", "a dog"])).all()


@pytest.mark.parametrize("asked", [64, 65, 512])
def test_long_text_is_cut_to_what_the_model_takes(encoder, asked):
    long = " ".join(["dog", "cat", "red"] * 40)
    cut = " ".join((["dog", "cat", "red"] * 40)[:62])  # [CLS] and [SEP] make 64
    torch.testing.assert_close(encode(encoder, max_length=asked)([long]), encode(encoder)([cut]), rtol=0, atol=1e-6)


def test_text_is_cut_to_what_is_asked_for(encoder):
    assert torch.equal(encode(encoder, max_length=4)(["dog cat red green"]), encode(encoder)(["dog cat"]))


def test_no_gradient_no_dropout_and_the_mode_stays(encoder):
    encoder.train()
    first, second = encode(encoder)(TEXTS), encode(encoder)(TEXTS)
    assert torch.equal(first, second)
    assert not first.requires_grad
    assert encoder.training


def test_random_streams_are_untouched(encoder, tmp_path: Path):
    before = torch.get_rng_state()
    encode(encoder)(TEXTS)
    assert torch.equal(torch.get_rng_state(), before)

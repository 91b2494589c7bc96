"""A sentence's vector depends on the sentence alone: not on its batch, its place, or how often it is asked for."""

from __future__ import annotations

import pytest
import torch

from cse_cli.core.devices import choose
from cse_cli.evaluation import encoder as encoding
from cse_cli.evaluation.encoder import SentenceEncoder
from registry.encoders.transformer import TransformerEncoder
from tests.support.fakes import FakeEncoder
from tests.support.tiny import sentences, tiny_bert

TEXTS = sentences(23)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> TransformerEncoder:
    return TransformerEncoder(str(tiny_bert(tmp_path_factory.mktemp("model"))), pooling="mean")


class Counting(FakeEncoder):
    """Knows the shape of every batch it was given."""

    def __init__(self):
        super().__init__()
        self.shapes = []

    def encode_for_eval(self, tokens, embeddings=None):
        self.shapes.append(tuple(tokens.ids.shape))
        return super().encode_for_eval(tokens, embeddings)

    @property
    def rows(self):
        return sum(rows for rows, _ in self.shapes)

    @property
    def largest(self):
        return max(rows * length for rows, length in self.shapes)


def encode(encoder: TransformerEncoder | FakeEncoder, batch_tokens: int = 80, max_length: int = 64) -> SentenceEncoder:
    return SentenceEncoder(encoder, choose("cpu"), batch_tokens, max_length)


@pytest.mark.slow
@pytest.mark.parametrize("batch_tokens", [1, 12, 31, 100, 4096])
def test_the_batch_size_changes_nothing(encoder, batch_tokens):
    one_by_one = torch.cat([encode(encoder)([text]) for text in TEXTS])
    together = encode(encoder, batch_tokens)(TEXTS)
    assert together.shape == (23, 16)
    assert together.dtype == torch.float32
    torch.testing.assert_close(together, one_by_one, rtol=0, atol=1e-6)
    torch.testing.assert_close(encode(encoder, batch_tokens)(TEXTS[::-1]), together.flip(0), rtol=0, atol=1e-6)


def test_no_sentence_and_an_empty_one(encoder):
    assert encode(encoder)([]).shape == (0, 16)
    assert torch.isfinite(encode(encoder)(["", "a dog"])).all()


def test_each_distinct_sentence_is_encoded_once():
    encoder = Counting()
    vectors = encode(encoder, batch_tokens=6)(["a b", "c", "a b", "d e f", "c", "a b"])
    assert encoder.rows == 3
    assert encoder.passes == 2
    assert torch.equal(vectors[0], vectors[2])
    assert torch.equal(vectors[0], vectors[5])
    assert torch.equal(vectors[1], vectors[4])
    assert not torch.equal(vectors[0], vectors[1])


@pytest.mark.parametrize("asked", [64, 65, 512])
def test_long_text_is_cut_to_what_the_model_takes(encoder, asked):
    long = " ".join(["dog", "cat", "red"] * 40)
    cut = " ".join((["dog", "cat", "red"] * 40)[:62])  # [CLS] and [SEP] make 64
    torch.testing.assert_close(encode(encoder, max_length=asked)([long]), encode(encoder)([cut]), rtol=0, atol=1e-6)
    assert torch.equal(encode(encoder, max_length=4)(["dog cat red green"]), encode(encoder)(["dog cat"]))


def test_no_gradient_no_dropout_and_mode_and_random_state_stay(encoder):
    encoder.train()
    before = torch.get_rng_state()
    first, second = encode(encoder)(TEXTS), encode(encoder)(TEXTS)
    assert torch.equal(first, second)
    assert not first.requires_grad
    assert encoder.training
    assert torch.equal(torch.get_rng_state(), before)


def test_what_was_asked_before_costs_nothing():
    encoder = Counting()
    shared = encode(encoder)
    first = shared(["a b", "c"])
    again = shared(["c", "d e f", "a b"])
    assert encoder.rows == 3
    assert torch.equal(again[0], first[1])
    assert torch.equal(again[2], first[0])
    shared.forget()
    assert torch.equal(shared(["c"])[0], first[1])
    assert encoder.rows == 4


def test_batches_have_at_most_the_given_tokens():
    encoder = Counting()
    encode(encoder, batch_tokens=12)([f"{'a ' * n}b" for n in range(9)] * 2 + [f"c {'a ' * n}" for n in range(7)])
    assert encoder.largest <= 12
    encode(encoder, batch_tokens=1)(["a b c d"])
    assert encoder.largest <= 12


def test_the_cache_is_bounded():
    encoder = Counting()
    row = 8 * 4
    shared = SentenceEncoder(encoder, choose("cpu"), 80, 64, cache_bytes=3 * row)
    texts = [f"{a} {b}" for a in "abcd" for b in "xy"]
    whole = shared(texts)
    assert len(shared._cache) <= 3
    assert encoder.rows == 8
    # 1e-6, as batches of any size agree: an Intel Xeon rounds the products of two rows otherwise than those of eight.
    torch.testing.assert_close(shared(texts[:2]), whole[:2], rtol=0, atol=1e-6)
    assert encoder.rows > 8
    assert len(shared._cache) <= 3


def test_a_call_is_answered_whole_however_many_parts_it_comes_in(monkeypatch):
    monkeypatch.setattr(encoding, "CHUNK", 3)
    encoder = Counting()
    texts = [f"{a} {b}" for a in "abcd" for b in "xy"] * 2
    parts = encode(encoder)(texts)
    assert encoder.rows == 8
    monkeypatch.undo()
    torch.testing.assert_close(parts, encode(encoder)(texts), rtol=0, atol=1e-6)


def test_longer_sentences_join_only_small_batches(monkeypatch):
    monkeypatch.setattr(encoding, "ENOUGH", 6)
    encoder = Counting()
    encode(encoder, batch_tokens=1000)(["a b c", "d", "a b", "c d", "e", "f g", "d e f"])
    assert encoder.shapes == [(5, 3), (2, 4)]  # [CLS] counts

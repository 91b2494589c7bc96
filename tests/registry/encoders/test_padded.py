"""Means over a fixed number of positions, padding included, against transformers run on rows of that length."""

import pytest
import torch

from registry.encoders.padded import PaddedEncoder
from registry.encoders.saved import open_encoder
from registry.encoders.transformer import TransformerEncoder
from tests.registry.encoders import vectors
from tests.support.errors import refuses
from tests.support.tiny import sentences, tiny_bert

TEXTS = ["a", *sentences(5, seed=2)]


def tokens_of(encoder, texts=TEXTS):
    return vectors.tokens_of(encoder, texts, 12)


def by_hand(backbone, tokenizer, texts, positions):
    """`batch_encode_plus(padding="max_length")`, the model's own forward, and `last_hidden_state.mean(1)`."""
    rows = tokenizer(texts, padding="max_length", max_length=positions, truncation=True, return_tensors="pt")
    return backbone(**rows).last_hidden_state.mean(1)


@pytest.fixture
def encoder(tmp_path):
    return PaddedEncoder(14, 20, model=str(tiny_bert(tmp_path)), dropout=0.0).double()


def test_training_and_evaluation_by_hand(encoder):
    tokens = tokens_of(encoder)
    made = encoder.encode(tokens, encoder.embed(tokens))
    expected = by_hand(encoder.backbone, encoder.vocabulary.tokenizer, TEXTS, 14)
    torch.testing.assert_close(made.sentence, expected, rtol=1e-9, atol=1e-12)
    assert made.hidden.shape[:2] == tokens.ids.shape
    weights = [p for p in encoder.backbone.parameters() if p.requires_grad]
    target = torch.randn(made.sentence.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mine, theirs = (
        torch.autograd.grad((vectors * target).sum(), weights, allow_unused=True)
        for vectors in (made.sentence, expected)
    )
    for one, other in zip(mine, theirs, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert (one - other).norm() <= 1e-9 * other.norm() + 1e-12
    scored = encoder.encode_for_eval(tokens)
    expected = by_hand(encoder.backbone, encoder.vocabulary.tokenizer, TEXTS, 20)
    torch.testing.assert_close(scored, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_other_sentences_and_vectors_at_padding_do_not_matter_but_padding_does(encoder, tmp_path):
    together = encoder.encode_for_eval(tokens_of(encoder))
    alone = torch.cat([encoder.encode_for_eval(tokens_of(encoder, [text])) for text in TEXTS])
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-12)
    real = TransformerEncoder(encoder.model, pooling="mean").double().encode_for_eval(tokens_of(encoder))
    assert (together - real).norm(dim=1).min() > 1e-2
    # Stacked views have zeros there.
    tokens = tokens_of(encoder)
    made = encoder.embed(tokens)
    other = made * tokens.mask.unsqueeze(-1)
    assert not torch.equal(made, other)
    assert torch.equal(encoder.encode(tokens, made).sentence, encoder.encode(tokens, other).sentence)


@pytest.mark.slow
def test_padding_drops_out_row_by_row_and_what_does_not_fit_is_refused(tmp_path, encoder):
    encoder = PaddedEncoder(20, model=str(tiny_bert(tmp_path)), dropout=0.5)
    vectors, mask = torch.ones(3, 4, 16), torch.ones(3, 4, dtype=torch.long)
    made, seen = encoder._stretched(vectors, mask, 20)
    assert torch.equal(made[:, :4], vectors)
    assert not torch.equal(made[0, 4:], made[1, 4:])
    assert seen.mask.sum(1).tolist() == [4, 4, 4]
    assert (made[:, 4:] == 0).float().mean().item() == pytest.approx(0.5, abs=0.1)
    tokens = tokens_of(encoder)
    encoder.positions = tokens.length - 1
    with refuses("encoders.too_few_positions", str(tokens.length), "positions"):
        encoder.encode(tokens, encoder.embed(tokens))
    with refuses("encoder.no_attentions"):
        encoder.keep_attentions([0])
    limit = encoder.backbone.config.max_position_embeddings
    with refuses("encoders.too_many_positions", f"{limit + 1} positions", f"at most {limit}"):
        PaddedEncoder(14, limit + 1, model=encoder.model)


@pytest.mark.slow
def test_an_export_is_opened_with_another_pooling(encoder, tmp_path):
    encoder.export(tmp_path / "model", 12)
    assert "positions = 20" in (tmp_path / "model" / "README.md").read_text()
    assert type(open_encoder(str(tmp_path / "model"), "cls")[0]) is TransformerEncoder

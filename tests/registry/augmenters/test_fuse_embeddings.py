from dataclasses import replace

import pytest
import torch
from transformers import AutoModel

from registry.augmenters.fuse_embeddings import FuseEmbeddings
from registry.encoders.transformer import TransformerEncoder
from registry.tokens import Embedded
from registry.types import Step
from tests.support.errors import refuses
from tests.support.tiny import tiny_albert, tiny_bert, tiny_roberta

pytestmark = pytest.mark.slow

SOURCE = ["the cat runs", "a small dog sleeps under the green tree", "not two"]
FOREIGN = ["die katze laeuft ein baum rot", "ein hund", "nicht"]
STEP: Step = None  # type: ignore[assignment]  # this augmenter does not read it


def bound(tmp_path, *, source=tiny_bert, foreign=tiny_bert, site="layer", **params):
    encoder = TransformerEncoder(str(source(tmp_path / "s")), augment_at=site)
    augmenter = FuseEmbeddings(str(foreign(tmp_path / "f", seed=7)), **params)
    augmenter.bind(encoder)
    tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(SOURCE, 32))
    side = augmenter.vocabulary.pad(augmenter.vocabulary.ids(FOREIGN, 32))
    tokens = replace(tokens, side={"translation": side})
    return encoder, augmenter, Embedded(tokens, encoder.embed(tokens))


def fuse(augmenter, embedded):
    return augmenter.on_embeddings(embedded, "fraternal", STEP)


def slow_fuse(encoder, augmenter, tokens):
    """Place by place from the two models' own embedding layers, as transformers runs them on padded ids."""
    side = tokens.side["translation"]
    length = tokens.length if augmenter.mask == "source" else max(tokens.length, side.length)
    ours = own_layer(encoder.model, tokens.ids, encoder.vocabulary.tokenizer.pad_token_id, length)
    theirs = own_layer(augmenter.model, side.ids, augmenter.vocabulary.tokenizer.pad_token_id, length)
    out = torch.zeros_like(ours)
    mask = torch.zeros(ours.shape[:2], dtype=torch.long)
    for row in range(len(ours)):
        for place in range(length):
            here = place < tokens.length and tokens.mask[row, place] == 1
            there = place < side.length and side.mask[row, place] == 1
            y, z, rate = ours[row, place], theirs[row, place], augmenter.rate
            if (here and there) or augmenter.pad_fill == "pad_embedding":
                out[row, place] = rate * y + (1 - rate) * z
            elif augmenter.pad_fill == "zero":
                out[row, place] = rate * y if here else (1 - rate) * z
            else:
                out[row, place] = y if here else z
            mask[row, place] = {"source": here, "fraternal": there, "union": here or there}[augmenter.mask]
    return out, mask


def own_layer(folder, ids, pad, length):
    model = AutoModel.from_pretrained(folder).eval()
    ids = torch.cat([ids, ids.new_full((len(ids), length), pad)], dim=1)[:, :length]
    offset = pad + 1 if "Roberta" in type(model).__name__ else 0
    positions = (torch.arange(length) + offset).expand(len(ids), -1)
    with torch.no_grad():
        return model.embeddings(input_ids=ids, position_ids=positions)


@pytest.mark.parametrize(
    ("source", "foreign", "mask", "pad_fill"),
    [
        (tiny_bert, tiny_roberta, "source", "source"),
        (tiny_bert, tiny_bert, "union", "zero"),
        (tiny_roberta, tiny_roberta, "fraternal", "pad_embedding"),
    ],
)
def test_equals_the_slow_version(tmp_path, source, foreign, mask, pad_fill):
    encoder, augmenter, embedded = bound(
        tmp_path, source=source, foreign=foreign, rate=0.7, mask=mask, pad_fill=pad_fill
    )
    fused = fuse(augmenter, embedded)
    vectors, attended = slow_fuse(encoder, augmenter, embedded.tokens)
    assert torch.equal(fused.tokens.mask, attended)
    somewhere = (attended == 1).unsqueeze(-1)
    assert torch.allclose(fused.vectors * somewhere, vectors * somewhere, atol=1e-6)
    assert encoder.encode(fused.tokens, fused.vectors).sentence.isfinite().all()


def test_worked_by_hand(tmp_path):
    """Rate 0.9 on the first place, where both have [CLS]: 0.9·y + 0.1·y′."""
    encoder, augmenter, embedded = bound(tmp_path)
    first = own_layer(augmenter.model, embedded.tokens.side["translation"].ids, 0, 1)[:, 0]
    expected = 0.9 * encoder.embed(embedded.tokens)[:, 0] + 0.1 * first
    assert torch.allclose(fuse(augmenter, embedded).vectors[:, 0], expected, atol=1e-6)


def test_words_are_fused_where_the_encoder_stops_at_words(tmp_path):
    encoder, augmenter, embedded = bound(tmp_path, site="word", rate=0.6)
    foreign = AutoModel.from_pretrained(augmenter.model).embeddings.word_embeddings
    side = embedded.tokens.side["translation"].ids[:, 0]
    expected = 0.6 * encoder.backbone.embeddings.word_embeddings(embedded.tokens.ids[:, 0]) + 0.4 * foreign(side)
    assert torch.allclose(fuse(augmenter, embedded).vectors[:, 0], expected, atol=1e-6)


def test_gradient_reaches_the_source_layer_only_and_the_foreign_one_has_no_dropout(tmp_path):
    encoder, augmenter, embedded = bound(tmp_path)
    fuse(augmenter, embedded).vectors.pow(2).sum().backward()
    assert encoder.backbone.embeddings.word_embeddings.weight.grad.abs().sum() > 0
    assert not any(parameter.requires_grad for parameter in augmenter.parameters())
    _, augmenter, embedded = bound(tmp_path)
    augmenter.train()
    assert torch.equal(fuse(augmenter, embedded).vectors, fuse(augmenter, embedded).vectors)


def test_alberts_projection_is_applied_if_widths_differ_only(tmp_path):
    _, augmenter, embedded = bound(tmp_path, foreign=tiny_albert, rate=0.5)
    model = AutoModel.from_pretrained(augmenter.model).eval()
    side = embedded.tokens.side["translation"].ids
    with torch.no_grad():
        theirs = model.encoder.embedding_hidden_mapping_in(model.embeddings(side))
    fused = fuse(augmenter, embedded).vectors
    assert torch.allclose(fused[:, 0], 0.5 * embedded.vectors[:, 0] + 0.5 * theirs[:, 0], atol=1e-6)
    _, augmenter, embedded = bound(tmp_path, source=tiny_albert, foreign=tiny_albert, rate=0.5)
    fused = fuse(augmenter, embedded).vectors
    theirs = own_layer(augmenter.model, embedded.tokens.side["translation"].ids, 0, 1)
    assert torch.allclose(fused[:, 0], 0.5 * embedded.vectors[:, 0] + 0.5 * theirs[:, 0], atol=1e-6)


def test_what_does_not_fit_is_refused(tmp_path):
    encoder = TransformerEncoder(str(tiny_bert(tmp_path / "s")))
    augmenter = FuseEmbeddings(str(tiny_bert(tmp_path / "f", width=32)))
    with refuses("augmenters.wrong_width", 32, 16, augmenter.model, encoder.model):
        augmenter.bind(encoder)
    _, augmenter, embedded = bound(tmp_path)
    augmenter.column = "translations"
    with refuses("augmenters.missing_column", "'fraternal'", "'translations'", "Did you mean 'translation'?"):
        fuse(augmenter, embedded)
    fresh = FuseEmbeddings(augmenter.model)
    with refuses("augmenters.not_bound", "fuse_embeddings"):
        fuse(fresh, embedded)


def test_a_translation_can_exceed_the_foreign_models_length(tmp_path):
    encoder, augmenter, embedded = bound(tmp_path, mask="union")
    long = augmenter.vocabulary.pad(augmenter.vocabulary.ids([" ".join(["katze"] * 200)] * 3, 150))
    fused = fuse(augmenter, Embedded(replace(embedded.tokens, side={"translation": long}), embedded.vectors))
    assert fused.vectors.shape[1] == fused.tokens.length == 150
    assert encoder.encode(fused.tokens, fused.vectors).sentence.isfinite().all()

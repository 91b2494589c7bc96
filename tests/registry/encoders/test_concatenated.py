import pytest
import torch
import torch.nn.functional as F

from registry.encoders.component_removal import ComponentRemoval
from registry.encoders.concatenated import ConcatenatedEncoder
from registry.encoders.static import Static
from registry.encoders.transformer import TransformerEncoder
from tests.registry.encoders.vectors import encoding
from tests.support.errors import refuses
from tests.support.tiny import sentences, tiny_bert, tiny_roberta

pytestmark = pytest.mark.slow


def embed(encoder, texts, max_length=16):
    return encoding(encoder, max_length)(texts)


@pytest.fixture
def model(tmp_path):
    return str(tiny_bert(tmp_path))


@pytest.fixture
def online(model):
    return TransformerEncoder(model, pooling="mean", dropout=0.0)


def test_its_cosine_is_the_mean_of_both_cosines(model, online):
    other = TransformerEncoder(model, pooling="first_last", dropout=0.0)
    vectors = embed(ConcatenatedEncoder(online, other, share=0.3), sentences(6))
    one, two = embed(online, sentences(6)), embed(other, sentences(6))
    expected = 0.3 * F.cosine_similarity(one[:3], one[3:]) + 0.7 * F.cosine_similarity(two[:3], two[3:])
    torch.testing.assert_close(F.cosine_similarity(vectors[:3], vectors[3:]), expected)


@pytest.mark.parametrize("static_first", [True, False])
def test_an_encoder_without_special_tokens_ignores_them(model, online, static_first):
    words = Static(model, sif=1e-3)
    both = ConcatenatedEncoder(*((words, online) if static_first else (online, words)))
    texts = [*sentences(5), ""]
    halves = embed(both, texts).split([words.dim, online.dim] if static_first else [online.dim, words.dim], dim=1)
    mine, theirs = halves if static_first else halves[::-1]
    torch.testing.assert_close(mine, 0.5**0.5 * F.normalize(embed(words, texts, max_length=14)))
    torch.testing.assert_close(theirs, 0.5**0.5 * F.normalize(embed(online, texts)))


def test_each_part_is_fitted_to_its_own_embeddings(model, online):
    def adjusted(of):
        return ComponentRemoval(of=of, fit_on="target")

    words, texts = Static(model), sentences(40)
    both, alone = ConcatenatedEncoder(adjusted(online), adjusted(words)), [adjusted(online), adjusted(words)]
    both.fit(encoding(both, 16), texts)
    halves = []
    for one, max_length in zip(alone, (16, 14), strict=True):
        one.fit(encoding(one, max_length), texts)
        halves.append(0.5**0.5 * F.normalize(embed(one, texts[:5], max_length)))
    torch.testing.assert_close(embed(both, texts[:5]), torch.cat(halves, dim=1))
    assert (both.fits, both.dim) == ("each", online.dim + words.dim)


def test_training_reaches_both_and_different_kinds_are_refused(model, online, tmp_path):
    words = Static(model)
    both = ConcatenatedEncoder(online, words)
    tokens = both.vocabulary.pad(both.vocabulary.ids(sentences(4), 16))
    both.encode(tokens, both.embed(tokens)).sentence.sum().backward()
    assert words.table.grad.abs().sum() > 0
    assert online.backbone.embeddings.word_embeddings.weight.grad.abs().sum() > 0
    other = str(tiny_roberta(tmp_path))
    for second in (TransformerEncoder(other), Static(other)):
        with refuses("encoders.cannot_be_joined", "vocabularies"):
            ConcatenatedEncoder(online, second)

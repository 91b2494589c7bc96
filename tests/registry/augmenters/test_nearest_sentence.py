import math
from collections import Counter
from functools import cache
from random import Random

import pytest
import torch
from transformers import AutoModel

from cse_cli.training.checkpoint import method_state
from cse_cli.training.method import BoundView, Method
from registry.augmenters import nearest_sentence as module
from registry.augmenters.nearest_sentence import NearestSentence
from registry.encoders.transformer import TransformerEncoder
from registry.errors import UnknownNameError
from registry.resources import catalog
from registry.tokens import Sample
from tests.registry.losses.literal import cosine
from tests.support.errors import refuses
from tests.support.tiny import sentences, tiny_bert

CORPUS = sentences(12, seed=5)
opened = cache(lambda model: AutoModel.from_pretrained(model).eval())


@pytest.fixture
def encoder(tmp_path):
    return TransformerEncoder(str(tiny_bert(tmp_path)))


def bound(monkeypatch, encoder, corpus=(*CORPUS, *CORPUS[:3]), **params):
    monkeypatch.setattr(catalog, "open_text", lambda name, split: ({"text": text} for text in corpus))
    augmenter = NearestSentence("tatoeba_open", **params)
    augmenter.bind(encoder)
    return augmenter


def expected(encoder, text, count, skip=0, pooling="mean"):
    """Return the nearest other sentences, one cosine at a time, each sentence encoded by itself."""
    network = opened(encoder.model)

    def vector(sentence):
        (ids,) = encoder.vocabulary.ids([sentence], 32)
        with torch.no_grad():
            states = network(torch.tensor([ids])).last_hidden_state[0]
        return (states.mean(0) if pooling == "mean" else states[0]).tolist()

    own = vector(text)
    others = sorted((other for other in CORPUS if other != text), key=lambda other: -cosine(own, vector(other)))
    return others[skip : skip + count]


@pytest.mark.parametrize("text", [CORPUS[0], CORPUS[7], "a small green house"])
@pytest.mark.parametrize("at_once", [5, 65_536])
@pytest.mark.slow
def test_the_nearest_by_hand(monkeypatch, encoder, text, at_once):
    monkeypatch.setattr(module, "ROWS", at_once)
    monkeypatch.setattr(module, "BATCH", at_once)
    augmenter = bound(monkeypatch, encoder, neighbors=1)
    assert augmenter.on_text([Sample(text, pair="x")], Random(0)) == [Sample(expected(encoder, text, 1)[0])]
    augmenter = bound(monkeypatch, encoder, neighbors=1, skip=4)
    assert augmenter.on_text([Sample(text)], Random(0))[0].text == expected(encoder, text, 1, skip=4)[0]


@pytest.mark.slow
def test_neighbors_are_drawn_evenly(monkeypatch, encoder):
    augmenter = bound(monkeypatch, encoder, neighbors=3, skip=1)
    drawn = Counter(made.text for made in augmenter.on_text([Sample(CORPUS[2])] * 300, Random(0)))
    assert set(drawn) == set(expected(encoder, CORPUS[2], 3, skip=1))
    assert all(math.isclose(count, 100, abs_tol=35) for count in drawn.values())


@pytest.mark.slow
def test_the_index_is_pooled_as_in_the_authors_script_or_as_the_encoder(monkeypatch, encoder):
    """`simcse_utils.py:253`: pooler_type = 'avg'. The encoder itself pools [CLS]."""
    found = {}
    for pooling in ("mean", "encoder"):
        augmenter = bound(monkeypatch, encoder, neighbors=1, pooling=pooling)
        found[pooling] = [augmenter.on_text([Sample(text)], Random(0))[0].text for text in CORPUS]
        assert found[pooling] == [expected(encoder, text, 1, pooling=pooling)[0] for text in CORPUS]
    assert found["mean"] != found["encoder"]


def test_all_others_are_the_most_there_can_be(monkeypatch, encoder):
    assert len(bound(monkeypatch, encoder, neighbors=11).on_text([Sample(CORPUS[0])], Random(0))) == 1
    with refuses("augmenters.small_corpus", 12, 13):
        bound(monkeypatch, encoder, neighbors=12).on_text([Sample(CORPUS[0])], Random(0))
    with refuses("augmenters.small_corpus", "5 distinct"):
        bound(monkeypatch, encoder, neighbors=5, limit=5).on_text([Sample(CORPUS[0])], Random(0))


@pytest.mark.slow
def test_the_index_is_the_untrained_encoders(monkeypatch, encoder):
    augmenter = bound(monkeypatch, encoder, neighbors=1)
    before = [expected(encoder, text, 1)[0] for text in CORPUS]
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter))
    augmenter.train()  # as the method around it does
    assert [made.text for made in augmenter.on_text([Sample(text) for text in CORPUS], Random(0))] == before


def test_it_is_no_part_of_checkpoints_and_bad_names_are_refused(monkeypatch, encoder):
    augmenter = bound(monkeypatch, encoder, neighbors=1)
    method = Method({"online": encoder}, {"hard": BoundView("online", [augmenter])}, None, {}, {})
    assert all(key.startswith("encoders.online.") for key in method_state(method))
    assert not any(parameter.requires_grad for parameter in augmenter.parameters())
    with pytest.raises(UnknownNameError, match="tatoeba_opem"):
        NearestSentence("tatoeba_opem")
    with pytest.raises(UnknownNameError, match="sentence1"):
        NearestSentence("tatoeba_open", searched="sentence1")

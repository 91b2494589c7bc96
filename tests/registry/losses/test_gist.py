import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from registry.losses.gist import GIST
from tests.registry.losses import literal as slow


def views(seed=0):
    """Return anchor, positive, hard and the guide's vectors of the three, which are partly alike."""
    anchor, positive, hard, guide, _ = slow.draw(6, 0, seed=seed)
    noise = slow.draw(6, 0, seed=seed + 1)
    return anchor, positive, hard, guide, guide + noise[0], 0.5 * guide + noise[1]


SETTINGS = [(0.0, False, True, True), (0.2, False, False, True), (0.3, True, True, False), (-0.1, True, False, False)]


def test_a_guide_of_one_view_removes_what_is_closer_than_the_pair():
    # The guide finds sentences 1 and 2 alike, so that sentence 3 is their only negative: as anchor and as positive.
    anchor = torch.eye(3)
    guide = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    loss = GIST(temperature=1.0, margin=0.5, contrast_positives=False)
    alike, apart = math.log(1 + 2 * math.exp(-1)), math.log(1 + 4 * math.exp(-1))
    assert loss(anchor, anchor, guide).item() == pytest.approx((2 * alike + apart) / 3, abs=1e-6)


@pytest.mark.parametrize(("margin", "relative", "anchors", "positives"), SETTINGS)
@pytest.mark.parametrize("with_hard", [False, True])
def test_equals_sentence_transformers(margin, relative, anchors, positives, with_hard, monkeypatch):
    gist = pytest.importorskip("sentence_transformers.sentence_transformer.losses.gist_embed")
    monkeypatch.setattr(gist, "embed_columns", lambda vectors, _: [t.clone() for t in vectors])
    anchor, positive, hard, guide, guide_positive, guide_hard = views()
    theirs = gist.GISTEmbedLoss.__new__(gist.GISTEmbedLoss)
    nn.Module.__init__(theirs)
    vars(theirs).update(
        model=[anchor, positive, hard][: 2 + with_hard],
        guide=[guide, guide_positive, guide_hard][: 2 + with_hard],
        temperature=0.5,
        similarity_fct=nn.CosineSimilarity(dim=-1),
        must_retokenize=False,
        margin_strategy="relative" if relative else "absolute",
        margin=margin,
        contrast_anchors=anchors,
        contrast_positives=positives,
        gather_across_devices=False,
        cross_entropy_loss=nn.CrossEntropyLoss(),
    )
    expected = theirs.forward([{}], SimpleNamespace())
    loss = GIST(0.5, margin, theirs.margin_strategy, anchors, positives)
    more = {"hard": hard, "reference_hard": guide_hard} if with_hard else {}
    assert loss(anchor, positive, guide, guide_positive, **more).item() == pytest.approx(expected.item(), abs=1e-6)

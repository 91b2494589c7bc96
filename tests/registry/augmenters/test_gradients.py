"""What augmenters of embeddings set to zero has no gradient, and the rest has the exact one."""

import pytest
import torch

from registry.augmenters.embedding_dropout import EmbeddingDropout
from registry.augmenters.feature_cutoff import FeatureCutoff
from registry.augmenters.token_cutoff import TokenCutoff
from registry.tokens import Embedded
from tests.registry.augmenters.literal import batch, cut

CUTS = [
    EmbeddingDropout(0.4, "count", scale=True),
    EmbeddingDropout(0.4, "chance", scale=True),
    FeatureCutoff(0.5),
    TokenCutoff(0.4),
]


@pytest.mark.slow
@pytest.mark.parametrize("augmenter", CUTS)
def test_gradient_passes_where_nothing_is_cut(augmenter):
    before = batch([5, 2], 6, dtype=torch.float64)
    vectors = before.vectors.requires_grad_()
    after = cut(augmenter, before).vectors
    after.sum().backward()
    assert torch.equal(vectors.grad == 0, after == 0)
    assert (after == 0).any()
    assert torch.autograd.gradcheck(lambda v: cut(augmenter, Embedded(before.tokens, v)).vectors, vectors)

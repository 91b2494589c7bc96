"""Feature cutoff: whole dimensions of token embeddings set to zero."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field

from registry import AUGMENTERS
from registry.augmenters.positions import choose, share
from registry.tokens import Embedded
from registry.types import Augmenter, Step, Tune


@AUGMENTERS.register("feature_cutoff")
class FeatureCutoff(Augmenter):
    """Set some dimensions of all token embeddings of a sentence to zero.

    z[:, c] ← 0 for c in a random set of max(`at_least`, ⌊W·rate⌋) of the W dimensions. Each sentence has its own set,
    drawn from torch's global generator.

    Shapes: (B, L, W) → (B, L, W).

    Source: Shen et al. 2020 (cutoff). ConSERT (Yan et al. 2021, section 3.2) has rate 0.2 in its base model. MoCoSE
    (2022, Table 5) cuts at least one dimension in its code: `at_least = 1`.
    Doubtful: the place of the cutoff. Before or after the embedding dropout makes no difference, but before or after
    normalization does, as in `token_cutoff` (methods/consert.md CS4).

    Args:
        rate: Share of dimensions that becomes zero.
        at_least: Minimum number of dimensions that become zero.

    Example:
        [views.positive]
        encoder = "online"
        augment = [{ name = "feature_cutoff", rate = 0.2 }]
    """

    def __init__(
        self,
        rate: Annotated[float, Field(ge=0, lt=1), Tune(0.01, 0.5, log=True)] = 0.2,
        at_least: Annotated[int, Field(ge=0)] = 0,
    ) -> None:
        self.rate = rate
        self.at_least = at_least

    def on_embeddings(self, embedded: Embedded, view: str, step: Step) -> Embedded:  # noqa: ARG002 - the hook's form
        """Return the embeddings with zeros."""
        rows, _, width = embedded.vectors.shape
        candidates = torch.ones(rows, width, dtype=torch.bool, device=embedded.vectors.device)
        cut = choose(candidates, share(candidates.sum(1), self.rate, self.at_least))
        return Embedded(embedded.tokens, embedded.vectors.masked_fill(cut.unsqueeze(1), 0.0))

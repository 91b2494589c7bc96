"""Feature cut-off: whole dimensions of the token vectors set to zero."""

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
    """Set some dimensions of all token vectors of a sentence to zero.

    z[:, c] ← 0 for c in a random set of max(`at_least`, ⌊W·rate⌋) of the W dimensions, drawn anew for every sentence
    from torch's global stream, as dropout is.

    Shapes: (B, L, W) → (B, L, W).

    Source: Shen et al. 2020 (cutoff); ConSERT (Yan et al. 2021, section 3.2; rate 0.2 in its base model); MoCoSE (2022,
    Table 5), in whose code at least one dimension is cut: `at_least = 1`.
    Doubtful: before or behind the embedding dropout, which makes no difference, and before or behind normalisation,
    which does: as `token_cutoff` (methods/consert.md CS4).

    Args:
        rate: Share of the dimensions that is zeroed.
        at_least: Dimensions that are zeroed however small the share.
    """

    def __init__(
        self,
        rate: Annotated[float, Field(ge=0, lt=1), Tune(0.01, 0.5, log=True)] = 0.2,
        at_least: Annotated[int, Field(ge=0)] = 0,
    ) -> None:
        self.rate = rate
        self.at_least = at_least

    def on_embeddings(self, embedded: Embedded, view: str, step: Step) -> Embedded:  # noqa: ARG002 - the hook's form
        """Return the vectors with some dimensions zero."""
        rows, _, width = embedded.vectors.shape
        candidates = torch.ones(rows, width, dtype=torch.bool, device=embedded.vectors.device)
        cut = choose(candidates, share(candidates.sum(1), self.rate, self.at_least))
        return Embedded(embedded.tokens, embedded.vectors.masked_fill(cut.unsqueeze(1), 0.0))

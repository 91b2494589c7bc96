"""Token cutoff: whole token embeddings set to zero."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from registry import AUGMENTERS
from registry.augmenters.positions import Scope, choose, in_scope, share
from registry.tokens import Embedded
from registry.types import Augmenter, Step, Tune


@AUGMENTERS.register("token_cutoff")
class TokenCutoff(Augmenter):
    """Set the embeddings of some tokens of each sentence to zero.

    zₚ ← 0 for p in a random set of max(`at_least`, ⌊n·rate⌋) of the n places in scope. Each sentence has its own set,
    drawn from torch's global generator. The attention mask does not change, so these places are still attended to.

    Shapes: (B, L, W) → (B, L, W).

    Source: Shen et al. 2020 (cutoff). In ConSERT's code (Yan et al. 2021, section 3.2), n is the number of real tokens
    with [CLS] and [SEP], and the minimum is 0. In MoCoSE's code (2022, Table 5), n is the padded length and the minimum
    is 1: `scope = "all"`, `at_least = 1`.
    Doubtful: ConSERT cuts after the embedding dropout, and here the cutoff is before it. Both multiply by a mask, so
    the result is the same (methods/consert.md CS4). MoCoSE cuts word embeddings before position and normalization, with
    a different result: set the encoder's `augment_at = "word"`.

    Args:
        rate: Share of places that become zero.
        scope: Candidates: the "real" tokens of each sentence, or "all" places with padding.
        at_least: Minimum number of places that become zero.

    Example:
        [views.positive]
        encoder = "online"
        augment = [{ name = "token_cutoff", rate = 0.2 }]
    """

    def __init__(
        self,
        rate: Annotated[float, Field(ge=0, lt=1), Tune(0.05, 0.5)] = 0.2,
        scope: Scope = "real",
        at_least: Annotated[int, Field(ge=0)] = 0,
    ) -> None:
        self.rate = rate
        self.scope: Scope = scope
        self.at_least = at_least

    def on_embeddings(self, embedded: Embedded, view: str, step: Step) -> Embedded:  # noqa: ARG002 - the hook's form
        """Return the embeddings with zeros."""
        candidates = in_scope(embedded.tokens, self.scope)
        cut = choose(candidates, share(candidates.sum(1), self.rate, self.at_least))
        return Embedded(embedded.tokens, embedded.vectors.masked_fill(cut.unsqueeze(-1), 0.0))

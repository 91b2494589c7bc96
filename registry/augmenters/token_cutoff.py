"""Token cut-off: whole token vectors set to zero."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from registry import AUGMENTERS
from registry.augmenters.positions import Scope, choose, in_scope, share
from registry.tokens import Embedded
from registry.types import Augmenter, Step, Tune


@AUGMENTERS.register("token_cutoff")
class TokenCutoff(Augmenter):
    """Set the vectors of some tokens of each sentence to zero.

    zₚ ← 0 for p in a random set of max(`at_least`, ⌊n·rate⌋) of the n places in scope, drawn anew for every sentence
    from torch's global stream, as dropout is. The attention mask stays: a zeroed place is still attended to.

    Shapes: (B, L, W) → (B, L, W).

    Source: Shen et al. 2020 (cutoff); ConSERT (Yan et al. 2021, section 3.2), in whose code n counts the real tokens,
    [CLS] and [SEP] among them, and nothing need be cut; MoCoSE (2022, Table 5), in whose code n is the padded length
    and one place at least is cut: `scope = "all"`, `at_least = 1`.
    Doubtful: ConSERT cuts behind the embedding dropout, here it is before; both multiply by a mask, so the order makes
    no difference (methods/consert.md CS4). MoCoSE cuts word vectors, before position and normalisation, where it does:
    the encoder's `augment_at = "word"`.

    Args:
        rate: Share of the places that is zeroed.
        scope: Where they are drawn from: the "real" tokens of each sentence, or "all" places of the batch's width.
        at_least: Places that are zeroed however small the share.
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
        """Return the vectors with some places zero."""
        candidates = in_scope(embedded.tokens, self.scope)
        cut = choose(candidates, share(candidates.sum(1), self.rate, self.at_least))
        return Embedded(embedded.tokens, embedded.vectors.masked_fill(cut.unsqueeze(-1), 0.0))

"""Token shuffle: the order of a sentence's tokens mixed up, by their positions."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from registry import AUGMENTERS
from registry.augmenters.positions import Scope, in_scope, shuffled
from registry.errors import CseError
from registry.tokens import Tokens
from registry.types import Augmenter, Step


@AUGMENTERS.register("token_shuffle")
class TokenShuffle(Augmenter):
    """Give the tokens of each sentence each other's positions, at random.

    pos ← π(pos), π a random permutation of the places in scope, every one equally likely, drawn from torch's global
    stream, as dropout is: anew for each sentence, or once for the batch. Ids and mask stay where they are, so [CLS] is
    still the first place, wherever it now stands.

    Shapes: positions (B, L) → (B, L).

    Source: ConSERT (Yan et al. 2021, section 3.2), in whose code the real tokens are mixed, [CLS] and [SEP] among them;
    MoCoSE (2022, Table 5, where it costs 2.96 points), in whose code all places are, padding too, by one permutation
    for the whole batch: `scope = "all"`, `once_per = "batch"`.
    Doubtful: MoCoSE pads to 32 always, here the places are the batch's width (methods/mocose.md M19).

    Args:
        scope: What is mixed: the "real" tokens of each sentence, or "all" places of the batch's width.
        once_per: Whether each "sentence" has an order of its own, or all of a "batch" the same, which takes the scope
            "all"; left out is "sentence".

    Raises:
        CseError: One order is asked for sentences of different lengths.
    """

    def __init__(self, scope: Scope = "real", once_per: Literal["sentence", "batch"] | None = None) -> None:
        if once_per == "batch" and scope != "all":
            raise CseError(
                'token_shuffle: once_per = "batch" needs places that all sentences have', 'set scope = "all" as well'
            )
        self.scope: Scope = scope
        self.per_batch = once_per == "batch"

    def on_tokens(self, tokens: Tokens, step: Step) -> Tokens:  # noqa: ARG002 - the hook's form
        """Return the tokens with their positions permuted."""
        candidates = in_scope(tokens, self.scope)
        if self.per_batch:
            order = shuffled(candidates[:1]).expand_as(tokens.positions)
            return replace(tokens, positions=tokens.positions.gather(1, order))
        # Both orders list the candidates first and the rest as it stands: the first in place order, the second mixed.
        into = (~candidates).long().argsort(dim=1, stable=True)
        taken = tokens.positions.gather(1, shuffled(candidates))
        return replace(tokens, positions=tokens.positions.scatter(1, into, taken))

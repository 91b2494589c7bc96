"""Token shuffle: tokens in a different order, by permuted positions."""

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
    """Permute the positions of each sentence's tokens randomly.

    pos ← π(pos), with π a uniform random permutation of the places in scope, drawn from torch's global generator for
    each sentence or once for the batch. IDs and mask do not change, so [CLS] is still the first token, but with another
    position.

    Shapes: positions (B, L) → (B, L).

    Source: ConSERT (Yan et al. 2021, section 3.2), whose code permutes the real tokens with [CLS] and [SEP]. MoCoSE
    (2022, Table 5: −2.96 points), whose code permutes all places with padding, by one permutation for the whole batch:
    `scope = "all"`, `once_per = "batch"`.
    Doubtful: MoCoSE always pads to 32 tokens, and here the width is that of the batch (methods/mocose.md M19).

    Args:
        scope: Places that are permuted: the "real" tokens of each sentence, or "all" places with padding.
        once_per: Unit of a permutation: each "sentence" or the whole "batch", which requires scope "all". Default:
            "sentence".

    Raises:
        CseError: If `once_per` is "batch" and `scope` is not "all".

    Example:
        [views.positive]
        encoder = "online"
        augment = [{ name = "token_shuffle" }]
    """

    def __init__(self, scope: Scope = "real", once_per: Literal["sentence", "batch"] | None = None) -> None:
        if once_per == "batch" and scope != "all":
            raise CseError(
                f'token_shuffle: once_per = "batch" cannot be combined with scope = "{scope}"',
                'set scope = "all"',
                code="augmenters.wrong_scope",
            )
        self.scope: Scope = scope
        self.per_batch = once_per == "batch"

    def on_tokens(self, tokens: Tokens, step: Step) -> Tokens:  # noqa: ARG002 - the hook's form
        """Return the tokens with permuted positions."""
        candidates = in_scope(tokens, self.scope)
        if self.per_batch:
            order = shuffled(candidates[:1]).expand_as(tokens.positions)
            return replace(tokens, positions=tokens.positions.gather(1, order))
        # Both lists have the candidates first and the others unchanged. The second has the candidates in random order.
        into = (~candidates).long().argsort(dim=1, stable=True)
        taken = tokens.positions.gather(1, shuffled(candidates))
        return replace(tokens, positions=tokens.positions.scatter(1, into, taken))

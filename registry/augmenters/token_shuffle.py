"""Token shuffle: the order of a sentence's tokens mixed up, by their positions."""

from __future__ import annotations

from dataclasses import replace

from registry import AUGMENTERS
from registry.augmenters.positions import Scope, in_scope, shuffled
from registry.tokens import Tokens
from registry.types import Augmenter, Step


@AUGMENTERS.register("token_shuffle")
class TokenShuffle(Augmenter):
    """Give the tokens of each sentence each other's positions, at random.

    pos ← a random permutation of pos over the places in scope, every one equally likely, drawn from torch's global
    stream, as dropout is. Ids and mask stay where they are, so [CLS] is still the first place, wherever it now stands.

    Shapes: positions (B, L) → (B, L).

    Source: ConSERT (Yan et al. 2021, section 3.2), in whose code the real tokens are mixed, [CLS] and [SEP] among them;
    MoCoSE (2022, Table 5, where it costs 2.96 points), in whose code all places are, padding too: `scope = "all"`, over
    the batch's width rather than always 32.

    Args:
        scope: What is mixed: the "real" tokens of each sentence, or "all" places of the batch's width.
    """

    def __init__(self, scope: Scope = "real") -> None:
        self.scope: Scope = scope

    def on_tokens(self, tokens: Tokens, step: Step) -> Tokens:  # noqa: ARG002 - the hook's form
        """Return the tokens with their positions permuted."""
        candidates = in_scope(tokens, self.scope)
        # Both orders list the candidates first and the rest as it stands: the first in place order, the second mixed.
        into = (~candidates).long().argsort(dim=1, stable=True)
        taken = tokens.positions.gather(1, shuffled(candidates))
        return replace(tokens, positions=tokens.positions.scatter(1, into, taken))

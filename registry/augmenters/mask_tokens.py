"""BERT's masked text: what masked language modelling learns from."""

from __future__ import annotations

from dataclasses import replace

import torch

from registry import AUGMENTERS
from registry.errors import CseError
from registry.masking import Masking, Rate, Share
from registry.tokens import Tokens
from registry.types import Augmenter, Encoder, Step


@AUGMENTERS.register("mask_tokens")
class MaskTokens(Augmenter):
    """Hide some tokens, and keep what stood there for a loss that asks for it.

    Each token that is no special one is hidden with probability `rate`; of the hidden, `mask_share` become [MASK],
    `random_share` any id of the vocabulary, the rest stay as they are. `Tokens.targets` then holds the hidden ids.

    Args:
        rate: How many tokens are hidden.
        mask_share: Of the hidden, how many become [MASK].
        random_share: Of the hidden, how many become a random id.
        token: What stands for [MASK], of a tokenizer that has none; left out is the tokenizer's own.

    Shapes: ids (B, L) → ids (B, L), targets (B, L), −100 where nothing was hidden.

    Source: BERT (Devlin et al. 2019) §3.1, as SimCSE's and DiffCSE's data collators do it (15 %, 80/10/10). Random ids
    may be special ones, as there; a sentence may come through with nothing hidden.
    """

    def __init__(
        self, rate: Rate = 0.15, mask_share: Share = 0.8, random_share: Share = 0.1, token: str | None = None
    ) -> None:
        self.token = token
        self.rate, self.mask_share, self.random_share = rate, mask_share, random_share
        self._masking: Masking | None = None

    def bind(self, encoder: Encoder) -> None:
        """Learn the id of [MASK] and of the special tokens.

        Raises:
            CseError: The encoder's tokenizer has no [MASK], or not the token named.
        """
        shares = (self.rate, self.mask_share, self.random_share)
        self._masking = Masking.of("mask_tokens", encoder.vocabulary, *shares, self.token)

    def on_tokens(self, tokens: Tokens, step: Step) -> Tokens:  # noqa: ARG002 - the hook's form
        """Return the tokens with some hidden; a place hidden before keeps its first target.

        Raises:
            CseError: It was not bound.
        """
        if self._masking is None:
            raise CseError("mask_tokens was used before bind(encoder)", "bind it to the encoder of its view first")
        ids, hidden = self._masking.hide(tokens)
        targets = torch.where(hidden, tokens.ids, -100)
        if tokens.targets is not None:
            targets = torch.where(tokens.targets >= 0, tokens.targets, targets)
        return replace(tokens, ids=ids, targets=targets)

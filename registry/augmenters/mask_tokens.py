"""Random masking of tokens as in the pre-training of BERT."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch

from registry import AUGMENTERS
from registry.errors import CseError
from registry.masking import Masking, Rate, Share
from registry.tokens import Tokens
from registry.types import Augmenter, Encoder, Step


@AUGMENTERS.register("mask_tokens")
class MaskTokens(Augmenter):
    """Mask random tokens, and store the original IDs for a loss that predicts them.

    Each token except special tokens is selected with probability `rate`. Of the selected tokens, `mask_share` become
    [MASK], `random_share` become a random ID of the vocabulary, and the others do not change. `Tokens.targets` contains
    the original IDs.

    Args:
        rate: Probability that a token is selected.
        mask_share: Share of selected tokens that become [MASK].
        random_share: Share of selected tokens that become a random ID.
        token: Token that replaces [MASK]. Default: the tokenizer's own mask token.

    Shapes: IDs (B, L) → IDs (B, L), targets (B, L) with −100 for tokens that are not selected.

    Source: BERT (Devlin et al. 2019) §3.1, as in the data collators of SimCSE and DiffCSE (15 %, 80/10/10). As there,
    random IDs can be special tokens, and a sentence can have no selected token.

    Example:
        [views.masked]
        encoder = "online"
        augment = [{ name = "mask_tokens", rate = 0.15 }]
    """

    name: ClassVar[str] = "mask_tokens"
    whole_words: ClassVar[bool] = False

    def __init__(
        self, rate: Rate = 0.15, mask_share: Share = 0.8, random_share: Share = 0.1, token: str | None = None
    ) -> None:
        self.token = token
        self.rate, self.mask_share, self.random_share = rate, mask_share, random_share
        self._masking: Masking | None = None

    def bind(self, encoder: Encoder) -> None:
        """Read the IDs of [MASK] and of the special tokens.

        Raises:
            CseError: If the tokenizer has no [MASK], does not contain `token`, or does not mark sub-words that continue
                a word, which only `mask_words` needs.
        """
        shares = (self.rate, self.mask_share, self.random_share)
        self._masking = Masking(self.name, encoder.vocabulary, *shares, self.token, self.whole_words)

    def on_tokens(self, tokens: Tokens, step: Step) -> Tokens:  # noqa: ARG002 - the hook's form
        """Return the masked tokens. A place that was masked before keeps its target.

        Raises:
            CseError: If `bind` was not called.
        """
        if self._masking is None:
            raise CseError(
                "mask_tokens was used before bind(encoder)",
                "call bind(encoder) with the encoder of its view first",
                code="augmenters.not_bound",
            )
        ids, hidden = self._masking.hide(tokens)
        targets = torch.where(hidden, tokens.ids, -100)
        if tokens.targets is not None:
            targets = torch.where(tokens.targets >= 0, tokens.targets, targets)
        return replace(tokens, ids=ids, targets=targets)

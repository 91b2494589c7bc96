"""Hiding tokens at random, as BERT's pre-training does: for augmenters and losses alike. Registers nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from registry.errors import CseError
from registry.tokens import Tokens, Vocabulary, copy_to_device
from registry.types import Tune

Rate = Annotated[float, Field(ge=0, le=1), Tune(0.05, 0.5)]
Share = Annotated[float, Field(ge=0, le=1), Tune(0.0, 1.0)]


@dataclass(frozen=True)
class Masking:
    """Which tokens are hidden, and behind what.

    Args:
        rate: Probability that a token which is no special one is hidden.
        mask_share: Of the hidden, how many become [MASK].
        random_share: Of the hidden, how many become any id of the vocabulary, special ones included; the rest stay.
        mask: The id of [MASK].
        size: Number of ids.
        specials: Ids that are never hidden.
    """

    rate: float
    mask_share: float
    random_share: float
    mask: int
    size: int
    specials: tuple[int, ...]

    @staticmethod
    def of(
        name: str,
        vocabulary: Vocabulary,
        rate: float,
        mask_share: float,
        random_share: float,
        token: str | None = None,
    ) -> Masking:
        """Return the masking of one vocabulary, for the component called `name`; `token` stands in for [MASK].

        Raises:
            CseError: The vocabulary has no [MASK], or the shares are more than all.
        """
        mask = vocabulary.mask if token is None else vocabulary.id_of(token)
        if mask is None:
            raise CseError(
                f"{name}: the tokenizer of {getattr(vocabulary, 'model', 'the encoder')!r} has no mask token",
                "use a model that was pre-trained by masked language modelling, such as BERT or RoBERTa",
            )
        if mask_share + random_share > 1:
            raise CseError(
                f"{name}: mask_share = {mask_share} and random_share = {random_share} are more than 1 together",
                "BERT takes 0.8 and 0.1, and leaves the remaining tenth as it is",
            )
        specials = tuple(sorted(vocabulary.specials))
        return Masking(rate, mask_share, random_share, mask, vocabulary.size, specials)

    def hide(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """Return (B, L) ids with some hidden, and (B, L) whether each was; torch's global generator decides."""
        specials = copy_to_device(torch.tensor(self.specials), tokens.ids.device)
        candidates = ((tokens.mask if tokens.text is None else tokens.text) == 1) & ~torch.isin(tokens.ids, specials)
        hidden = candidates & (torch.rand(tokens.ids.shape, device=tokens.ids.device) < self.rate)
        choice = torch.rand(tokens.ids.shape, device=tokens.ids.device)
        others = torch.randint_like(tokens.ids, self.size)
        ids = torch.where(hidden & (choice < self.mask_share), self.mask, tokens.ids)
        replaced = hidden & (choice >= self.mask_share) & (choice < self.mask_share + self.random_share)
        return torch.where(replaced, others, ids), hidden

"""Random masking of tokens, as in the pre-training of BERT, for augmenters and losses."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from registry.errors import CseError
from registry.tokens import Tokens, Vocabulary, copy_to_device
from registry.types import Tune

Rate = Annotated[float, Field(ge=0, le=1), Tune(0.05, 0.5)]
Share = Annotated[float, Field(ge=0, le=1), Tune(0.0, 1.0)]


class Masking:
    """Random masking of the tokens of one vocabulary.

    Args:
        name: Name of the component, for messages.
        vocabulary: Vocabulary.
        rate: Probability that a token is selected. Special tokens are never selected.
        mask_share: Share of selected tokens that become [MASK].
        random_share: Share of selected tokens that become a random ID of the vocabulary. The others do not change.
        token: Token instead of [MASK].
        whole_words: Whether all sub-words of a word are selected together. Otherwise each token is selected
            independently.

    Raises:
        CseError: If the vocabulary has no [MASK] or, for whole words, does not mark sub-words that continue a word, or
            the shares add up to more than 1.
    """

    def __init__(
        self,
        name: str,
        vocabulary: Vocabulary,
        rate: float,
        mask_share: float,
        random_share: float,
        token: str | None = None,
        whole_words: bool = False,
    ) -> None:
        mask = vocabulary.mask if token is None else vocabulary.id_of(token)
        if mask is None:
            raise CseError(
                f"{name}: the tokenizer of {getattr(vocabulary, 'model', 'the encoder')!r} has no mask token",
                "use a model that was pre-trained by masked language modeling, such as BERT or RoBERTa",
                code="masking.no_mask",
            )
        if mask_share + random_share > 1:
            raise CseError(
                f"{name}: mask_share = {mask_share} and random_share = {random_share} add up to more than 1",
                "reduce one of them, for example to 0.8 and 0.1 as in BERT",
                code="masking.invalid_shares",
            )
        continued = tuple(sorted(vocabulary.continued)) if whole_words else ()
        if whole_words and not continued:
            raise CseError(
                f"{name}: the tokenizer does not mark the sub-words that continue a word",
                "use mask_tokens, or a model with a WordPiece tokenizer, such as BERT",
                code="masking.no_words",
            )
        self.rate, self.mask_share, self.random_share = rate, mask_share, random_share
        self.mask, self.size, self.continued = mask, vocabulary.size, continued
        self.specials = tuple(sorted(vocabulary.specials))

    def hide(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """Return (B, L) masked IDs, and (B, L) whether each token was selected. Uses torch's global generator."""
        specials = copy_to_device(torch.tensor(self.specials), tokens.ids.device)
        candidates = ((tokens.mask if tokens.text is None else tokens.text) == 1) & ~torch.isin(tokens.ids, specials)
        drawn = torch.rand(tokens.ids.shape, device=tokens.ids.device)
        if self.continued:
            continued = torch.isin(tokens.ids, copy_to_device(torch.tensor(self.continued), tokens.ids.device))
            places = torch.arange(tokens.length, device=tokens.ids.device).expand_as(tokens.ids)
            drawn = drawn.gather(1, places.masked_fill(continued, 0).cummax(dim=1).values)
        hidden = candidates & (drawn < self.rate)
        choice = torch.rand(tokens.ids.shape, device=tokens.ids.device)
        others = torch.randint_like(tokens.ids, self.size)
        ids = torch.where(hidden & (choice < self.mask_share), self.mask, tokens.ids)
        replaced = hidden & (choice >= self.mask_share) & (choice < self.mask_share + self.random_share)
        return torch.where(replaced, others, ids), hidden

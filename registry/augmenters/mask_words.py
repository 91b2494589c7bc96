"""Random masking of whole words."""

from __future__ import annotations

from typing import ClassVar

from registry import AUGMENTERS
from registry.augmenters.mask_tokens import MaskTokens


@AUGMENTERS.register("mask_words")
class MaskWords(MaskTokens):
    """Mask all sub-words of random words, and store the original IDs for a loss that predicts them.

    As `mask_tokens`, except that each word, not each token, is selected with probability `rate`. What each sub-word of
    a selected word becomes is drawn independently. Only for WordPiece tokenizers, which mark the sub-words that
    continue a word.

    Args:
        rate: Probability that a word is selected.

    Shapes: IDs (B, L) → IDs (B, L), targets (B, L) with −100 for tokens that are not selected.

    Source: google-research/bert @eedf571, `create_pretraining_data.py:342-413`. There, a number of tokens is selected;
    here, each word with a probability.

    Example:
        [views.masked]
        encoder = "online"
        augment = [{ name = "mask_words", rate = 0.15 }]
    """

    name: ClassVar[str] = "mask_words"
    whole_words: ClassVar[bool] = True

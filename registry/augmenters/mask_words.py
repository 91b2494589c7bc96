"""Random masking of whole words."""

from __future__ import annotations

from registry import AUGMENTERS
from registry.augmenters.mask_tokens import MaskTokens
from registry.masking import Masking
from registry.types import Encoder


@AUGMENTERS.register("mask_words")
class MaskWords(MaskTokens):
    """Mask all sub-words of random words, and store the original IDs for a loss that predicts them.

    As `mask_tokens`, except that each word, not each token, is selected with probability `rate`. What each sub-word of
    a selected word becomes is drawn independently. Only for WordPiece tokenizers, which mark the sub-words that
    continue a word.

    Args:
        rate: Probability that a word is selected.
        mask_share: Share of selected tokens that become [MASK].
        random_share: Share of selected tokens that become a random ID.
        token: Token that replaces [MASK]. Default: the tokenizer's own mask token.

    Shapes: IDs (B, L) → IDs (B, L), targets (B, L) with −100 for tokens that are not selected.

    Source: google-research/bert @eedf571, `create_pretraining_data.py:342-413`. There, a number of tokens is selected;
    here, each word with a probability.

    Example:
        [views.masked]
        encoder = "online"
        augment = [{ name = "mask_words", rate = 0.15 }]
    """

    def bind(self, encoder: Encoder) -> None:
        """Read the IDs of [MASK], of the special tokens, and of the sub-words that continue a word.

        Raises:
            CseError: If the tokenizer has no [MASK], does not contain `token`, or does not mark such sub-words.
        """
        shares = (self.rate, self.mask_share, self.random_share)
        self._masking = Masking.of("mask_words", encoder.vocabulary, *shares, self.token, whole_words=True)

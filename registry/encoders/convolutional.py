"""A checkpoint whose states go through convolutions before they are pooled, in training and evaluation alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from registry import ENCODERS
from registry.encoders.convolutions import Activation, Convolutions
from registry.encoders.export import Layout
from registry.encoders.transformer import TransformerEncoder
from registry.errors import CseError
from registry.types import Tune

OnePooling = Literal["cls", "mean"]


@ENCODERS.register("convolutional")
class ConvolutionalEncoder(TransformerEncoder):
    """Encode with a checkpoint, convolve its last layer over the tokens, and pool what comes out.

    fₗ = [σ(Wₖ·(h_{l−(k−1)/2} … h_{l+(k−1)/2}) + bₖ) for each window k], s = heads(pool(f)),
    with h the last layer's states, which count as zero before the first token and after the last. The convolutions
    start from random weights, are trained with the rest, and stay when the model is scored and saved. `Encoded.hidden`
    holds the local features f.

    A saved model is one of sentence-transformers: its `CNN` module, and for the ReLU a `Dense` one. Its releases up to
    6.2 let padding into the convolutions, so that there a sentence's vector is the one given here where no sentence of
    the batch is longer (`batch_size=1`).

    Args:
        windows: Tokens that each convolution sees; odd, so that there are as many features as tokens.
        channels: Features of each convolution; D is `channels` times the number of windows.
        activation: σ, "relu" or "none".
        pooling: What training compares: the features' "mean" over real tokens, or those of [CLS].
        eval_pooling: What evaluation compares; the same as `pooling` if left out.

    Shapes: ids (B, L) → states (B, L, W) → features (B, L, D) → sentence vectors (B, D).

    Source: IS-BERT (Zhang et al. 2020, section 3.1). Doubtful and settled in methods/is_bert.md: windows (IS1,
    `windows`), padding (IS3), whether a ReLU follows (IS5, `activation`).
    """

    def __init__(
        self,
        windows: Annotated[list[Annotated[int, Field(ge=1, le=511)]], Field(min_length=1)] = [1, 3, 5],  # noqa: B006
        channels: Annotated[int, Field(ge=1), Tune(32, 512, log=True)] = 256,
        activation: Activation = "relu",
        pooling: OnePooling = "mean",
        eval_pooling: OnePooling | None = None,
        **shared: Any,
    ) -> None:
        if even := [size for size in windows if size % 2 == 0]:
            raise CseError(
                f"convolutional: a window of {even[0]} tokens has no middle one", f"windows = [{even[0] + 1}], or less"
            )
        super().__init__(pooling=pooling, eval_pooling=eval_pooling, **shared)
        self.convolutions = Convolutions(self.dim, windows, channels, activation)
        self.dim = self.convolutions.width

    def expect(self, *, hidden_read: bool, rows_at_once: int | None) -> None:  # noqa: ARG002 - the hook's form
        """Note what training reads from `encode`; all states are needed whatever it is."""
        super().expect(hidden_read=True, rows_at_once=rows_at_once)

    def token_features(self, states: Sequence[Tensor], mask: Tensor) -> list[Tensor]:
        """Return the local features (B, L, D) of the last layer."""
        return [self.convolutions(states[-1], mask)]

    def layout(self, max_length: int) -> Layout:
        """Return how the exported model makes a sentence vector."""
        return replace(super().layout(max_length), convolutions=self.convolutions)

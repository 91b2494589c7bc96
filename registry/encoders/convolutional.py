"""Encoder of a checkpoint with convolutions over the last layer's states, in training and evaluation."""

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
    """Encode with a checkpoint, convolve its last layer over the tokens, and pool the features.

    fₗ = [σ(Wₖ·(h_{l−(k−1)/2} … h_{l+(k−1)/2}) + bₖ) for each window k], s = heads(pool(f)),
    where h are the last layer's states, with zeros before the first token and after the last. The convolutions start
    from random weights and are trained. Evaluation and exports use them too. `Encoded.hidden` contains the local
    features f.

    An export uses the `CNN` module of sentence-transformers, and a `Dense` module for the ReLU. Releases of
    sentence-transformers up to 6.2 also convolve padding, and need `batch_size=1` to give the same embeddings.

    Args:
        windows: Number of tokens in each convolution's window. Each must be odd, for one feature vector per token.
        channels: Number of features of each convolution. D is `channels` times the number of windows.
        activation: Activation σ, "relu" or "none".
        pooling: Pooling in training: "mean" of the features over real tokens, or "cls" for those of [CLS].
        eval_pooling: Pooling in evaluation. Default: `pooling`.

    Shapes: ids (B, L) → states (B, L, W) → features (B, L, D) → sentence embeddings (B, D).

    Source: IS-BERT (Zhang et al. 2020, section 3.1). Doubtful and settled in methods/is_bert.md: windows (IS1,
    `windows`), padding (IS3), whether a ReLU follows (IS5, `activation`).

    Raises:
        CseError: If a window is even, or an export cannot contain the convolutions, as with a template.

    Example:
        [encoders.online]
        name = "convolutional"
        model = "bert-base-uncased"
        windows = [1, 3, 5]
    """

    reads_all_tokens = True  # of the convolutions

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
                f"windows = {windows} contains the even number {even[0]}, but a window needs a middle token",
                f"use odd numbers, for example {even[0] + 1} instead of {even[0]}",
                code="encoders.even_window",
            )
        super().__init__(pooling=pooling, eval_pooling=eval_pooling, **shared)
        if not super().layout(0).loadable or self.vocabulary.template is not None:
            raise CseError(
                f"convolutional: an export of '{self.model}' with these parameters cannot contain convolutions",
                "set model to a BERT, RoBERTa, XLM-R or ELECTRA checkpoint, and remove template, layer, prepend and "
                "end_with",
                code="encoders.no_convolutions",
            )
        self.convolutions = Convolutions(self.dim, windows, channels, activation)
        self.dim = self.convolutions.width

    def token_features(self, states: Sequence[Tensor], mask: Tensor) -> list[Tensor]:
        """Return the local features (B, L, D) of the last layer in a list."""
        return [self.convolutions(states[-1], mask)]

    def layout(self, max_length: int) -> Layout:
        """Return the layout of the export, convolutions included."""
        return replace(super().layout(max_length), convolutions=self.convolutions)

"""Matryoshka (Kusupati et al. 2022): another loss at several widths of the embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor, stack

from registry import LOSSES
from registry.errors import CseError
from registry.loss_wrapper import LossWrapper
from registry.tokens import Encoded
from registry.types import Loss, Negatives

Width = Annotated[int, Field(gt=0)]


@LOSSES.register("matryoshka")
class Matryoshka(LossWrapper):
    """Compute another loss on the first d dimensions of the embeddings, for several widths d.

    ℓ = Σ_d c_d · ℓ'( h[1…d], h⁺[1…d], … ).
    All vectors that ℓ' compares are cut: the embeddings of its views, token states and queue entries. ℓ' normalizes
    the cut vectors as it does the whole ones. The vectors of a teacher or another reference are not cut.
    Evaluation at a width: `evaluate.width`, and `cse evaluate --width`.

    Shapes: inputs (N, D) as those of ℓ'; result a scalar.

    Source: Kusupati et al. 2022 with c_d = 1 as there; sentence-transformers' `MatryoshkaLoss` is the same
    (methods/matryoshka.md).

    Args:
        of: Name of a loss in the recipe.
        widths: Numbers of dimensions d. Include the whole width if the whole embedding is also used.
        weights: Weight c_d of each width. Default: 1.

    Examples:
        >>> import torch
        >>> from registry.losses.alignment import Alignment
        >>> from registry.losses.matryoshka import Matryoshka
        >>> anchor, positive = torch.tensor([[3.0, 4.0]]), torch.tensor([[3.0, 0.0]])
        >>> whole = Alignment()  # squared distances of unit vectors: 0 at width 1, 0.8 at width 2
        >>> round(whole(anchor, positive).item(), 4)
        0.8
        >>> round(Matryoshka(whole, widths=[1, 2], weights=[5.0, 1.0])(anchor=anchor, positive=positive).item(), 4)
        0.8
    """

    def __init__(
        self,
        of: Loss,
        widths: Annotated[list[Width], Field(min_length=1)],
        weights: list[float] | None = None,
    ) -> None:
        super().__init__(of)
        self.widths = widths
        self.weights = [1.0] * len(widths) if weights is None else weights
        if len(self.weights) != len(widths):
            raise CseError(
                f"matryoshka: {len(widths)} widths and {len(self.weights)} weights",
                "give one weight for each width",
                code="losses.unequal_lengths",
            )

    def forward(self, **inputs: Any) -> Tensor:
        """Return the weighted sum of the losses at all widths."""
        whole = self.steering - self.targets
        pairs = zip(self.weights, self.widths, strict=True)
        return stack([weight * self.of(**_cut(inputs, width, whole)) for weight, width in pairs]).sum()


def _cut(value: Any, width: int, whole: frozenset[str] = frozenset()) -> Any:
    """Return an input of a loss, or several by name, with the first dimensions of its vectors.

    Labels (N,) are unchanged, and so are the inputs in `whole`.
    """
    if isinstance(value, Mapping):
        return {name: one if name in whole else _cut(one, width, whole) for name, one in value.items()}
    if isinstance(value, Sequence):
        return tuple(_cut(each, width, whole) for each in value)
    if isinstance(value, Negatives):
        return replace(value, vectors=value.vectors[:, :width])
    if isinstance(value, Encoded):
        cut = {name: _cut(getattr(value, name), width) for name in ("sentence", "hidden", "pooled", "layers")}
        return replace(value, **cut)
    if not isinstance(value, Tensor) or value.dim() < 2:
        return value
    if width > value.shape[-1]:
        raise CseError(
            f"matryoshka: width {width} is larger than the embeddings, which have {value.shape[-1]} dimensions",
            f"use widths up to {value.shape[-1]}",
            code="losses.too_wide",
        )
    return value[..., :width]

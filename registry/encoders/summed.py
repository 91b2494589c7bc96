"""Sum of the embeddings of two encoders, as TNCSE evaluates."""

from __future__ import annotations

from torch import Tensor

from registry import ENCODERS
from registry.encoders.two import TwoEncoders
from registry.errors import CseError
from registry.types import Encoder


@ENCODERS.register("summed")
class SummedEncoder(TwoEncoders):
    """Add the embeddings of two encoders with the same vocabulary.

    x = x₁ + x₂, in training and in evaluation. `embed` concatenates the token embeddings of both. Checkpoints contain
    the two encoders under their own names. It supports no heads.

    Shapes: ids (B, L) → token embeddings (B, L, W₁ + W₂) → sentence embeddings (B, D).

    Source: TNCSE (Zong et al. 2025) and its code (tianyuzong/TNCSE @8051805, `model_dual.py:41-42`, methods/tncse.md).

    Args:
        first: First encoder. The recipe declares it before this one.
        second: Second encoder, with embeddings of the same width.

    Raises:
        CseError: If the two encoders have different vocabularies or widths.

    Example:
        [encoders.both]
        name = "summed"
        first = "online"
        second = "other"
    """

    method = "summed"

    def __init__(self, first: Encoder, second: Encoder) -> None:
        super().__init__(first, second)
        if first.dim != second.dim:
            raise CseError(
                f"summed: the two encoders have different widths: {first.dim} and {second.dim}",
                "use encoders of the same width, or `concatenated`",
                code="encoders.cannot_be_summed",
            )
        self.dim = first.dim

    def join(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the sum."""
        return first + second

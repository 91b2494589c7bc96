"""SimCSE's training head."""

from __future__ import annotations

from registry import HEADS
from registry.heads.layers import Dense


@HEADS.register("mlp")
class Mlp(Dense):
    """Apply one dense layer with tanh: tanh(Wx + b), W from N(0, 0.02²), b zero.

    Shapes: (B, D) → (B, D).

    Source: SimCSE's code (`MLPLayer`, `init_weights`), which starts from random weights, not from the checkpoint's
    next-sentence pooler.

    Example:
        [encoders.online.heads.mlp]
    """

    def __init__(self) -> None:
        super().__init__("Tanh")

"""SimCSE's training head."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from registry.registries import HEADS
from registry.types import Encoder, Head


@HEADS.register("mlp")
class Mlp(Head):
    """Bend the pooled vector once: tanh(Wx + b), W from N(0, 0.02²), b zero.

    Shapes: (B, D) → (B, D).

    Source: SimCSE's code (`MLPLayer`, `init_weights`); freshly initialised, not the checkpoint's next-sentence pooler.
    """

    def fit(self, width: int, encoder: Encoder) -> int:  # noqa: ARG002 - the hook's form
        """Make the layer; it keeps the width."""
        self.linear = nn.Linear(width, width)
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)
        return width

    def forward(self, pooled: Tensor, groups: Sequence[tuple[str, int]]) -> Tensor:  # noqa: ARG002 - the hook's form
        """Return (B, D)."""
        output: Tensor = self.linear(pooled).tanh()
        return output

    def dense(self) -> tuple[Tensor, Tensor, str]:
        """Return the layer."""
        return self.linear.weight, self.linear.bias, "Tanh"

"""What stands between the pooled vector and the loss."""

from __future__ import annotations

from torch import Tensor, nn


class MlpHead(nn.Module):
    """SimCSE's head, tanh(Wx + b), freshly initialised: W from N(0, 0.02²), b zero.

    Source: SimCSE's code (`MLPLayer`, `init_weights`); it is not the checkpoint's next-sentence pooler.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)

    def forward(self, pooled: Tensor) -> Tensor:
        """Return (B, D) from (B, D)."""
        output: Tensor = self.linear(pooled).tanh()
        return output

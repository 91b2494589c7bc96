"""Convolutions over the states of a sentence's tokens. Registers nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

Activation = Literal["relu", "none"]


class Convolutions(nn.Module):
    """One-dimensional convolutions of several windows side by side: states → local features, one for each token.

    Args:
        states: Width of the states.
        windows: Tokens each convolution sees, odd numbers.
        channels: Features of each.
        activation: What follows.
    """

    def __init__(self, states: int, windows: Sequence[int], channels: int, activation: Activation) -> None:
        super().__init__()
        # Called as sentence-transformers calls it, which reads these weights from an export.
        self.convs = nn.ModuleList(nn.Conv1d(states, channels, size, padding=size // 2) for size in windows)
        self.states, self.windows, self.channels = states, tuple(windows), channels
        self.activation: Activation = activation

    @property
    def width(self) -> int:
        """Of a token's features."""
        return len(self.windows) * self.channels

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return (B, L, width) of (B, L, states); places where `mask` (B, L) is 0 count as zeros beyond the edge."""
        real = (states * mask.unsqueeze(-1)).transpose(1, 2)
        features = torch.cat([conv(real) for conv in self.convs], dim=1).transpose(1, 2)
        return features.relu() if self.activation == "relu" else features

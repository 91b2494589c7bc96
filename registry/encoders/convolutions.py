"""Convolutions over the states of tokens, as the module `CNN` of sentence-transformers computes and reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

Activation = Literal["relu", "none"]


class Convolutions(nn.Module):
    """One-dimensional convolutions with several windows in parallel, which give local features for each token."""

    def __init__(self, states: int, windows: Sequence[int], channels: int, activation: Activation) -> None:
        super().__init__()
        # Attribute name in sentence-transformers, which reads these weights from an export.
        self.convs = nn.ModuleList(nn.Conv1d(states, channels, size, padding=size // 2) for size in windows)
        self.states, self.windows, self.channels = states, tuple(windows), channels
        self.activation: Activation = activation

    @property
    def width(self) -> int:
        """Number of features of a token."""
        return len(self.windows) * self.channels

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return the (B, L, width) features of (B, L, states). States with `mask` (B, L) 0 count as zeros."""
        real = (states * mask.unsqueeze(-1)).transpose(1, 2)
        features = torch.cat([conv(real) for conv in self.convs], dim=1).transpose(1, 2)
        return features.relu() if self.activation == "relu" else features

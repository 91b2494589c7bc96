"""Mean and covariance of vectors that come in chunks. Registers nothing."""

from __future__ import annotations

import torch
from torch import Tensor


class Moments:
    """Mean and covariance in double precision, exact however the vectors are cut into chunks (Chan et al. 1983)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.zeros(0, dtype=torch.float64)
        self._scatter = torch.zeros(0, dtype=torch.float64)

    def add(self, vectors: Tensor) -> None:
        """Take in (n, D) more vectors."""
        rows = vectors.double()
        mean = rows.mean(dim=0)
        centred = rows - mean
        scatter = centred.T @ centred
        if self.count == 0:
            self.count, self.mean, self._scatter = len(rows), mean, scatter
            return
        total = self.count + len(rows)
        gap = mean - self.mean
        self._scatter += scatter + torch.outer(gap, gap) * (self.count * len(rows) / total)
        self.mean = self.mean + gap * (len(rows) / total)
        self.count = total

    def covariance(self) -> Tensor:
        """Return (D, D), divided by one less than the number of vectors."""
        return self._scatter / (self.count - 1)

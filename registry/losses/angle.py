"""AnglE (Li and Li 2024): the ranking of CoSENT with angles of complex numbers."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from registry import LOSSES
from registry.losses.contrast import unit
from registry.losses.cosent import CoSENT


@LOSSES.register("angle")
class AnglE(CoSENT):
    """Rank pairs of sentences by their labels, with the angle of their quotient as complex vectors.

    ℓ = log( 1 + Σ_{yᵢ < yⱼ} e^{(a(hᵢ,h⁺ᵢ) − a(hⱼ,h⁺ⱼ))/τ} ),  a(z, w) = |Σ_d Re qd + Im qd|,  qd = zd·w̄d / (|z||w|),
    where the first half of an embedding is the real part of z and the second half its imaginary part. Where the cosine
    saturates, its gradient vanishes and that of the angle does not. An odd width is filled with a zero.

    Shapes: anchor, positive (N, D); label (N,), a column of the data; result a scalar.

    Source: Li and Li 2024 as their code computes it (SeanLee97/AnglE, `angle_emb/loss.py`, angle_loss). The complete
    objective also has the terms `cosent` and an in-batch contrast: add these losses to the recipe (methods/cosent.md).
    sentence-transformers' `AnglELoss` is the same.

    Args:
        temperature: Divisor τ of the angles.

    Examples:
        >>> import torch
        >>> from registry.losses.angle import AnglE
        >>> anchor = torch.tensor([[1.0, 0.0], [1.0, 0.0]])  # z = 1
        >>> positive = torch.tensor([[1.0, 0.0], [-0.6, 0.8]])  # w = 1 and −0.6 + 0.8i: a = 1 and |−0.6 − 0.8|
        >>> round(AnglE(temperature=1.0)(anchor, positive, torch.tensor([1.0, 0.0])).item(), 4)
        0.913
    """

    def similarity(self, anchor: Tensor, positive: Tensor) -> Tensor:
        """Return (N,) absolute normalized angle differences."""
        pairs = (F.pad(vectors, (0, vectors.shape[1] % 2)) for vectors in (anchor, positive))
        (a, b), (c, d) = (unit(vectors).chunk(2, dim=1) for vectors in pairs)  # real and imaginary parts (N, D/2)
        return ((a * c + b * d) + (b * c - a * d)).sum(dim=1).abs()

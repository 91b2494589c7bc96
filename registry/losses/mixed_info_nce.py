"""MixCSE: InfoNCE with hard negatives that mix the embeddings of two sentences."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.contrast import cosine_matrix, cosine_rows, unit
from registry.losses.info_nce import InfoNCE
from registry.tokens import at_least_single


@LOSSES.register("mixed_info_nce")
class MixedInfoNCE(InfoNCE):
    """Select each anchor's positive as `info_nce` does, with mixtures of two sentences as additional negatives.

    mᵢ = λ·h⁺ᵢ + (1 − λ)·h⁺ᵢ₊₁, without gradient,
    where i + 1 is the next sentence of the batch, and the first one follows the last. "own" adds the one column
    s(hᵢ,mᵢ)/τ. "all" adds 2N columns over all j of the batch: s(hᵢ,mⱼ)/τ and s(m′ᵢ,h⁺ⱼ)/τ, with m′ the same mixture of
    h. Two cells of the mixed sentences are excluded: s(hᵢ,mᵢ₋₁), which contains the positive of i, and s(m′ᵢ,h⁺ᵢ₊₁).

    Shapes: those of `info_nce`.

    Source: MixCSE (Zhang et al. 2022; `mixcse/models_mix.py`, methods/mixcse.md). Doubtful: one mixture per anchor in
    the paper, 2N in the code (MX1, `mixtures`); an excluded cell remains as e⁰ in the code's sum (MX3, `off`); the code
    mixes vectors of any length (MX4, `normalize`).

    Args:
        share: Share λ of the sentence's own embedding.
        mixtures: Mixtures used as negatives of an anchor: its "own", or "all" of the batch.
        normalize: Whether embeddings are scaled to unit length before mixing.
        off: Contribution of an excluded cell to the sum: 0 ("out"), or 1 ("zero", a logit of 0).

    Examples:
        >>> import torch
        >>> from registry.losses.mixed_info_nce import MixedInfoNCE
        >>> from registry.types import Negatives
        >>> views = torch.eye(3)
        >>> round(MixedInfoNCE(temperature=1.0, share=0.2)(views, views, Negatives.none(views)).item(), 4)
        0.7906
    """

    def __init__(
        self,
        share: Annotated[float, Field(ge=0, le=1), Tune(0.0, 0.6)] = 0.2,
        mixtures: Literal["own", "all"] = "own",
        normalize: bool = True,
        off: Literal["out", "zero"] = "out",
        **info_nce: Any,
    ) -> None:
        super().__init__(**info_nce)
        self.share, self.mixtures, self.normalize, self.off = share, mixtures, normalize, off

    def made(self, anchor: Tensor, positive: Tensor) -> Tensor:
        """Return (N, 1) or (N, 2N) logits of the mixtures."""
        if self.mixtures == "own":
            return cosine_rows(anchor, self._mixed(positive)).unsqueeze(1) / self.temperature
        own = torch.eye(len(anchor), dtype=torch.bool, device=anchor.device)
        cosines = [cosine_matrix(anchor, self._mixed(positive)), cosine_matrix(self._mixed(anchor), positive)]
        off = torch.cat([own.roll(1, dims=0), own.roll(1, dims=1)], dim=1)  # column i − 1 of row i; column i + 1
        logits = torch.cat(cosines, dim=1) / self.temperature
        return logits.masked_fill(off, 0.0 if self.off == "zero" else -torch.inf)

    def _mixed(self, vectors: Tensor) -> Tensor:
        fixed = unit(vectors.detach()) if self.normalize else at_least_single(vectors.detach())
        return self.share * fixed + (1 - self.share) * fixed.roll(-1, dims=0)

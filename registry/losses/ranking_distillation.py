"""RankCSE's ranking distillation: rank the batch as frozen teachers rank it."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.contrast import cosine_matrix, without_diagonal
from registry.types import Loss, Sentences


@LOSSES.register("ranking_distillation")
class RankingDistillation(Loss):
    """Rank the sentences of the batch by similarity to each sentence in the order of one or two teachers.

    Student S_ij = s(hᵢ,h⁺ⱼ)/τ₂, teachers T_ij = α·s(tᵢ,tⱼ) + (1 − α)·s(uᵢ,uⱼ), s the cosine, j ≠ i. `form` selects the
    mean over i of
    "list_net": −Σⱼ softmaxⱼ(T/τ₃)ᵢⱼ · log softmaxⱼ(S)ᵢⱼ, the cross-entropy of the first item of the list;
    "list_mle": −Σₖ log( e^{S_iπ(k)} / ( Σ_{l≥k} e^{S_iπ(l)} + ε·e^{maxⱼ S_ij} ) ), with ε = 0 the Plackett-Luce
    likelihood of the teachers' order π. Equal scores of the teachers keep the batch's order.

    Shapes: anchor, positive (N, D); teacher (N, D'), second_teacher (N, D''), without gradient; result a scalar.

    Source: RankCSE (Liu et al. 2023) in a community implementation (perceptiveshawty/RankCSE @17c5226,
    `rankcse/models.py:63-109`, methods/rankcse.md); ListNet (Cao et al. 2007), ListMLE (Xia et al. 2008). Doubtful:
    that code includes a sentence's own pair in ListMLE's lists and not in ListNet's (RK3, `diagonal`); the number ε in
    its line 106 (RK5, `epsilon`); τ₃ is τ₂/2 in its README and τ₂ in its trainer (RK9, `teacher_temperature`).

    Args:
        form: Objective of the ranking: "list_net" or "list_mle".
        temperature: Divisor τ₂ of the student's cosines.
        teacher_temperature: Divisor τ₃ of the teachers' cosines, for "list_net" only. Default: τ₂/2.
        mix: Share α of the first of two teachers.
        diagonal: Whether a sentence's own pair is in its list.
        epsilon: Number ε inside the logarithm of "list_mle". A place whose sum is far below ε·e^max, with 10⁻⁷ and
            τ₂ = 0.05 from a cosine 0.8 below the best, has no order: each of its sentences is pulled toward the best.

    Examples:
        >>> import torch
        >>> from registry.losses.ranking_distillation import RankingDistillation
        >>> views = torch.eye(3)
        >>> round(RankingDistillation(temperature=1.0)(views, views, teacher=views).item(), 4)
        0.6931
    """

    steering: frozenset[str] = frozenset({"teacher", "second_teacher"})

    def __init__(
        self,
        form: Literal["list_net", "list_mle"] = "list_net",
        temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.05,
        teacher_temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] | None = None,
        mix: Annotated[float, Field(ge=0, le=1), Tune(0.0, 1.0)] = 0.5,
        diagonal: bool = False,
        epsilon: Annotated[float, Field(ge=0)] = 1e-7,
    ) -> None:
        super().__init__()
        self.form, self.temperature, self.mix = form, temperature, mix
        self.teacher_temperature = temperature / 2 if teacher_temperature is None else teacher_temperature
        self.diagonal, self.epsilon = diagonal, epsilon

    def forward(
        self, anchor: Sentences, positive: Sentences, teacher: Sentences, second_teacher: Sentences | None = None
    ) -> Tensor:
        """Return the loss of the batch."""
        student = self._lists(cosine_matrix(anchor, positive)) / self.temperature
        target = self._lists(_among(teacher))
        if second_teacher is not None:
            target = self.mix * target + (1 - self.mix) * self._lists(_among(second_teacher))
        if self.form == "list_net":
            first = (target / self.teacher_temperature).softmax(dim=1)
            return -(first * student.log_softmax(dim=1)).sum(dim=1).mean()
        ordered = student.gather(1, target.argsort(dim=1, descending=True, stable=True))
        left = ordered.flip(1).logcumsumexp(dim=1).flip(1)
        if self.epsilon > 0 and ordered.shape[1] > 0:
            left = torch.logaddexp(left, ordered.max(dim=1, keepdim=True).values + math.log(self.epsilon))
        return (left - ordered).sum(dim=1).mean()

    def _lists(self, cosines: Tensor) -> Tensor:
        """Return each row's list: (N, N), or (N, N − 1) without the diagonal."""
        return cosines if self.diagonal else without_diagonal(cosines)


def _among(vectors: Tensor) -> Tensor:
    """Return (N, N) cosines of a teacher's embeddings, without gradient."""
    return cosine_matrix(vectors.detach(), vectors.detach())

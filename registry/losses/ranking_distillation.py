"""RankCSE's ranking distillation: rank the batch as frozen teachers rank it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.contrast import cosine_matrix
from registry.types import Loss, Sentences


@LOSSES.register("ranking_distillation")
class RankingDistillation(Loss):
    """Order the sentences of the batch by their nearness to each sentence as one or two teachers order them.

    Student S_ij = s(hᵢ,h⁺ⱼ)/τ₂, teachers T_ij = α·s(tᵢ,tⱼ) + (1 − α)·s(uᵢ,uⱼ), s the cosine, j ≠ i. By `form`, the mean
    over i of
    "list_net": −Σⱼ softmaxⱼ(T/τ₃)ᵢⱼ · log softmaxⱼ(S)ᵢⱼ, the cross-entropy of what comes first in the list;
    "list_mle": −Σₖ log( e^{S_iπ(k)} / Σ_{l≥k} e^{S_iπ(l)} ) / (length of the list), the likelihood of the teachers'
    order π by Plackett and Luce. Equal scores of the teachers keep the batch's order.

    Shapes: anchor, positive (N, D); teacher (N, D'), second_teacher (N, D''), without gradient; result a scalar.

    Source: RankCSE (Liu et al. 2023) as a community implementation has it (perceptiveshawty/RankCSE,
    `rankcse/models.py`, methods/rankcse.md); ListNet (Cao et al. 2007), ListMLE (Xia et al. 2008). Doubtful: a
    sentence's own pair is in ListMLE's lists there and not in ListNet's (RK3, `diagonal`); sum or mean over a list
    (RK5, `reduction`); τ₃ is τ₂/2 by its README and τ₂ by its trainer (RK9, `teacher_temperature`).

    Args:
        form: What is made of an order.
        temperature: τ₂.
        teacher_temperature: τ₃, of "list_net" alone; τ₂/2 if left out.
        mix: α, the first teacher's share where there are two.
        diagonal: Whether a sentence's own pair is in its list.
        reduction: Over a list's places for "list_mle": "mean", or "sum" as a likelihood is.
    """

    steering: ClassVar[frozenset[str]] = frozenset({"teacher", "second_teacher"})

    def __init__(
        self,
        form: Literal["list_net", "list_mle"] = "list_net",
        temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.05,
        teacher_temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] | None = None,
        mix: Annotated[float, Field(ge=0, le=1), Tune(0.0, 1.0)] = 0.5,
        diagonal: bool = False,
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__()
        self.form, self.temperature, self.mix = form, temperature, mix
        self.teacher_temperature = temperature / 2 if teacher_temperature is None else teacher_temperature
        self.diagonal, self.reduction = diagonal, reduction

    def forward(
        self, anchor: Sentences, positive: Sentences, teacher: Sentences, second_teacher: Sentences | None = None
    ) -> Tensor:
        """Return the loss of the batch."""
        student = self._lists(cosine_matrix(anchor, positive)) / self.temperature
        wanted = self._lists(_among(teacher))
        if second_teacher is not None:
            wanted = self.mix * wanted + (1 - self.mix) * self._lists(_among(second_teacher))
        if self.form == "list_net":
            first = (wanted / self.teacher_temperature).softmax(dim=1)
            return -(first * student.log_softmax(dim=1)).sum(dim=1).mean()
        ordered = student.gather(1, wanted.argsort(dim=1, descending=True, stable=True))
        left = ordered.flip(1).logcumsumexp(dim=1).flip(1)
        total = (left - ordered).sum(dim=1).mean()
        return total if self.reduction == "sum" else total / max(1, student.shape[1])

    def _lists(self, cosines: Tensor) -> Tensor:
        """Return each row's list: (N, N), or (N, N − 1) without the diagonal."""
        n = len(cosines)
        if self.diagonal:
            return cosines
        # Behind the first cell, every (N + 1)th is one of the diagonal.
        return cosines.flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)


def _among(vectors: Tensor) -> Tensor:
    """Return (N, N) cosines of a teacher's vectors, without gradient."""
    return cosine_matrix(vectors.detach(), vectors.detach())

"""DistillCSE's distillation: cosines of frozen teachers, up to an exchange of about equally similar sentences."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from registry import LOSSES, Tune
from registry.losses.contrast import cosine_matrix, without_diagonal
from registry.types import Loss, Sentences


@LOSSES.register("group_distillation")
class GroupDistillation(Loss):
    """Match a sentence's similarities to the batch to those of teachers, shuffled in groups of about equal ones.

    ℓᵢ = −Σₖ softmaxₖ(Tᵢ/τₜ)ₖ · log softmaxₖ(Sᵢ/τ)_σ(k),
    where Sᵢⱼ = s(hᵢ,hⱼ) are the student's cosines, Tᵢⱼ the mean of the teachers' cosines, j ≠ i, and k runs over the
    sentences in the order of decreasing Tᵢ. The permutation σ exchanges sentences in the same group at random: with the
    cumulative sums cₖ of softmaxₖ(Tᵢ/τ_g), sentence k is in group ⌊cₖ/p⌋, at most ⌈1/p⌉ − 1. With p = 0 nothing is
    exchanged, which is plain distillation. The result is the mean over i.

    Shapes: anchor (N, D), N ≥ 2; teachers (N, D′) each, without gradient; result a scalar.

    Source: DistillCSE (Xu et al. 2023, sections 3 and 4) and its code (Jiahao004/DistillCSE @6b68be5,
    `distillcse/models_distill_calibrate.py:206-311`, `distillcse/trainers_distill_calibrate.py:513-533`). Doubtful and
    settled in methods/distillcse.md: the code forms the groups at temperature 1 (DI1, `group_temperature`), and has the
    student's cosines of one view (DI2).

    Args:
        temperature: Divisor τ of the student's cosines.
        teacher_temperature: Divisor τₜ of the teachers' cosines.
        group: Probability mass p of a group. 0 disables the exchange.
        group_temperature: Divisor τ_g of the teachers' cosines in the groups.

    Examples:
        >>> import torch
        >>> from registry.losses.group_distillation import GroupDistillation
        >>> views = torch.eye(3)
        >>> round(GroupDistillation(group=0.5)(views, (views,)).item(), 4)
        0.6931
    """

    steering: frozenset[str] = frozenset({"teachers"})

    def __init__(
        self,
        temperature: Annotated[float, Field(gt=0), Tune(0.01, 0.5, log=True)] = 0.025,
        teacher_temperature: Annotated[float, Field(gt=0), Tune(0.005, 0.5, log=True)] = 0.0125,
        group: Annotated[float, Field(ge=0, le=1), Tune(0.0, 0.5)] = 0.1,
        group_temperature: Annotated[float, Field(gt=0)] = 1.0,
    ) -> None:
        super().__init__()
        self.temperature, self.teacher_temperature = temperature, teacher_temperature
        self.group, self.group_temperature = group, group_temperature

    def forward(self, anchor: Sentences, teachers: tuple[Sentences, ...]) -> Tensor:
        """Return the loss of the batch."""
        found = torch.stack([cosine_matrix(vectors.detach(), vectors.detach()) for vectors in teachers])
        target, order = without_diagonal(found.mean(dim=0)).sort(dim=1, descending=True, stable=True)
        if self.group > 0:
            order = order.gather(1, self._shuffled(target))
        student = without_diagonal(cosine_matrix(anchor, anchor)).gather(1, order) / self.temperature
        first = (target / self.teacher_temperature).softmax(dim=1)
        return -(first * student.log_softmax(dim=1)).sum(dim=1).mean()

    def _shuffled(self, target: Tensor) -> Tensor:
        """Return (N, N − 1) places, exchanged at random within the groups of each row's sorted cosines."""
        mass = (target / self.group_temperature).softmax(dim=1).cumsum(dim=1)
        groups = (mass / self.group).floor().clamp(max=math.ceil(1 / self.group) - 1)
        # A random number in [0, 1) orders the sentences of a group and never changes the order of groups.
        return (groups + torch.rand_like(groups)).argsort(dim=1)

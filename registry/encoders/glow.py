"""Glow for vectors: an invertible network whose features are the channels of a 1×1 image. Registers nothing.

Kingma and Dhariwal 2018, as BERT-flow's code has it (`flow/glow_ops_1x1.py`): additive couplings, a fixed permutation,
and a standard normal prior on everything, also on what is split off between levels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from registry.errors import RunFailedError

_FACTOR = 3.0
"""Scales are exp(3·l): what Glow calls logscale_factor; it makes Adam's steps on them three times as large."""


class ActNorm(nn.Module):
    """A shift and a scale for each feature, set from the first batch so that it leaves with mean 0 and variance 1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(width))
        self.log_scale = nn.Parameter(torch.zeros(width))

    def initialise(self, x: Tensor) -> None:
        """Set shift and scale from (B, width)."""
        mean = x.mean(dim=0)
        spread = (x - mean).square().mean(dim=0).sqrt()
        self.shift.data.copy_(-mean)
        self.log_scale.data.copy_(-(spread + 1e-6).log() / _FACTOR)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, width)."""
        return (x + self.shift) * (_FACTOR * self.log_scale).exp()

    def inverse(self, y: Tensor) -> Tensor:
        """Return what `forward` made `y` of."""
        return y * (-_FACTOR * self.log_scale).exp() - self.shift

    def log_det(self) -> Tensor:
        """Return log |det ∂y/∂x|, the same for every row."""
        return _FACTOR * self.log_scale.sum()


class Shift(nn.Module):
    """The three-layer network of a coupling: linear, actnorm, ReLU, twice, then a layer that starts as zero."""

    def __init__(self, width: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.first = nn.Parameter(0.05 * torch.randn(width, hidden, generator=generator))
        self.second = nn.Parameter(0.05 * torch.randn(hidden, hidden, generator=generator))
        self.first_norm, self.second_norm = ActNorm(hidden), ActNorm(hidden)
        self.last = nn.Parameter(torch.zeros(hidden, width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.log_scale = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, initialise: bool = False) -> Tensor:
        """Return (B, width)."""
        for weight, norm in ((self.first, self.first_norm), (self.second, self.second_norm)):
            x = x @ weight
            if initialise:
                norm.initialise(x)
            x = norm(x).relu()
        return (x @ self.last + self.bias) * (_FACTOR * self.log_scale).exp()


class FlowStep(nn.Module):
    """Actnorm, features in reverse order, then the second half is shifted by a function of the first."""

    def __init__(self, width: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.norm = ActNorm(width)
        self.shift = Shift(width // 2, hidden, generator)

    def forward(self, x: Tensor, initialise: bool = False) -> Tensor:
        """Return (B, width)."""
        if initialise:
            self.norm.initialise(x)
        first, second = self.norm(x).flip(-1).chunk(2, dim=-1)
        return torch.cat([first, second + self.shift(first, initialise)], dim=-1)

    def inverse(self, y: Tensor) -> Tensor:
        """Return what `forward` made `y` of."""
        first, second = y.chunk(2, dim=-1)
        x: Tensor = self.norm.inverse(torch.cat([first, second - self.shift(first)], dim=-1).flip(-1))
        return x


class Glow(nn.Module):
    """Levels of flow steps; after each level but the last the second half of the features is done.

    Args:
        width: D, divisible by 2 to the power of `levels`.
        levels: Levels.
        depth: Flow steps of a level.
        hidden: Width of the couplings' networks.
        generator: Where first weights are drawn from.
    """

    def __init__(self, width: int, levels: int, depth: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        widths = [width >> level for level in range(levels) for _ in range(depth)]
        self.steps = nn.ModuleList(FlowStep(wide, hidden, generator) for wide in widths)
        self.last, self.depth = levels - 1, depth

    def forward(self, x: Tensor, initialise: bool = False) -> Tensor:
        """Return z (B, D): what each level let go, then what is left at the top.

        Args:
            x: (B, D).
            initialise: Set every actnorm from these rows on the way.
        """
        done = []
        for level in range(self.last + 1):
            if level:
                x, out = x.chunk(2, dim=-1)
                done.append(out)
            for step in self._steps(level):
                x = step(x, initialise)
        return torch.cat([*done, x], dim=-1)

    def inverse(self, z: Tensor) -> Tensor:
        """Return what `forward` made `z` of."""
        width = z.shape[-1]
        sizes = [width >> (level + 1) for level in range(self.last)]
        *done, x = torch.split(z, [*sizes, width - sum(sizes)], dim=-1)
        for level in range(self.last, -1, -1):
            for step in reversed(self._steps(level)):
                x = step.inverse(x)
            if level:
                x = torch.cat([x, done[level - 1]], dim=-1)
        return x

    def log_det(self) -> Tensor:
        """Return log |det ∂z/∂x|: of the actnorms alone, for couplings and permutations keep the volume."""
        parts = [step.norm.log_det() for level in range(self.last + 1) for step in self._steps(level)]
        return torch.stack(parts).sum()

    def bits(self, x: Tensor) -> Tensor:
        """Return (B,) −log p(x) / (D·ln 2) under a standard normal z: what is minimised."""
        z = self(x)
        normal: Tensor = -0.5 * (z.square() + math.log(2 * math.pi)).sum(dim=-1)
        return -(normal + self.log_det()) / (x.shape[-1] * math.log(2))

    def _steps(self, level: int) -> list[FlowStep]:
        members = self.steps[level * self.depth : (level + 1) * self.depth]
        return [step for step in members if isinstance(step, FlowStep)]


@dataclass(frozen=True)
class Descent:
    """How a flow is trained: AdamW at a constant rate, gradients clipped to norm 1.

    Args:
        learning_rate: Of Adam.
        warmup_steps: Linear rise from 0.
        weight_decay: Decoupled, on every weight.
    """

    learning_rate: float
    warmup_steps: int
    weight_decay: float

    def minimise(self, glow: Glow, batches: Iterable[Tensor]) -> list[float]:
        """Train a flow whose actnorms are set from the first batch; return the loss of each step.

        Raises:
            RunFailedError: The loss is not finite.
        """
        optimiser = torch.optim.AdamW(
            glow.parameters(), lr=self.learning_rate, eps=1e-6, weight_decay=self.weight_decay
        )
        losses: list[float] = []
        for step, batch in enumerate(batches):
            if step == 0:
                with torch.no_grad():
                    glow(batch, initialise=True)
            optimiser.param_groups[0]["lr"] = self.learning_rate * min(1.0, (step + 1) / max(1, self.warmup_steps))
            loss = glow.bits(batch).mean()
            if not loss.isfinite():
                raise RunFailedError(f"flow: the loss is {loss.item()} at step {step}", "lower its learning_rate")
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(glow.parameters(), 1.0)
            optimiser.step()
            losses.append(loss.item())
        return losses

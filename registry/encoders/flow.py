"""BERT-flow: map sentence vectors to a normal distribution by an invertible network.

The network is Glow for vectors (Kingma and Dhariwal 2018): features are the channels of a 1×1 image. As in BERT-flow's
code (`flow/glow_ops_1x1.py`): additive couplings, a fixed permutation, and a standard normal prior on everything, also
on what is split off between levels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from registry import ENCODERS
from registry.encoders.adjusted import Adjusted, Vectors
from registry.errors import CseError, RunFailedError
from registry.types import Tune

_FACTOR = 3.0
"""Scales are exp(3·l): what Glow calls logscale_factor; it makes Adam's steps on them three times as large."""


@ENCODERS.register("flow")
class Flow(Adjusted):
    """Map another encoder's vectors to a standard normal distribution by an invertible network.

    z = f(x), trained by minimising −log p(x) / (D·ln 2), log p(x) = log N(f(x); 0, I) + log |det ∂f/∂x|, on the vectors
    of unlabelled sentences; f is Glow with features as channels. The other encoder is never changed. Only cse opens a
    saved model; the training's random numbers are not touched.

    Shapes: (B, D) → (B, D); D must be divisible by 2 to the power of `levels`.

    Source: BERT-flow (Li et al. 2020, section 3.2 and appendix) and its code; Glow (Kingma and Dhariwal 2018). Doubtful
    and settled in methods/bert_flow.md: layers averaged (B1, the other encoder's pooling), what is fitted on (B2,
    `fit_on`), sentences of a step (B3, `batch_size`), warm-up (B4, `warmup_steps`), decay (B5, `weight_decay`).

    Args:
        levels: Levels of the flow; after each but the last, half of the features are done.
        depth: Steps of a level: actnorm, permutation, coupling.
        width: Width of the couplings' networks.
        epochs: Passes over the sentences.
        batch_size: Sentences of a step.
        learning_rate: Of Adam.
        warmup_steps: Linear rise from 0 to the learning rate, which then stays.
        weight_decay: Decoupled, on every weight of the flow.
        seed: Of first weights and order.
    """

    method: ClassVar[str] = "flow"

    def __init__(
        self,
        levels: Annotated[int, Field(ge=1, le=6), Tune(1, 4)] = 3,
        depth: Annotated[int, Field(ge=1), Tune(1, 6)] = 3,
        width: Annotated[int, Field(ge=1), Tune(8, 128, log=True)] = 32,
        epochs: Annotated[int, Field(ge=1), Tune(1, 5)] = 1,
        batch_size: Annotated[int, Field(ge=2), Tune(16, 256, log=True)] = 64,
        learning_rate: Annotated[float, Field(gt=0), Tune(1e-4, 1e-2, log=True)] = 1e-3,
        warmup_steps: Annotated[int, Field(ge=0), Tune(0, 1000)] = 0,
        weight_decay: Annotated[float, Field(ge=0), Tune(0.0, 0.1)] = 0.01,
        seed: Annotated[int, Field(ge=0)] = 1234,
        **fitted_to: Any,
    ) -> None:
        super().__init__(**fitted_to)
        self.levels, self.depth, self.hidden = levels, depth, width
        self.epochs, self.batch_size, self.seed = epochs, batch_size, seed
        self.descent = Descent(learning_rate, warmup_steps, weight_decay)
        self._glow: tuple[Glow, ...] = ()  # in a tuple: no weights of the training
        self.bits: list[float] = []  # the loss of each step of the last fit

    def fit_vectors(self, vectors: Vectors) -> None:
        """Train a flow from the beginning."""
        generator = torch.Generator().manual_seed(self.seed)
        with torch.inference_mode(False), torch.enable_grad():
            batches = self._batches(vectors, generator)
            first = next(batches, None)
            if first is None:
                return
            glow = self._made(first.shape[1], generator).to(first.device)
            self.bits = self.descent.minimise(glow, chain([first], batches))
        self._glow = (glow,)

    def adjust(self, vectors: Tensor) -> Tensor:
        """Return (B, D)."""
        adjusted: Tensor = self._glow[0].to(vectors.device)(vectors)
        return adjusted

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the flow's weights."""
        return self._glow[0].state_dict() if self._glow else {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put the flow's weights back."""
        width = len(tensors["steps.0.norm.shift"])
        self._glow = (self._made(width, torch.Generator()),)
        self._glow[0].load_state_dict(dict(tensors))

    def settings(self) -> dict[str, Any]:
        """Return the flow's shape."""
        return {"levels": self.levels, "depth": self.depth, "width": self.hidden}

    def _made(self, width: int, generator: torch.Generator) -> Glow:
        if width % 2**self.levels:
            raise CseError(
                f"flow: levels = {self.levels} halve the vectors' width {self.levels} times, but {width} is not "
                f"divisible by {2**self.levels}",
                "use fewer levels, or an encoder whose width is divisible",
            )
        return Glow(width, self.levels, self.depth, self.hidden, generator)

    def _batches(self, vectors: Vectors, generator: torch.Generator) -> Iterator[Tensor]:
        """Yield shuffled batches of at least two; a chunk of the corpus is shuffled by itself."""
        place = next((p.device for p in self.of.parameters()), torch.device("cpu"))
        for _ in range(self.epochs):
            for chunk in vectors():
                order = torch.randperm(len(chunk), generator=generator)
                for rows in torch.split(order, self.batch_size):
                    if len(rows) > 1:
                        yield chunk[rows].to(place)


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

"""BERT-flow: an invertible network that maps sentence embeddings to a normal distribution.

The network is Glow for vectors (Kingma and Dhariwal 2018): features are the channels of a 1×1 image. As in BERT-flow's
code (`flow/glow_ops_1x1.py`), it has additive couplings, a fixed permutation, and a standard normal prior on all
features, also on those split off between levels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from registry import ENCODERS
from registry.adamw import EarlierAdamW
from registry.encoders.adjusted import Adjusted, Vectors
from registry.errors import CseError, RunFailedError
from registry.types import Tune

_FACTOR = 3.0
"""Factor of the log-scales, Glow's logscale_factor. It makes Adam's steps three times as large."""


@ENCODERS.register("flow")
class Flow(Adjusted):
    """Map another encoder's embeddings to a standard normal distribution with an invertible network.

    z = f(x) minimizes −log p(x) / (D·ln 2), log p(x) = log N(f(x); 0, I) + log |det ∂f/∂x|, over the embeddings of
    unlabeled sentences, where f is Glow with features as channels. The other encoder never changes. Only cse opens an
    export. The fit has its own random generator.

    Shapes: (B, D) → (B, D). D must be divisible by 2 to the power of `levels`.

    Source: BERT-flow (Li et al. 2020, section 3.2 and appendix) and its code; Glow (Kingma and Dhariwal 2018). Doubtful
    and settled in methods/bert_flow.md: layers averaged (B1, the other encoder's pooling), sentences of the fit (B2,
    `fit_on`), sentences per step (B3, `batch_size`), warm-up (B4, `warmup_steps`), decay (B5, `weight_decay`), start of
    the actnorms (B10, `actnorm`).

    Args:
        levels: Number of levels. After each level except the last, half of the features are split off.
        depth: Number of flow steps per level. A step is actnorm, permutation and coupling.
        width: Width of the couplings' networks.
        actnorm: Initial values of the actnorms. "first_batch": the first batch gets mean 0 and variance 1, as in Glow.
            "random": uniform in ±√(6/(C + 1)) for C features, TensorFlow's default, with which BERT-flow's code starts.
        epochs: Number of passes over the sentences.
        batch_size: Number of sentences per step.
        learning_rate: Learning rate of AdamW without bias correction.
        warmup_steps: Number of steps in which the learning rate rises linearly from 0. Then it stays constant.
        weight_decay: Decoupled weight decay of every weight of the flow.
        seed: Seed of initial weights and sentence order.

    Example:
        [encoders.flow]
        name = "flow"
        of = "online"
        fit_on = "target"
    """

    method: ClassVar[str] = "flow"

    def __init__(
        self,
        levels: Annotated[int, Field(ge=1, le=6), Tune(1, 4)] = 3,
        depth: Annotated[int, Field(ge=1), Tune(1, 6)] = 3,
        width: Annotated[int, Field(ge=1), Tune(8, 128, log=True)] = 32,
        actnorm: Literal["first_batch", "random"] = "first_batch",
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
        self.actnorm, self.epochs, self.batch_size, self.seed = actnorm, epochs, batch_size, seed
        self.learning_rate, self.warmup_steps, self.weight_decay = learning_rate, warmup_steps, weight_decay
        self._glow: tuple[Glow, ...] = ()  # in a tuple, so that torch does not register its weights
        self.bits: list[float] = []  # the loss of each step of the last fit

    def fit_vectors(self, vectors: Vectors) -> None:
        """Train a new flow."""
        generator = torch.Generator().manual_seed(self.seed)
        with torch.inference_mode(False), torch.enable_grad():
            batches = self._batches(vectors, generator)
            first = next(batches, None)
            if first is None:
                return
            glow = self._made(first.shape[1], generator)
            if self.actnorm == "random":
                glow.randomize(generator)
            glow.to(first.device)
            rates = self.learning_rate, self.warmup_steps, self.weight_decay
            self.bits = minimize(glow, chain([first], batches), *rates, initialize=self.actnorm == "first_batch")
        self._glow = (glow,)

    def adjust(self, vectors: Tensor) -> Tensor:
        """Return the (B, D) output of the flow."""
        adjusted: Tensor = self._glow[0].to(vectors.device)(vectors)
        return adjusted

    def tensors(self) -> Mapping[str, Tensor]:
        """Return the flow's weights."""
        return self._glow[0].state_dict() if self._glow else {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Build the flow from these weights."""
        width = len(tensors["steps.0.norm.shift"])
        self._glow = (self._made(width, torch.Generator()),)
        self._glow[0].load_state_dict(dict(tensors))

    def settings(self) -> dict[str, Any]:
        """Return the parameters of the flow's architecture."""
        return {"levels": self.levels, "depth": self.depth, "width": self.hidden}

    def _made(self, width: int, generator: torch.Generator) -> Glow:
        if width % 2**self.levels:
            raise CseError(
                f"flow: levels = {self.levels} requires a width divisible by {2**self.levels}, but the embeddings have "
                f"width {width}",
                "use fewer levels, or an encoder with a divisible width",
                code="encoders.indivisible_width",
            )
        return Glow(width, self.levels, self.depth, self.hidden, generator)

    def _batches(self, vectors: Vectors, generator: torch.Generator) -> Iterator[Tensor]:
        """Yield batches of at least two embeddings. Each chunk of the corpus is shuffled separately."""
        place = next((p.device for p in self.of.parameters()), torch.device("cpu"))
        for _ in range(self.epochs):
            for chunk in vectors():
                order = torch.randperm(len(chunk), generator=generator)
                for rows in torch.split(order, self.batch_size):
                    if len(rows) > 1:
                        yield chunk[rows].to(place)


class ActNorm(nn.Module):
    """Shift and scale of each feature, set so that the first batch gets mean 0 and variance 1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(width))
        self.log_scale = nn.Parameter(torch.zeros(width))

    def initialize(self, x: Tensor) -> None:
        """Set shift and scale from a batch (B, width)."""
        mean = x.mean(dim=0)
        spread = (x - mean).square().mean(dim=0).sqrt()
        self.shift.data.copy_(-mean)
        self.log_scale.data.copy_(-(spread + 1e-6).log() / _FACTOR)

    def randomize(self, generator: torch.Generator) -> None:
        """Sample shift and log-scale uniformly in ±√(6/(width + 1))."""
        bound = math.sqrt(6 / (len(self.shift) + 1))
        for values in (self.shift, self.log_scale):
            nn.init.uniform_(values, -bound, bound, generator)

    def forward(self, x: Tensor) -> Tensor:
        """Return the shifted and scaled batch (B, width)."""
        return (x + self.shift) * (_FACTOR * self.log_scale).exp()

    def log_det(self) -> Tensor:
        """Return log |det ∂y/∂x|, which is the same for every row."""
        return _FACTOR * self.log_scale.sum()


class Shift(nn.Module):
    """Three-layer network of a coupling: linear, actnorm and ReLU twice, then a linear layer with initial value 0."""

    def __init__(self, width: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.first = nn.Parameter(0.05 * torch.randn(width, hidden, generator=generator))
        self.second = nn.Parameter(0.05 * torch.randn(hidden, hidden, generator=generator))
        self.first_norm, self.second_norm = ActNorm(hidden), ActNorm(hidden)
        self.last = nn.Parameter(torch.zeros(hidden, width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.log_scale = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, initialize: bool = False) -> Tensor:
        """Return the shifts (B, width)."""
        for weight, norm in ((self.first, self.first_norm), (self.second, self.second_norm)):
            x = x @ weight
            if initialize:
                norm.initialize(x)
            x = norm(x).relu()
        return (x @ self.last + self.bias) * (_FACTOR * self.log_scale).exp()


class FlowStep(nn.Module):
    """Actnorm, reversed order of features, and a shift of the second half by a function of the first half."""

    def __init__(self, width: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.norm = ActNorm(width)
        self.shift = Shift(width // 2, hidden, generator)

    def forward(self, x: Tensor, initialize: bool = False) -> Tensor:
        """Return the output (B, width) of the step."""
        if initialize:
            self.norm.initialize(x)
        first, second = self.norm(x).flip(-1).chunk(2, dim=-1)
        return torch.cat([first, second + self.shift(first, initialize)], dim=-1)


class Glow(nn.Module):
    """Levels of flow steps. After each level except the last, the second half of the features is split off."""

    def __init__(self, width: int, levels: int, depth: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        widths = [width >> level for level in range(levels) for _ in range(depth)]
        self.steps = nn.ModuleList(FlowStep(wide, hidden, generator) for wide in widths)
        self.last, self.depth = levels - 1, depth

    def forward(self, x: Tensor, initialize: bool = False) -> Tensor:
        """Return z (B, D): the features that each level splits off, then those of the last level.

        Args:
            x: Embeddings (B, D).
            initialize: Whether to set every actnorm from these rows.
        """
        done = []
        for level in range(self.last + 1):
            if level:
                x, out = x.chunk(2, dim=-1)
                done.append(out)
            for step in self._steps(level):
                x = step(x, initialize)
        return torch.cat([*done, x], dim=-1)

    def log_det(self) -> Tensor:
        """Return log |det ∂z/∂x| of the actnorms. Couplings and permutations preserve the volume."""
        parts = [step.norm.log_det() for level in range(self.last + 1) for step in self._steps(level)]
        return torch.stack(parts).sum()

    def randomize(self, generator: torch.Generator) -> None:
        """Sample the initial values of every actnorm, also of those in the couplings."""
        for part in self.modules():
            if isinstance(part, ActNorm):
                part.randomize(generator)

    def bits(self, x: Tensor) -> Tensor:
        """Return the loss (B,): −log p(x) / (D·ln 2) for a standard normal z."""
        z = self(x)
        normal: Tensor = -0.5 * (z.square() + math.log(2 * math.pi)).sum(dim=-1)
        return -(normal + self.log_det()) / (x.shape[-1] * math.log(2))

    def _steps(self, level: int) -> list[FlowStep]:
        members = self.steps[level * self.depth : (level + 1) * self.depth]
        return [step for step in members if isinstance(step, FlowStep)]


def minimize(
    glow: Glow,
    batches: Iterable[Tensor],
    learning_rate: float,
    warmup_steps: int,
    weight_decay: float,
    initialize: bool = True,
) -> list[float]:
    """Train a flow by BERT's AdamW with gradients clipped to norm 1, and return the mean loss of each step.

    A step minimizes twice the mean loss of its sentences, because BERT-flow's code adds the means of the two sides of
    the batch's pairs. Adam is invariant to this factor, but the clipping is not.

    Source: BERT-flow's code (`run_siamese.py`, `optimization_bert_flow.py`).
    """
    weights = tuple(glow.parameters())
    optimizer = EarlierAdamW(weights, bias_correction=False, lr=learning_rate, eps=1e-6, weight_decay=weight_decay)
    losses: list[float] = []
    for step, batch in enumerate(batches):
        if step == 0 and initialize:
            with torch.no_grad():
                glow(batch, initialize=True)
        optimizer.param_groups[0]["lr"] = learning_rate * min(1.0, (step + 1) / max(1, warmup_steps))
        loss = glow.bits(batch).mean()
        if not loss.isfinite():
            raise RunFailedError(
                f"flow: the loss is {loss.item()} at step {step}",
                f"use a learning_rate below {learning_rate:g}",
                code="encoders.flow_diverged",
            )
        optimizer.zero_grad(set_to_none=True)
        (2 * loss).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses

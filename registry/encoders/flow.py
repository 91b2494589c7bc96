"""BERT-flow: bend the space of sentences until it is filled like a normal distribution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from registry.encoders.adjusted import Adjusted, Vectors
from registry.encoders.fitting import FitData
from registry.encoders.glow import Descent, Glow
from registry.errors import CseError
from registry.registries import ENCODERS
from registry.types import Encoder, Resource, Tune


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
        of: The encoder whose vectors are adjusted; the recipe declares it before this one.
        fit_on: A data set of the catalogue, or "target": for each evaluator all sentences of its own data set, test
            split included, without labels.
        split: Split of the data set.
        columns: Columns of it that hold sentences.
        limit: Sentences at most; all if left out.
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
        of: Encoder,
        fit_on: Annotated[str, Resource("dataset", evaluated="target")],
        split: str = "train",
        columns: list[str] = ["text"],  # noqa: B006 - a declaration, never changed
        limit: Annotated[int, Field(ge=2)] | None = None,
        levels: Annotated[int, Field(ge=1, le=6), Tune(1, 4)] = 3,
        depth: Annotated[int, Field(ge=1), Tune(1, 6)] = 3,
        width: Annotated[int, Field(ge=1), Tune(8, 128, log=True)] = 32,
        epochs: Annotated[int, Field(ge=1), Tune(1, 5)] = 1,
        batch_size: Annotated[int, Field(ge=2), Tune(16, 256, log=True)] = 64,
        learning_rate: Annotated[float, Field(gt=0), Tune(1e-4, 1e-2, log=True)] = 1e-3,
        warmup_steps: Annotated[int, Field(ge=0), Tune(0, 1000)] = 0,
        weight_decay: Annotated[float, Field(ge=0), Tune(0.0, 0.1)] = 0.01,
        seed: Annotated[int, Field(ge=0)] = 1234,
    ) -> None:
        super().__init__(of, FitData(fit_on, split, tuple(columns), limit))
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

"""A transformer's blocks compiled for batches of one shape, where a run asks for it. Registers nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import ceil
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from registry.types import Encoder

Pass = Callable[[Any, Tensor, Tensor], Tensor]
"""model, vectors (B, L, W), mask → (B, L, D) or (B, D)."""

RECOMPILE_LIMIT = 64
"""Versions of a pass that torch keeps: encoders × with and without gradient × lengths. Its own limit of 8 is a hint at
shapes that keep changing; here they do not."""
TRIALS = 3
"""Runs before a version is trusted: CUDA graphs run once to warm up, once to record, then replay."""

_KEY = "cse_compiled_blocks"


class CompiledBlocks:
    """Stands beside a transformers model, not in it: its modules, their names and its own calls stay as they are.

    Rows are padded to a multiple of `length`, so that hardly any shape but one occurs. Each version is tried on zeros
    before it is used, backward pass included; a failure is reported once, and from then on nothing is compiled.

    Args:
        model: The transformers model.
        length: Tokens that rows are padded to a multiple of.
        warn: Called with the reason if nothing can be compiled.
    """

    def __init__(self, model: Any, length: int, warn: Callable[[str], None]) -> None:
        self.passes = 0
        self.active = False
        self.graphs = False
        self.failed = False
        self._model = model
        self._length = length
        self._warn = warn
        self._made: dict[Pass, Callable[[Tensor, Tensor], Tensor]] = {}
        self._tried: set[tuple[Any, ...]] = set()

    def __deepcopy__(self, memo: Any) -> None:
        """A copy of the model has blocks of its own, and starts uncompiled."""

    def run(self, function: Pass, vectors: Tensor, mask: Tensor) -> Tensor:
        """Return `function(model, vectors, mask)`, compiled; mask (B, L)."""
        extra = ceil(mask.shape[1] / self._length) * self._length - mask.shape[1]
        padded, attended = F.pad(vectors, (0, 0, 0, extra)), F.pad(mask, (0, extra)).bool()
        if not self._works(function, padded, attended):
            return function(self._model, vectors, mask)
        made = self._version(function)(padded, attended)
        return made[:, : mask.shape[1]] if made.ndim == vectors.ndim else made

    def _version(self, function: Pass) -> Callable[[Tensor, Tensor], Tensor]:
        if function not in self._made:
            model = self._model

            def call(vectors: Tensor, attended: Tensor) -> Tensor:
                every = attended[:, None, None, :].expand(-1, 1, attended.shape[1], -1)
                return function(model, vectors, every)

            self._made[function] = torch.compile(
                call, dynamic=False, mode="reduce-overhead" if self.graphs else "default"
            )
        return self._made[function]

    def _works(self, function: Pass, vectors: Tensor, attended: Tensor) -> bool:
        """Try a version on zeros the first time its kind of input comes."""
        kind = vectors.device.type
        precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else vectors.dtype
        key = (function, vectors.shape, precision, torch.is_grad_enabled(), vectors.requires_grad)
        if not self.failed and key not in self._tried:
            self._tried.add(key)
            try:
                self._try(function, vectors, attended)
            except Exception as error:  # whatever fails in the compiler, the blocks still run
                self.failed = True
                why = (str(error).strip() or type(error).__name__).partition("\n")[0]
                self._warn(f"the blocks cannot be compiled and run as they are ({type(error).__name__}: {why[:200]})")
        return not self.failed

    def _try(self, function: Pass, vectors: Tensor, attended: Tensor) -> None:
        cuda = [vectors.device] if vectors.device.type == "cuda" else []
        weights = [weight for weight in self._model.parameters() if weight.requires_grad]
        # Gradient caching counts what is saved for the backward pass; a trial must not be counted.
        hidden = torch.autograd.graph.saved_tensors_hooks(_same, _same)
        with torch.random.fork_rng(devices=cuda), warnings.catch_warnings(), hidden:
            warnings.simplefilter("ignore")  # advice on settings that are set on purpose
            for _ in range(TRIALS if cuda else 1):
                zeros = torch.zeros_like(vectors).requires_grad_(vectors.requires_grad)
                made = self._version(function)(zeros, torch.ones_like(attended))
                if made.requires_grad:
                    inputs = [zeros, *weights] if zeros.requires_grad else weights
                    torch.autograd.grad(made.sum(), inputs, allow_unused=True)


def _same(values: Tensor) -> Tensor:
    return values


def compiled(model: Any) -> CompiledBlocks | None:
    """Return what runs a model's blocks in its place, in training; None where they run as they are."""
    blocks: CompiledBlocks | None = getattr(model, _KEY, None)
    if blocks is None or not model.training:
        return None
    blocks.passes += 1
    return blocks if blocks.active and not blocks.failed else None


def prepare(root: nn.Module, length: int, warn: Callable[[str], None]) -> list[CompiledBlocks]:
    """Put `CompiledBlocks` beside the models of all encoders below `root`, not active yet; return them."""
    # `torch.compile` has a parameter for it in torch 2.13 only; 2.6 is the oldest that is supported.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, RECOMPILE_LIMIT)
    found = []
    for module in root.modules():
        if isinstance(module, Encoder) and hasattr(module, "backbone") and getattr(module, "compiles", True):
            found.append(CompiledBlocks(module.backbone, length, warn))
            setattr(module.backbone, _KEY, found[-1])
    return found

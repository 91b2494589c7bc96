"""Compiled transformer blocks for batches of one shape, for runs with `train.compile`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import ceil
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from registry.accelerators import kept_randomness
from registry.types import Encoder

Pass = Callable[[Any, Tensor, Tensor], Tensor]
"""Function of model, vectors (B, L, W) and mask that returns (B, L, D) or (B, D)."""

RECOMPILE_LIMIT = 64
"""Maximum number of compiled versions of a pass: encoders × with and without gradient × lengths. Torch's default of 8
is for programs whose shapes change all the time."""

TRIALS = 3
"""Number of test passes on CUDA: CUDA graphs run once to warm up, once to record, and then replay."""

_KEY = "cse_compiled_blocks"


class CompiledBlocks:
    """Compiled passes through the blocks of a transformers model, which itself does not change.

    Rows are padded to a multiple of `length`, so that most batches have the same shape. Each version first runs forward
    and backward on zeros. After the first failure, a warning is printed and nothing is compiled.
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
        """Return None, so that a copy of the model starts without compiled blocks."""

    def run(self, function: Pass, vectors: Tensor, mask: Tensor) -> Tensor:
        """Return `function(model, vectors, mask)`, compiled if that works. The mask is (B, L)."""
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
        """Return whether the version works, tested on zeros at the first input of its kind."""
        kind = vectors.device.type
        precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else vectors.dtype
        key = (function, vectors.shape, precision, torch.is_grad_enabled(), vectors.requires_grad)
        if not self.failed and key not in self._tried:
            self._tried.add(key)
            try:
                self._try(function, vectors, attended)
            except Exception as error:  # after any failure of the compiler the blocks still run
                self.failed = True
                why = (str(error).strip() or type(error).__name__).partition("\n")[0]
                self._warn(
                    f"the blocks run without compilation, because it failed: {type(error).__name__}: {why[:200]}"
                )
        return not self.failed

    def _try(self, function: Pass, vectors: Tensor, attended: Tensor) -> None:
        weights = [weight for weight in self._model.parameters() if weight.requires_grad]
        # Gradient caching counts saved tensors. Those of a test pass must not count.
        hidden = torch.autograd.graph.saved_tensors_hooks(lambda values: values, lambda values: values)
        with kept_randomness(vectors.device), warnings.catch_warnings(), hidden:
            warnings.simplefilter("ignore")  # these settings are deliberate
            for _ in range(TRIALS if vectors.device.type == "cuda" else 1):
                zeros = torch.zeros_like(vectors).requires_grad_(vectors.requires_grad)
                made = self._version(function)(zeros, torch.ones_like(attended))
                if made.requires_grad:
                    inputs = [zeros, *weights] if zeros.requires_grad else weights
                    torch.autograd.grad(made.sum(), inputs, allow_unused=True)


def compiled(model: Any) -> CompiledBlocks | None:
    """Return the compiled blocks of a model in training, or None if its blocks run uncompiled."""
    blocks: CompiledBlocks | None = getattr(model, _KEY, None)
    if blocks is None or not model.training:
        return None
    blocks.passes += 1
    return blocks if blocks.active and not blocks.failed else None


def prepare(root: nn.Module, length: int, warn: Callable[[str], None]) -> list[CompiledBlocks]:
    """Add inactive `CompiledBlocks` to the models of all encoders below `root`, and return them."""
    # Only torch ≥ 2.13 has a parameter for this. The oldest supported version is 2.6.
    settings: Any = torch._dynamo.config
    name = "recompile_limit" if hasattr(settings, "recompile_limit") else "cache_size_limit"  # of torch 2.6
    setattr(settings, name, max(getattr(settings, name), RECOMPILE_LIMIT))
    found = []
    for module in root.modules():
        if isinstance(module, Encoder) and hasattr(module, "backbone") and getattr(module, "compiles", True):
            found.append(CompiledBlocks(module.backbone, length, warn))
            setattr(module.backbone, _KEY, found[-1])
    return found

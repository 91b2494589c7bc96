"""BERT's pooler, the dense layer after [CLS], as a training head."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from registry import HEADS
from registry.errors import CseError, MissingError
from registry.heads.layers import Dense
from registry.resources.models import locate
from registry.types import Encoder

_ENDINGS = ("pooler.dense.weight", "pooler.weight")
"""Endings of the names of pooler weights: in BERT, RoBERTa and similar models, and in ALBERT."""


@HEADS.register("pooler")
class Pooler(Dense):
    """Apply one dense layer with the initial weights of the checkpoint's own pooler.

    Wx + b, or tanh(Wx + b) as in BERT.

    Shapes: (B, D) → (B, D).

    Source: MoCoSE's code (`MoCoSEModel`: `Linear(d, d)` on [CLS] without tanh, copied from BERT's pooler); BERT
    (Devlin et al. 2019). Doubtful: MoCoSE's paper specifies neither tanh nor initial weights (methods/mocose.md M10,
    `activation` and `initial`).

    Args:
        activation: "none" as in MoCoSE, "tanh" as in BERT.
        initial: "checkpoint" for the weights of next-sentence prediction, or "random" with W from N(0, 0.02²), for
            checkpoints without these weights.

    Example:
        [encoders.online.heads.pooler]
        activation = "tanh"
        initial = "random"
    """

    def __init__(
        self, activation: Literal["none", "tanh"] = "none", initial: Literal["checkpoint", "random"] = "checkpoint"
    ) -> None:
        super().__init__("Tanh" if activation == "tanh" else "Identity")
        self.initial = initial

    def fit(self, width: int, encoder: Encoder) -> int:
        """Create the layer, which keeps the width."""
        super().fit(width, encoder)
        if self.initial == "random":
            return width
        weight, bias = checkpoint_pooler(encoder)
        if tuple(weight.shape) != (width, width):
            raise CseError(
                f"pooler: the checkpoint's layer expects {weight.shape[1]} dimensions, but its input has {width}",
                'make pooler the first head, or set initial = "random"',
                code="heads.width_mismatch",
            )
        with torch.no_grad():
            self.linear.weight.copy_(weight)
            self.linear.bias.copy_(bias)
        return width


def checkpoint_pooler(encoder: Encoder) -> tuple[Tensor, Tensor]:
    """Return weight and bias of the pooler in the encoder's checkpoint."""
    model = getattr(encoder, "model", None)
    if not isinstance(model, str):
        raise CseError(
            f'pooler: initial = "checkpoint" requires an encoder with a checkpoint, not {type(encoder).__name__}',
            'set initial = "random"',
            code="heads.no_checkpoint",
        )
    directory = locate(model)
    weights = _read(directory)
    if weights is None:
        raise MissingError(
            f'pooler: initial = "checkpoint", but the checkpoint of model {model!r} in {directory} has no pooler: no '
            f"tensor name ends in {' or '.join(_ENDINGS)}",
            'set initial = "random", or use a checkpoint with a next-sentence pooler',
            code="heads.no_pooler",
        )
    return weights


def _read(directory: Path) -> tuple[Tensor, Tensor] | None:
    """Return weight and bias in single precision, or None if no file contains them."""
    from safetensors import safe_open

    files = sorted(directory.glob("*.safetensors"))
    for file in files:
        with safe_open(file, framework="pt") as opened:
            if (name := _weight_name(opened.keys())) is not None:
                return opened.get_tensor(name).float(), opened.get_tensor(name.removesuffix("weight") + "bias").float()
    for file in () if files else sorted(directory.glob("pytorch_model*.bin")):
        content = torch.load(file, map_location="cpu", weights_only=True)
        if (name := _weight_name(content)) is not None:
            return content[name].float(), content[name.removesuffix("weight") + "bias"].float()
    return None


def _weight_name(names: Iterable[str]) -> str | None:
    endings = tuple(f".{ending}" for ending in _ENDINGS)
    return next((name for name in names if f".{name}".endswith(endings)), None)

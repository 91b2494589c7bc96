"""The layer that BERT has behind [CLS], as a training head."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from registry import HEADS
from registry.errors import CseError, MissingError
from registry.heads.layers import Dense
from registry.models import locate
from registry.types import Encoder

_ENDINGS = ("pooler.dense.weight", "pooler.weight")
"""How the names of the pooler's weights end: BERT, RoBERTa and their like; ALBERT."""


@HEADS.register("pooler")
class Pooler(Dense):
    """Map the pooled vector by one dense layer that starts as the checkpoint's own pooler.

    Wx + b, or tanh(Wx + b) as BERT computes it.

    Shapes: (B, D) → (B, D).

    Source: MoCoSE's code (`MoCoSEModel`: `Linear(d, d)` on [CLS] without tanh, copied from BERT's pooler); BERT
    (Devlin et al. 2019). Doubtful: neither tanh nor start is in MoCoSE's paper (methods/mocose.md M10, `activation`
    and `initial`).

    Args:
        activation: "none" as MoCoSE, "tanh" as BERT.
        initial: "checkpoint" takes the weights that next-sentence prediction trained; "random" draws W from
            N(0, 0.02²), for checkpoints that were saved without them.
    """

    def __init__(
        self, activation: Literal["none", "tanh"] = "none", initial: Literal["checkpoint", "random"] = "checkpoint"
    ) -> None:
        super().__init__("Tanh" if activation == "tanh" else "Identity")
        self.initial = initial

    def fit(self, width: int, encoder: Encoder) -> int:
        """Make the layer; it keeps the width.

        Raises:
            CseError: The checkpoint's pooler takes another width.
            MissingError: The checkpoint has no pooler.
        """
        super().fit(width, encoder)
        if self.initial == "random":
            return width
        weight, bias = checkpoint_pooler(encoder)
        if tuple(weight.shape) != (width, width):
            raise CseError(
                f"pooler: the checkpoint's layer is {weight.shape[1]} wide, the vectors before it {width}",
                'put pooler first among the heads, or set initial = "random"',
            )
        with torch.no_grad():
            self.linear.weight.copy_(weight)
            self.linear.bias.copy_(bias)
        return width


def checkpoint_pooler(encoder: Encoder) -> tuple[Tensor, Tensor]:
    """Return weight and bias of the dense layer that the encoder's checkpoint has behind [CLS].

    Raises:
        CseError: The encoder is made from no checkpoint.
        MissingError: The checkpoint has no such layer.
    """
    model = getattr(encoder, "model", None)
    if not isinstance(model, str):
        raise CseError(
            f'pooler: initial = "checkpoint" needs an encoder with a checkpoint, not {type(encoder).__name__}',
            'set initial = "random"',
        )
    folder = locate(model)
    weights = _read(folder)
    if weights is None:
        raise MissingError(
            f'pooler: initial = "checkpoint", but the checkpoint of model {model!r} in {folder} has no pooler weights '
            f"(none of its tensors ends in {' or '.join(_ENDINGS)})",
            'set initial = "random", or use a checkpoint that was saved with its next-sentence pooler',
        )
    return weights


def _read(folder: Path) -> tuple[Tensor, Tensor] | None:
    """Return weight and bias from the file that holds them, in single precision."""
    from safetensors import safe_open

    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        with safe_open(file, framework="pt") as opened:
            if (name := _weight_name(opened.keys())) is not None:
                return opened.get_tensor(name).float(), opened.get_tensor(_bias_name(name)).float()
    for file in () if files else sorted(folder.glob("pytorch_model*.bin")):
        content = torch.load(file, map_location="cpu", weights_only=True)
        if (name := _weight_name(content)) is not None:
            return content[name].float(), content[_bias_name(name)].float()
    return None


def _weight_name(names: Iterable[str]) -> str | None:
    endings = tuple(f".{ending}" for ending in _ENDINGS)
    return next((name for name in names if f".{name}".endswith(endings)), None)


def _bias_name(weight: str) -> str:
    return weight.removesuffix("weight") + "bias"

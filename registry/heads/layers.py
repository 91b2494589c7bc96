"""Layers that several heads are made of. Registers nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from registry.errors import CseError, MissingError
from registry.models import locate
from registry.types import Encoder

_ENDINGS = ("pooler.dense.weight", "pooler.weight")
"""How the names of the pooler's weights end: BERT, RoBERTa and their like; ALBERT."""


def linear(width: int, out: int) -> nn.Linear:
    """Return a layer with weights from N(0, 0.02²) and no bias at the start, as BERT initialises."""
    layer = nn.Linear(width, out)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer


def block(width: int, out: int, dropout: float) -> list[nn.Module]:
    """Return a linear layer, normalised and dropped; there is no non-linearity in it."""
    return [linear(width, out), nn.LayerNorm(out), nn.Dropout(dropout)]


def width_out(head: str, layers: int, width: int, asked: int | None) -> int:
    """Return the width of what `layers` layers make of `width` dimensions: the one asked for, else the same.

    Raises:
        CseError: No layer is there to change it.
    """
    if layers == 0 and asked not in (None, width):
        raise CseError(
            f"{head}: layers = 0 keeps {width} dimensions, width = {asked} asks for others",
            "leave width out, or use one layer or more",
        )
    return width if asked is None else asked


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
    weights = _tensors(folder)
    if weights is None:
        raise MissingError(
            f'pooler: initial = "checkpoint", but the checkpoint of model {model!r} in {folder} has no pooler weights '
            f"(none of its tensors ends in {' or '.join(_ENDINGS)})",
            'set initial = "random", or use a checkpoint that was saved with its next-sentence pooler',
        )
    return weights


def _tensors(folder: Path) -> tuple[Tensor, Tensor] | None:
    """Return weight and bias from whichever file holds them, in single precision."""
    from safetensors import safe_open

    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            found = _named(dict.fromkeys(opened.keys()))
            if found is not None:
                return opened.get_tensor(found[0]).float(), opened.get_tensor(found[1]).float()
    if any(folder.glob("*.safetensors")):
        return None
    for file in sorted(folder.glob("pytorch_model*.bin")):
        content = _read_bin(file)
        if (found := _named(content)) is not None:
            return content[found[0]].float(), content[found[1]].float()
    return None


def _named(names: dict[str, Any]) -> tuple[str, str] | None:
    weights = [name for name in names if f".{name}".endswith(tuple(f".{ending}" for ending in _ENDINGS))]
    return (weights[0], weights[0].removesuffix("weight") + "bias") if weights else None


def _read_bin(file: Path) -> dict[str, Any]:
    import torch

    content: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    return content

"""Save an encoder that only cse opens: its settings, its weights, and the name of the class that opens it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from registry.prompts import Prompts

WEIGHTS = "model.safetensors"


def save_encoder(
    folder: Path,
    name: str,
    settings: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    max_length: int,
    prompts: Prompts = Prompts(),  # noqa: B008 - never changed
) -> None:
    """Write a directory that `Encoder.open` of a registered encoder opens.

    Args:
        folder: Target directory, created if necessary.
        name: Name of the encoder in the registry.
        settings: Argument `settings` of `open`, in JSON. `cse evaluate --pooling` and `--template` replace the settings
            "pooling" and "template", and are errors without them.
        weights: Result of `weights_in`.
        max_length: Maximum number of tokens, special tokens included.
        prompts: Prompts of the encoder, its attribute `prompts`.
    """
    from registry.encoders.export import drafted, write_own, write_weights

    with drafted(folder) as draft:
        about = f'The encoder "{name}". For an encoder in a Python file, add `--plugin FILE`.'
        write_own(draft, {"format": name, "max_length": max_length, "settings": dict(settings)}, about, prompts)
        write_weights(draft / WEIGHTS, weights, marked=False)


def weights_in(folder: Path) -> dict[str, Tensor]:
    """Return the weights in a directory that `save_encoder` wrote."""
    from safetensors.torch import load_file

    return load_file(folder / WEIGHTS)

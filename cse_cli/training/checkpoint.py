"""Everything a step depends on, on disk: written whole or not at all, readable without running code."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from cse_cli.method import Method
from registry.errors import CseError
from registry.types import Component

FILE = "checkpoint.pt"


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Save `content` so that a crash leaves either the old file or the new one."""
    partial = path.with_suffix(".partial")
    # By name: a signal that arrives inside torch's writer then waits for it, where a Python file would let it break in
    # and come out as an error of the writer.
    torch.save(dict(content), str(partial))
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(path)


def read(path: Path) -> dict[str, Any]:
    """Load what `write` saved, tensors on the CPU.

    Raises:
        CseError: The file is missing or damaged.
    """
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise CseError(f"no checkpoint at {path}", "start the run again without --resume") from error
    except Exception as error:  # torch raises many kinds for a damaged file
        raise CseError(f"checkpoint {path} cannot be read: {error}", "start the run again without --resume") from error
    return content


def method_state(method: Method) -> dict[str, Any]:
    """Return the weights and buffers of a method, without frozen parts that are loaded by name."""
    left_out = tuple(
        f"{prefix}."
        for prefix, module in method.named_modules()
        if isinstance(module, Component) and not module.stateful
    )
    return {key: value for key, value in method.state_dict().items() if not key.startswith(left_out or ("\0",))}


def load_method_state(method: Method, state: Mapping[str, Any]) -> None:
    """Put `method_state` back.

    Raises:
        CseError: The checkpoint is of another method.
    """
    expected = set(method_state(method))
    if expected != set(state):
        odd = sorted(expected ^ set(state))[:3]
        raise CseError(f"the checkpoint belongs to another method: {', '.join(odd)} …", "resume with the same recipe")
    nn.Module.load_state_dict(method, dict(state), strict=False)


def stream(seed: int, rank: int, step: int = 0) -> int:
    """Return the seed of a process's own dropout; the first one has the run's."""
    if rank == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed}:{rank}:{step}".encode()).digest()[:7])


def random_state() -> dict[str, Any]:
    """Return the state of every random stream a component may draw from."""
    kind, words, position, has_gauss, gauss = np.random.get_state()
    version, internal, gauss_next = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [
            str(kind),
            torch.from_numpy(np.asarray(words).astype(np.int64)),
            int(position),
            int(has_gauss),
            float(gauss),
        ],
        "python": [version, list(internal), gauss_next],
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    """Put every random stream back."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"][: torch.cuda.device_count()])
    kind, words, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, words.numpy().astype(np.uint32), position, has_gauss, gauss))
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal), gauss_next))

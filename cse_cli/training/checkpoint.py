"""Checkpoints: everything the next step depends on, the best state so far, and whether all processes hold the same.

A file is written whole or not at all, and read without running code.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cse_cli.core.distributed import gather_objects, run_on_rank0
from cse_cli.training.method import Method
from registry.distributed import world_size
from registry.errors import CseError, RunFailedError
from registry.types import Component, Encoder

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
    frozen = tuple(
        f"{prefix}."
        for prefix, module in method.named_modules()
        if isinstance(module, Component) and not module.stateful
    )
    return {key: value for key, value in method.state_dict().items() if not key.startswith(frozen)}


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


def dropout_seed(seed: int, rank: int, step: int = 0) -> int:
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
        "numpy": [str(kind), torch.from_numpy(np.asarray(words).astype(np.int64)), int(position), int(has_gauss),
                  float(gauss)],
        "python": [version, list(internal), gauss_next],
    }  # fmt: skip


def set_random_state(state: Mapping[str, Any]) -> None:
    """Put every random stream back."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"][: torch.cuda.device_count()])
    kind, words, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, words.numpy().astype(np.uint32), position, has_gauss, gauss))
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal), gauss_next))


@dataclass
class Selection:
    """Which state to keep.

    Args:
        folder: Where states are written, one file a step, so that a checkpoint never refers to a later state.
        step: Step of the best state; None before the first score.
        score: Its score.
        curve: Step → score of the selecting metric.
    """

    folder: Path
    step: int | None = None
    score: float | None = None
    curve: dict[int, float] = field(default_factory=dict)

    def offer(self, step: int, score: float, encoder: Encoder) -> bool:
        """Record a score; keep the state if it is the best. Ties keep the earlier one."""
        self.curve[step] = score
        if math.isnan(score) or (self.score is not None and score <= self.score):
            return False
        self.step, self.score = step, score
        run_on_rank0(lambda: write(self._file(step), encoder.state_dict()))
        return True

    def restore(self, encoder: Encoder) -> None:
        """Put the best state into `encoder`; without one, leave it as it is."""
        if self.step is not None:
            file = self._file(self.step)
            encoder.load_state_dict(run_on_rank0(lambda: read(file)))

    def delete_others(self) -> None:
        """Delete states that no checkpoint can ask for any more."""
        for file in self.folder.glob("best-*.pt"):
            if self.step is None or file != self._file(self.step):
                file.unlink()

    def _file(self, step: int) -> Path:
        return self.folder / f"best-{step}.pt"


def check_replicas_equal(method: Method, step: int) -> None:
    """Check that weights, momentum copies and the queue are the same on every process, to the last bit.

    Raises:
        RunFailedError: They are not; it names the processes and the first tensor.
    """
    if world_size() == 1:
        return
    replicated: dict[str, Tensor] = dict(
        method.named_parameters()
    )  # not all buffers: running statistics may be each process's own
    if method.queue is not None:
        replicated |= {f"queue.{name}": buffer for name, buffer in method.queue.named_buffers()}
    everyone = gather_objects(torch.stack([_bit_sum(tensor) for tensor in replicated.values()]).tolist())
    for rank, theirs in enumerate(everyone):
        if theirs != everyone[0]:
            odd = [name for name, a, b in zip(replicated, everyone[0], theirs, strict=False) if a != b]
            raise RunFailedError(
                f"after step {step}, process {rank} no longer has the weights of process 0: {len(odd)} of "
                f"{len(replicated)} tensors differ, among them {odd[0] if odd else 'their number'}",
                "give every machine the same models, data and library versions, then start again or --resume",
            )


def _bit_sum(tensor: Tensor) -> Tensor:
    """Return the sum of the bits as integers: exact in any order, and a single number to fetch from the device."""
    flat = tensor.detach().contiguous().reshape(-1)
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    return flat.view(integers).sum(dtype=torch.int64)

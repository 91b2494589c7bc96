"""Checkpoints: everything the next step depends on, the best state so far, and whether all processes hold the same.

A file is written whole or not at all, and read without running code. Two checkpoints are kept, and before one is used
the checksums in it are compared, which torch writes and does not read: of 60 copies with one bit flipped, `torch.load`
took all.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import zipfile
from collections.abc import Callable, Mapping
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
PREVIOUS = "checkpoint-previous.pt"
"""The one before: used where the last one is damaged."""


def write(path: Path, content: Mapping[str, Any], keep: Path | None = None) -> None:
    """Save `content` so that a crash leaves either the old file or the new one.

    Args:
        path: Where.
        content: Tensors, numbers, texts, and lists and tables of them.
        keep: What the old file is called from then on. What has that name is deleted first, so that no more than two
            files are on the disk at any time, as without it.

    Raises:
        OSError: It could not be written; what there was of it is deleted.
    """
    if keep is not None:
        keep.unlink(missing_ok=True)
    partial = path.with_suffix(".partial")
    # By name: a signal that arrives inside torch's writer then waits for it, where a Python file would let it break in
    # and come out as an error of the writer.
    try:
        torch.save(dict(content), str(partial))
        with partial.open("rb") as file:
            os.fsync(file.fileno())
    except (RuntimeError, OSError) as error:
        refused = error if isinstance(error, OSError) else _refusal(partial)
        partial.unlink(missing_ok=True)
        if refused is None:
            raise
        raise OSError(refused.errno, refused.strerror, str(path)) from error
    if keep is not None and path.exists():
        path.replace(keep)
    partial.replace(path)


def _refusal(file: Path) -> OSError | None:
    """Return what the system answers to one more block: torch's writer says "unexpected pos" and no reason."""
    try:
        with file.open("ab") as end:
            end.write(bytes(1 << 16))
    except OSError as error:
        return error
    return None


def load(path: Path) -> dict[str, Any]:
    """Return what `write` saved, tensors on the CPU, of a file that `damage` finds nothing wrong with."""
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return content


def damage(path: Path) -> str | None:
    """Return what is wrong with a file, or None where all that torch reads of it is as `write` wrote it.

    It takes a second a GB of one core, half as long as loading does.
    """
    try:
        with zipfile.ZipFile(path) as file:
            wrong = file.testzip()
        if wrong is None:  # torch's own reader looks at fields that zipfile passes over
            _mapped(path)
    except FileNotFoundError:
        return "is missing"
    except Exception as error:  # BadZipFile, zlib.error, RuntimeError, NotImplementedError …, by what the bit meant
        return f"is damaged: {error}"
    return None if wrong is None else f"is damaged: the checksum of {wrong} is wrong"


def _mapped(path: Path) -> dict[str, Any]:
    """Return what a file holds, without reading its tensors."""
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    return content


def saved(folder: Path) -> list[Path]:
    """Return the checkpoints in a run's folder, the last one first."""
    return [path for path in (folder / FILE, folder / PREVIOUS) if path.exists()]


def choose(folder: Path, method: Method, warn: Callable[[str], None]) -> Path:
    """Return the last checkpoint, or the one before, which then takes its place, where the last one cannot be used.

    Args:
        folder: Of the run.
        method: That the checkpoint is to be of.
        warn: Called with what is wrong with the last one.

    Raises:
        CseError: None can be used.
    """
    faults: list[str] = []
    for path in saved(folder):
        fault = _fault(path, method)
        if fault is None:
            if faults:
                warn(f"{faults[0]}; going on from the checkpoint before it")
            # Under the name of the one before, the next one to be written would delete it first.
            return path.replace(folder / FILE)
        faults.append(f"{path} {fault}")
    raise CseError("\n".join(["no checkpoint can be used:", *faults]), "start the run again without --resume")


def _fault(path: Path, method: Method) -> str | None:
    """Return why a checkpoint cannot be used, or None."""
    if (fault := damage(path)) is not None:
        return fault
    try:
        content = _mapped(path)
        weights, run, best = content["method"], content.get("run", path.parent.name), content["selection"]["step"]
    except Exception as error:  # what another program wrote
        return f"is no checkpoint of a run: {error}"
    if run != path.parent.name:
        return f"belongs to run {run[:8]}"
    expected, found = ({k: v.shape for k, v in state.items()} for state in (method_state(method), weights))
    if odd := sorted(k for k in {*expected, *found} if expected.get(k) != found.get(k)):
        return f"belongs to another method: {', '.join(odd[:3])} …"
    state = Selection(path.parent, best).file
    if state is not None and (fault := damage(state)) is not None:
        return f"needs {state.name}, which {fault}"
    return None


def method_state(method: Method) -> dict[str, Any]:
    """Return the weights and buffers of a method, without frozen parts that are loaded by name."""
    frozen = tuple(
        f"{prefix}."
        for prefix, module in method.named_modules()
        if isinstance(module, Component) and not module.stateful
    )
    return {key: value for key, value in method.state_dict().items() if not key.startswith(frozen)}


def load_method_state(method: Method, state: Mapping[str, Any]) -> None:
    """Put `method_state` back."""
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
        before: Step of the best state at the last checkpoint: the one that is kept beside the next one asks for it.
    """

    folder: Path
    step: int | None = None
    score: float | None = None
    curve: dict[int, float] = field(default_factory=dict)
    before: int | None = None

    @property
    def file(self) -> Path | None:
        """Where the best state lies."""
        return None if self.step is None else self._file(self.step)

    def offer(self, step: int, score: float, encoder: Encoder) -> bool:
        """Record a score; keep the state if it is the best. Ties keep the earlier one."""
        self.curve[step] = score
        if math.isnan(score) or (self.score is not None and score <= self.score):
            return False
        self.step, self.score = step, score
        run_on_rank0(lambda: write(self._file(step), encoder.state_dict()))
        return True

    def restore(self, encoder: Encoder) -> None:
        """Put the best state into `encoder`; without one, leave it as it is.

        Raises:
            CseError: Its file is missing or damaged.
        """
        if self.file is not None:
            encoder.load_state_dict(run_on_rank0(self._read))

    def _read(self) -> dict[str, Any]:
        assert self.file is not None
        if (fault := damage(self.file)) is not None:
            raise CseError(
                f"the best state {self.file} {fault}",
                f"cse run --resume {self.folder.name[:8]} goes on from the last checkpoint that does not need it",
            )
        return load(self.file)

    def delete_others(self) -> None:
        """Delete states that neither the checkpoint just written nor the one before can ask for any more."""
        kept = {self._file(step) for step in (self.step, self.before) if step is not None}
        self.before = self.step
        for file in self.folder.glob("best-*.pt"):
            if file not in kept:
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

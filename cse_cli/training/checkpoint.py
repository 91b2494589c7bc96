"""Checkpoints, the best state so far, and the check that all processes have the same weights.

Files are written atomically and read without running code. `cse` keeps two checkpoints and verifies the checksums of a
file before it uses it. torch writes these checksums and ignores them: `torch.load` accepted 60 of 60 files with one
flipped bit.
"""

from __future__ import annotations

import errno
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
from registry.accelerators import random_states, set_random_states
from registry.distributed import world_size
from registry.errors import CseError, RunFailedError
from registry.types import Component, Encoder

FILE = "checkpoint.pt"
PREVIOUS = "checkpoint-previous.pt"
"""Previous checkpoint, used if the last one is damaged."""


def write(path: Path, content: Mapping[str, Any], keep: Path | None = None) -> None:
    """Save `content` atomically: after a crash, the file is either the old one or the new one.

    The old file moves to `keep`. A file there is deleted first, so that at most two files exist.
    """
    if keep is not None:
        keep.unlink(missing_ok=True)
    partial = path.with_suffix(".partial")
    # By path: torch's writer then delays a signal. With a Python file, the signal becomes an error of the writer.
    try:
        torch.save(dict(content), str(partial))
        with partial.open("rb") as file:
            os.fsync(file.fileno())
    except (RuntimeError, OSError) as error:
        refused = error if isinstance(error, OSError) else _refusal(partial, str(error))
        partial.unlink(missing_ok=True)
        if refused is None:
            raise
        raise OSError(refused.errno, refused.strerror, str(path)) from error
    if keep is not None and path.exists():
        path.replace(keep)
    partial.replace(path)


def _refusal(file: Path, reported: str) -> OSError | None:
    """Return the error of writing one more block, which torch's writer does not report.

    If the block is written, another process has freed space since the writer failed, or something else has.
    """
    try:
        with file.open("ab") as end:
            end.write(bytes(1 << 16))
    except OSError as error:
        return error
    is_of_writer = any(words in reported for words in ("iostream error", "unexpected pos"))
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if is_of_writer else None


def load(path: Path, *, mapped: bool = False) -> dict[str, Any]:
    """Return the content of a file that `damage` has checked, with tensors on the CPU, or only `mapped`."""
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    return content


def damage(path: Path) -> str | None:
    """Return a description of the damage to a file, or None if it is intact.

    The check takes one second per GB on one core, half the time of loading.
    """
    try:
        with zipfile.ZipFile(path) as file:
            wrong = file.testzip()
        if wrong is None:  # torch reads fields that zipfile ignores
            load(path, mapped=True)
    except FileNotFoundError:
        return "is missing"
    except Exception as error:  # BadZipFile, zlib.error, RuntimeError, NotImplementedError …
        return f"is damaged: {error}"
    return None if wrong is None else f"is damaged: the checksum of {wrong} is wrong"


def saved(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, the last one first."""
    return [path for path in (folder / FILE, folder / PREVIOUS) if path.exists()]


def choose(folder: Path, method: Method, warn: Callable[[str], None]) -> Path:
    """Return the last checkpoint. If it cannot be used, replace it by the previous one and return that."""
    faults: list[str] = []
    for path in saved(folder):
        fault = _fault(path, method)
        if fault is None:
            if faults:
                warn(f"{faults[0]}. Resuming from the previous checkpoint")
            # The next `write` would delete a file with the name of the previous one.
            return path.replace(folder / FILE)
        faults.append(f"{path} {fault}")
    raise CseError(
        "\n".join(["no usable checkpoint:", *faults]),
        "start a new run without --resume",
        code="training.no_usable_checkpoint",
    )


def _fault(path: Path, method: Method) -> str | None:
    """Return why a checkpoint cannot be used, or None."""
    if (fault := damage(path)) is not None:
        return fault
    try:
        content = load(path, mapped=True)
        weights, run, best = content["method"], content["run"], content["selection"]["step"]
    except Exception as error:  # a file of another program
        return f"is not a checkpoint of a run: {error}"
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
    """Return the weights and buffers of a method without frozen components, which are loaded by name."""
    frozen = tuple(
        f"{prefix}."
        for prefix, module in method.named_modules()
        if isinstance(module, Component) and not module.stateful
    )
    return {key: value for key, value in method.state_dict().items() if not key.startswith(frozen)}


def state_digest(state: dict[str, Any]) -> str:
    """Return the SHA-256 of weights. It is equal if and only if all bits are equal."""
    digest = hashlib.sha256()
    for key in sorted(state):
        digest.update(key.encode())
        digest.update(state[key].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def load_method_state(method: Method, state: Mapping[str, Any]) -> None:
    """Load the output of `method_state`."""
    nn.Module.load_state_dict(method, dict(state), strict=False)


def dropout_seed(seed: int, rank: int, step: int = 0) -> int:
    """Return the dropout seed of a process. Rank 0 uses the seed of the run."""
    if rank == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed}:{rank}:{step}".encode()).digest()[:7])


def random_state() -> dict[str, Any]:
    """Return the state of every random generator that a component may use."""
    kind, words, position, has_gauss, gauss = np.random.get_state()
    version, internal, gauss_next = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "accelerators": random_states(),
        "numpy": [str(kind), torch.from_numpy(np.asarray(words).astype(np.int64)), int(position), int(has_gauss),
                  float(gauss)],
        "python": [version, list(internal), gauss_next],
    }  # fmt: skip


def set_random_state(state: Mapping[str, Any]) -> None:
    """Restore every random generator."""
    torch.set_rng_state(state["torch"])
    set_random_states(state["accelerators"])
    kind, words, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, words.numpy().astype(np.uint32), position, has_gauss, gauss))
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal), gauss_next))


@dataclass
class Selection:
    """Best state so far.

    Each step has its own file in `folder`, so a checkpoint never refers to a later state. `before` is the step of the
    best state at the last checkpoint, which the previous checkpoint needs.
    """

    folder: Path
    step: int | None = None
    score: float | None = None
    curve: dict[int, float] = field(default_factory=dict)
    before: int | None = None

    @property
    def evaluations_since_best(self) -> int:
        """Number of scores after the best one, without that of the untrained state."""
        return sum(step > (self.step or 0) for step in self.curve)

    @property
    def file(self) -> Path | None:
        """Path of the best state."""
        return None if self.step is None else self._file(self.step)

    def offer(self, step: int, score: float, encoder: Encoder) -> bool:
        """Save the state if its score is the best. A tie keeps the earlier state."""
        if math.isnan(score) or (self.score is not None and score <= self.score):
            return False
        self.step, self.score = step, score
        run_on_rank0(lambda: write(self._file(step), encoder.state_dict()))
        return True

    def restore(self, encoder: Encoder) -> None:
        """Load the best state into `encoder`, if one exists."""
        if (file := self.file) is None:
            return

        def read() -> dict[str, Any]:
            if (fault := damage(file)) is not None:
                raise CseError(
                    f"the best state {file} {fault}",
                    f"resume from the last checkpoint that does not need it: cse run --resume {self.folder.name[:8]}",
                    code="training.damaged_state",
                )
            return load(file)

        encoder.load_state_dict(run_on_rank0(read))

    def delete_others(self) -> None:
        """Delete the states that neither of the two checkpoints needs."""
        kept = {self._file(step) for step in (self.step, self.before) if step is not None}
        self.before = self.step
        for file in self.folder.glob("best-*.pt"):
            if file not in kept:
                file.unlink()

    def _file(self, step: int) -> Path:
        return self.folder / f"best-{step}.pt"


def check_replicas_equal(method: Method, step: int) -> None:
    """Check that weights, momentum copies and the queue are bit-identical on every process."""
    if world_size() == 1:
        return
    # Only the buffers of the queue: running statistics may differ between processes.
    replicated: dict[str, Tensor] = dict(method.named_parameters())
    if method.queue is not None:
        replicated |= {f"queue.{name}": buffer for name, buffer in method.queue.named_buffers()}
    sums = []  # of the bits as integers, which is exact in any order
    for tensor in replicated.values():
        flat = tensor.detach().contiguous().reshape(-1)
        integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
        sums.append(flat.view(integers).sum(dtype=torch.int64))
    everyone = gather_objects(torch.stack(sums).tolist())
    for rank, theirs in enumerate(everyone):
        if theirs != everyone[0]:
            odd = [name for name, a, b in zip(replicated, everyone[0], theirs, strict=False) if a != b]
            raise RunFailedError(
                f"after step {step}, process {rank} no longer has the weights of process 0: {len(odd)} of "
                f"{len(replicated)} tensors differ, among them {odd[0] if odd else 'their number'}",
                "use the same models, data and library versions on every machine, then resume the run",
                code="training.replicas_differ",
            )

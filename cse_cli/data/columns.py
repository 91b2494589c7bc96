"""Columns that generators make, such as translations, in blocks of 2,048 rows.

Each block is a cached file, named after its cells, the generator's code and everything else that decides the result. A
killed process loses only the blocks that it was making, and every text with the same sentences uses them again.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing import get_context, resource_tracker
from pathlib import Path
from typing import Any

import torch

from cse_cli.core import paths
from cse_cli.core.devices import choose
from cse_cli.core.processes import end_with_parent
from cse_cli.core.threads import limit_torch_threads, thread_setting, usable_threads
from cse_cli.data.cache import Facts, damaged, explained_cache_errors, make_file, noted_facts
from cse_cli.recipe.schema import Part
from registry import GENERATORS
from registry.accelerators import is_accelerator, kept_randomness
from registry.errors import RunFailedError
from registry.machinery.code import code_version
from registry.resources import hub
from registry.types import ColumnGenerator

BLOCK = 2048
"""Rows that are made together. A generator can sort them by length."""

Report = Callable[[str, int, int], None]
"""Called with what is done, the number of finished rows and the total number of rows."""


@dataclass(frozen=True)
class Making:
    """Devices and callbacks for making columns."""

    devices: Sequence[str] = ("auto",)
    report: Report | None = None
    warn: Callable[[str], None] | None = None


class ColumnMaker:
    """A generator of a column, with the files that it writes."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.generator = build(part)
        self.source = self.generator.column

    @cached_property
    def key(self) -> str:
        """Digest of everything that decides a cell, apart from the cell that is read."""
        code = code_version(GENERATORS[self.part.name].cls)
        decides = self.generator.identity() or repr(sorted(self.part.params))
        return hashlib.sha256(repr((self.part.name, code, decides)).encode()).hexdigest()[:32]

    def make(self, cells: Sequence[str], making: Making) -> list[str]:
        """Return the cell that is made of each cell, after the blocks that do not exist are made.

        Several devices get one process each. Blank cells stay blank.
        """
        folder, blocks = paths.cache() / "columns" / self.key, list[tuple[Path, Sequence[str]]]()
        for start in range(0, len(cells), BLOCK):
            own = list(cells[start : start + BLOCK])
            digest = hashlib.sha256(repr(own).encode("utf-8", "surrogatepass")).hexdigest()
            blocks.append((folder / f"{digest[:32]}.txt", own))
        missing = {path: block for path, block in blocks if noted_facts(path, warn=True) is None}
        done = len(cells) - sum(map(len, missing.values()))

        def count(more: int) -> None:
            nonlocal done
            done += more
            if making.report is not None:
                making.report(self.generator.action, done, len(cells))

        if self.generator.warning and making.warn is not None:
            making.warn(self.generator.warning)
        limit_torch_threads()
        devices = making.devices[: max(1, len(missing))]
        # Loading a model must not change the training.
        with kept_randomness(choose(devices[0], "fp32").device), explained_cache_errors(paths.cache()):
            if len(devices) == 1:
                writer = _BlockWriter(self.part, devices[0], count)
                for path, block in missing.items():
                    writer.write(path, block)
            else:
                for rows in _in_processes(self.part, missing, devices):
                    count(rows)
        return [cell for path, block in blocks for cell in _read(path, len(block))]


def _read(path: Path, rows: int) -> list[str]:
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")[:-1]
    except UnicodeDecodeError as error:
        raise damaged(path, str(error)) from error
    if len(lines) != rows:
        raise damaged(path, f"it has {len(lines)} lines instead of {rows}")
    return lines


@dataclass
class _BlockWriter:
    """Writer of the files of blocks on a device. `count` receives the number of rows done since its last call."""

    part: Part
    device: str
    count: Callable[[int], None] | None = None
    generator: ColumnGenerator | None = None

    def write(self, path: Path, cells: Sequence[str]) -> int:
        """Write the file of a block, unless another process does it, and return its number of rows."""
        make_file(path, lambda draft: self._made(draft, cells))
        return len(cells)

    def _made(self, path: Path, cells: Sequence[str]) -> Facts:
        if self.generator is None:
            self.generator = build(self.part)
            place(self.generator, self.device)
        distinct = list(dict.fromkeys(cell for cell in cells if cell.strip()))
        lines = dict(zip(distinct, self.generator.make(distinct, self.count), strict=True))
        path.write_text("".join(f"{lines.get(cell, '')}\n" for cell in cells), encoding="utf-8")
        if self.count is not None:
            self.count(len(cells) - len(distinct))
        return {}


def build(part: Part) -> ColumnGenerator:
    """Return the generator of a column."""
    generator = GENERATORS[part.name].build(part.params)
    assert isinstance(generator, ColumnGenerator)  # the recipe was validated
    return generator


def place(generator: ColumnGenerator, device: str) -> None:
    """Move a generator to a device, in bf16 on accelerators that support it.

    On a CPU it is fp32: the column is part of the experiment's identity, which must not depend on the processor.
    """
    own = choose(device, "fp32").device
    half = is_accelerator(own) and choose(device).precision == "bf16"
    generator.use(own, torch.bfloat16 if half else torch.float32)


def in_order(columns: Mapping[str, Part], required: set[str]) -> list[str]:
    """Return the columns to make for the required ones, each after the column that it is made from."""
    found: dict[str, None] = {}

    def add(name: str) -> None:
        if name in columns and name not in found:
            add(str(columns[name].params.get("column", "text")))
            found[name] = None

    for name in sorted(required):
        add(name)
    return list(found)


@dataclass(frozen=True)
class OwnColumns:
    """Columns of a recipe for sentences that are not its training text, such as those of an evaluator."""

    parts: Mapping[str, Part] = field(default_factory=dict)
    making: Making = field(default_factory=Making)

    def added(self, cells: Mapping[str, Sequence[str]], required: set[str]) -> dict[str, Sequence[str]]:
        """Return columns with those that are required, missing and can be made. Each distinct cell is made once."""
        found = dict(cells)
        for name in in_order(self.parts, required - cells.keys()):
            maker = ColumnMaker(self.parts[name])
            distinct = list(dict.fromkeys(found[maker.source]))
            made = dict(zip(distinct, maker.make(distinct, self.making), strict=True))
            found[name] = [made[cell] for cell in found[maker.source]]
        return found


# --- several processes ------------------------------------------------------------------------------------------------


def _in_processes(part: Part, blocks: Mapping[Path, Sequence[str]], devices: Sequence[str]) -> Iterator[int]:
    """Yield the numbers of rows of blocks in the order in which they become available.

    The processes are spawned, because the threads of tokenizers and of torch do not survive a fork. They share the
    cores of this process, and end with it, even if it is killed.
    """
    threads, others = max(1, usable_threads() // len(devices)), multiprocessing.active_children()
    context = get_context("spawn")
    queue = context.SimpleQueue()
    for device in devices:
        queue.put(device)
    pool = ProcessPoolExecutor(len(devices), context, _start_worker, (part, queue, hub.used(), threads))
    try:
        with _interrupts_blocked():
            futures = [pool.submit(_write_block, *block) for block in blocks.items()]
        for future in as_completed(futures):
            yield future.result()
    except BrokenProcessPool as error:
        raise RunFailedError(
            "a worker process was killed, possibly because the machine ran out of memory",
            "run the same command again with a smaller --workers; finished parts are kept",
            code="data.worker_killed",
        ) from error
    except BaseException:
        for process in multiprocessing.active_children():
            if process not in others:
                process.kill()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start processes with Ctrl-C blocked, so that it does not end them with a traceback while they import modules."""
    resource_tracker.ensure_running()  # it would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_worker: list[_BlockWriter] = []
"""Writer of this worker process."""


def _start_worker(part: Part, devices: Any, commits: dict[str, str], threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    end_with_parent()
    os.environ["RAYON_NUM_THREADS"] = str(threads)  # read when the tokenizer is loaded
    if thread_setting() is None:
        torch.set_num_threads(threads)
    hub.pin(commits)
    _worker[:] = [_BlockWriter(part, devices.get())]


def _write_block(path: Path, cells: Sequence[str]) -> int:
    return _worker[0].write(path, cells)

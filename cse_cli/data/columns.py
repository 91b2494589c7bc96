"""Columns that generators make, such as translations, in blocks of 2,048 rows.

Each block is a cached file, named after its cells, the generator's code and everything else that decides the result. A
killed process loses only the blocks that it was making, and every text with the same sentences uses them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from cse_cli.core import paths
from cse_cli.core.devices import choose
from cse_cli.core.threads import limit_torch_threads
from cse_cli.data.cache import Facts, Piece, PieceWriter, damaged, write_pieces
from cse_cli.data.tokens import Column
from cse_cli.recipe.schema import Part
from registry import GENERATORS
from registry.accelerators import is_accelerator, kept_randomness
from registry.machinery.code import code_version
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


class MadeColumn:
    """Column in the files of its blocks.

    All blocks except the last have the same number of rows.
    """

    def __init__(self, blocks: Sequence[Piece]) -> None:
        self.blocks = blocks
        self.rows = sum(len(block.rows) for block in blocks)
        self._open: tuple[Path, list[str]] = (Path(), [])

    def take(self, indices: Sequence[int]) -> list[str]:
        """Return the cells of some rows in the given order."""
        return [self._lines(self.blocks[row // BLOCK])[row % BLOCK] for row in indices]

    def __iter__(self) -> Iterator[str]:
        for block in self.blocks:
            yield from self._lines(block)

    def _lines(self, block: Piece) -> list[str]:
        if self._open[0] != block.path:
            try:
                lines = block.path.read_bytes().decode("utf-8").split("\n")[:-1]
            except UnicodeDecodeError as error:
                raise damaged(block.path, str(error)) from error
            if len(lines) != len(block.rows):
                raise damaged(block.path, f"it has {len(lines)} lines instead of {len(block.rows)}")
            self._open = block.path, lines
        return self._open[1]


Cells = Column[str] | MadeColumn
"""Cells of a column, by row."""


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

    def blocks(self, column: Cells, rows: range) -> list[Piece]:
        """Return the blocks of some rows. Their files may not exist."""
        found, folder = [], paths.cache() / "columns" / self.key
        for start in range(rows.start, rows.stop, BLOCK):
            part = range(start, min(start + BLOCK, rows.stop))
            cells = repr(column.take(part)).encode("utf-8", "surrogatepass")
            found.append(Piece(folder / f"{hashlib.sha256(cells).hexdigest()[:32]}.txt", part))
        return found

    def make(self, column: Cells, rows: range, making: Making) -> MadeColumn:
        """Return the made column of some rows, after the blocks that do not exist are made.

        Several devices get one process each. Blank cells stay blank.
        """
        blocks = self.blocks(column, rows)
        devices = making.devices
        if self.generator.warning and making.warn is not None:
            making.warn(self.generator.warning)
        place = choose(devices[0], "fp32").device
        limit_torch_threads()
        writer = _BlockWriter(column, self.part, devices[0])
        if len(devices) > 1:
            writer.queue = get_context("spawn").SimpleQueue()
            for device in devices:
                writer.queue.put(device)
        action, report = self.generator.action, making.report
        progress = None if report is None else lambda done, total: report(action, done, total)
        with kept_randomness(place):  # loading a model must not change the training
            write_pieces(writer, blocks, len(rows), len(devices), "--workers", progress)
        return MadeColumn(blocks)


@dataclass
class _BlockWriter(PieceWriter):
    """Writer of the files of blocks. Each process takes its device from `queue`, and builds its own generator."""

    column: Cells
    part: Part
    device: str
    queue: Any = None
    generator: ColumnGenerator | None = field(default=None, init=False)

    def write(self, rows: range, path: Path) -> Facts:
        if self.generator is None:
            self.generator = build(self.part)
            place(self.generator, self.queue.get() if self.queue is not None else self.device)
            self.queue = None
        cells = self.column.take(rows)
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
        import datasets

        found = dict(cells)
        for name in in_order(self.parts, required - cells.keys()):
            maker = ColumnMaker(self.parts[name])
            distinct = list(dict.fromkeys(found[maker.source]))
            column: Column[str] = Column([datasets.Dataset.from_dict({"cells": distinct})])
            made = dict(zip(distinct, maker.make(column, range(len(distinct)), self.making), strict=True))
            found[name] = [made[cell] for cell in found[maker.source]]
        return found

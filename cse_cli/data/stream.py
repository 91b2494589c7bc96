"""Training text that is read during training, shard by shard: it need not fit on a disk, and nothing waits for tokens.

Each process reads its own shards, or every n-th row where shards cannot be shared evenly. The order of shards depends
on seed and epoch; rows are shuffled in blocks of `shuffle_buffer`. A checkpoint keeps the place at which the current
block begins, and how much of it was used: the block is read and shuffled again, so that a resumed run sees what an
unbroken one does. (The shuffle buffer of `datasets` is refilled with other rows at a resume.)

Shards are not shared out further, to loader processes: batches would depend on their number, and there is little to
gain. 64 sentences take 9 ms of processor time for SimCSE, 18 ms for ESimCSE (Wikipedia, 32 tokens, one thread): 1.1 %
and 1.7 % of a CPU step with mini_en in the same process. On a GPU they are made in a thread meanwhile (`Feed`), and
most of it is the tokenizer's, which uses all cores by itself: one thread alone feeds 7,000 sentences a second.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from cse_cli.core.digests import remembered
from cse_cli.data.batches import BatchSource, ViewPlan, derive_seed, permuted
from cse_cli.data.files import TextFiles, read_guarded, without_blanks
from cse_cli.data.sources import named_parts, require_columns
from cse_cli.recipe.schema import Data
from registry.errors import CseError
from registry.model_files import sha256_of
from registry.repository import cache_folder
from registry.tokens import Tokens, Vocabulary
from registry.types import Batch

BUFFER = 10_000
"""Rows of a block, where the recipe does not say."""


@dataclass(frozen=True)
class StreamedText:
    """Text whose number of rows is not known.

    Args:
        files: Its shards, with the columns asked for.
        digests: Name → digest of the shards: of the content of local files, which are read once for it and then only
            if they change, and of the commit of files of the hub.
        buffer: Rows shuffled at a time.
    """

    files: TextFiles
    digests: dict[str, str]
    buffer: int = BUFFER
    rows: None = None
    notices: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns asked for."""
        return tuple(self.files.columns)

    @property
    def fingerprint(self) -> str:
        """Digest of the shards and of the columns."""
        return hashlib.sha256(repr((list(self.digests.values()), self.columns)).encode()).hexdigest()


def open_stream(data: Data, columns: set[str]) -> StreamedText:
    """Return the text that a recipe streams; of local files the first lines are read, of those of the hub nothing.

    Raises:
        CseError: It is not in files that can be streamed, they differ in format or columns, or a column is not there.
        MissingError: A data set is not on this machine and the hub does not answer.
    """
    wanted = tuple(sorted(columns))
    found: list[TextFiles] = []
    digests = {}
    for part in named_parts(data):
        require_columns(data, part, wanted)
        if part.files is None or part.files.format == "csv":
            raise CseError(
                f"'{part.name}' cannot be streamed: it is not a .parquet, .jsonl, .tsv or .txt file",
                "leave out data.streaming, or write it as Parquet",
            )
        found.append(part.files.require(wanted))
        digests[part.name] = _digest(found[-1].paths)
    first = found[0]
    for other in found:
        if replace(other, paths=()) != replace(first, paths=()):
            raise CseError("what is streamed together must be of one format, with the same columns", "name one of them")
    files = replace(first, paths=tuple(path for each in found for path in each.paths))
    return StreamedText(files, digests, data.shuffle_buffer or BUFFER)


def _digest(paths: Sequence[Path | str]) -> str:
    """Return a digest of shards, in their order: of the hub their addresses at a commit, of local files the content."""
    addresses = [path if isinstance(path, str) else _address(path) for path in paths]
    local = [Path(path) for path, address in zip(paths, addresses, strict=True) if address is None]
    content = remembered("shards", local, lambda: " ".join(map(sha256_of, local))) if local else ""
    return hashlib.sha256(repr((addresses, content)).encode()).hexdigest()


def _address(path: Path) -> str | None:
    """Return the address on the hub of a file in the hub's cache, as a stream of files that are not here has it."""
    folder = cache_folder()
    if not path.is_relative_to(folder):
        return None
    repository, _, commit, *name = path.relative_to(folder).parts
    return f"hf://datasets/{repository.removeprefix('datasets--').replace('--', '/')}@{commit}/{'/'.join(name)}"


@dataclass(frozen=True)
class _Place:
    """Where a process is in its stream.

    Args:
        epoch: From 0.
        block: Number of the block in the epoch.
        start: State of the `IterableDataset` before that block; None is the epoch's beginning.
        used: Rows of the shuffled block that are done with.
    """

    epoch: int = 0
    block: int = 0
    start: dict[str, Any] | None = None
    used: int = 0


@dataclass(frozen=True)
class _Block:
    """Rows read together, and the order in which they are used."""

    number: int
    start: dict[str, Any]
    table: Any
    order: Any

    def take(self, start: int, stop: int) -> dict[str, list[str]]:
        """Return rows of the shuffled block, column → cells."""
        cells: dict[str, list[str]] = self.table.take(self.order[start:stop]).to_pydict()
        return cells


@dataclass
class Stream(BatchSource[StreamedText]):
    """Batches in the order in which their rows are read.

    An epoch of a process is all rows of its shards; what does not fill its last batch is left out of that epoch.
    """

    _next: int = field(default=0, init=False)
    _place: _Place = field(init=False)
    _blocks: Iterator[_Block] = field(init=False)
    _block: _Block | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._go_to(0, _Place())

    def batch(self, step: int) -> Batch:
        """Return view → tokens of the step that comes next; of step 0 at any time, which starts anew.

        Raises:
            CseError: There is too little data for a batch, or a row is malformed.
        """
        if step == 0 and self._next:
            self._go_to(0, _Place())
        if step != self._next:
            raise ValueError(f"a stream is at step {self._next}, not {step}")
        cells = self._draw()
        self._next += 1
        known: dict[tuple[str, str], Tokens] = {}

        def tokens(column: str, vocabulary: Vocabulary) -> Tokens:
            key = column, vocabulary.fingerprint
            if key not in known:
                known[key] = vocabulary.pad(vocabulary.ids(cells[column], self.max_length))
            return known[key]

        def changed(name: str, plan: ViewPlan) -> Tokens:
            own, alike = (Random(f"{self.seed}:{step}:{part}:{self.rank}") for part in (name, ""))
            return plan.vocabulary.assemble(plan.pieces(cells[plan.column], own, alike, self.max_length))

        return self._views(tokens, changed)

    def state(self) -> dict[str, Any]:
        """Return where the next batch begins, for a checkpoint."""
        return {"step": self._next, **vars(self._place), "shards": self.text.fingerprint}

    def load_state(self, step: int, states: Sequence[Any]) -> None:
        """Go on where processes stopped.

        Args:
            step: Steps done.
            states: What `state` returned in each process, by rank.

        Raises:
            CseError: Their number or the shards have changed.
        """
        if len(states) != self.world:
            raise CseError(
                f"the run was streamed by {len(states)} processes and cannot go on with {self.world}: each has a place "
                "in its own shards",
                f"use {len(states)} processes, or start anew",
            )
        state = states[self.rank]
        if state["shards"] != self.text.fingerprint:
            raise CseError("the shards are not those that the run began with", "put them back, or start anew")
        if state["step"] != step:
            raise CseError(f"the checkpoint of step {step} has the stream at step {state['step']}", "start anew")
        self._go_to(step, _Place(state["epoch"], state["block"], state["start"], state["used"]))

    def rows(self, epoch: int) -> Iterator[dict[str, list[str]]]:
        """Yield this process's rows of an epoch in their order, block by block."""
        for block in self._read(_Place(epoch)):
            yield block.take(0, len(block.table))

    def _go_to(self, step: int, place: _Place) -> None:
        self._next, self._place, self._block = step, place, None
        self._blocks = self._read(place)

    def _draw(self) -> dict[str, list[str]]:
        """Return the next rows of this process, column → cells."""
        began, empty = self._place.epoch, self._place.block == 0 and self._place.used == 0
        drawn: dict[str, list[str]] = {name: [] for name in self.text.columns}
        while (lacking := self.share - len(next(iter(drawn.values())))) > 0:
            if self._block is None and not self._next_block():
                if empty or self._place.epoch > began:
                    raise self._too_little()
                drawn = {name: [] for name in drawn}
                self._go_to(self._next, _Place(self._place.epoch + 1))
            elif self._block is not None:
                stop = min(self._place.used + lacking, len(self._block.table))
                for name, cells in self._block.take(self._place.used, stop).items():
                    drawn[name] += cells
                self._place = replace(self._place, used=stop)
                if stop == len(self._block.table):
                    self._block = None
        return drawn

    def _next_block(self) -> bool:
        """Read the next block; return whether the epoch has one."""
        self._block = next(self._blocks, None)
        if self._block is None:
            return False
        used = self._place.used if self._place.block == self._block.number else 0
        self._place = _Place(self._place.epoch, self._block.number, self._block.start, used)
        return True

    def _too_little(self) -> CseError:
        own = "" if self.world == 1 else f" in each of {self.world} processes"
        return CseError(
            f"{', '.join(self.text.digests)}: fewer than {self.share} sentences{own} to stream",
            "lower train.batch_size, or use more data",
        )

    def _read(self, place: _Place) -> Iterator[_Block]:
        """Yield shuffled blocks of an epoch, from a place on."""
        from datasets.distributed import split_dataset_by_node

        files = self.text.files
        where = str(files.paths[0])
        if len(files.paths) > 1:
            where = f"one of {len(files.paths)} shards such as {where}"
        order = permuted(np.arange(len(files.paths)), len(files.paths), derive_seed(self.seed, place.epoch))
        shards = files.stream([files.paths[index] for index in order])
        if self.world > 1:
            shards = split_dataset_by_node(shards, self.rank, self.world)
        if place.start is not None:
            shards.load_state_dict(place.start)
        start, number = place.start or shards.state_dict(), place.block
        tables = shards.iter(self.text.buffer)
        while (raw := read_guarded(where, lambda: next(tables, None))) is not None:
            table = without_blanks(files.clean(raw, where)).combine_chunks()
            key = derive_seed(self.seed, place.epoch, self.rank, number)
            yield _Block(number, start, table, permuted(np.arange(len(table)), len(table), key))
            start, number = shards.state_dict(), number + 1

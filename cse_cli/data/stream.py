"""Training text that is read during training, shard by shard, without a copy on disk.

Each process reads its own shards, or every n-th row if the shards cannot be divided evenly. The order of shards
depends on seed and epoch. Rows are shuffled in blocks of `shuffle_buffer`. A checkpoint contains the position before
the current block and the number of rows used from it. A resumed run reads and shuffles the block again, so that it has
the same batches as an uninterrupted run. (`datasets` refills its shuffle buffer with other rows after a resume.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from cse_cli.core.digests import remembered
from cse_cli.data.batches import BatchSource, ViewPlan, as_numbers
from cse_cli.data.files import TextFiles, without_blanks
from cse_cli.data.sampler import random_order
from cse_cli.data.sources import check_columns, find_parts
from cse_cli.recipe.schema import Data
from registry.errors import CseError
from registry.resources.catalog.hub_sets import read_guarded
from registry.resources.model_files import sha256_of
from registry.resources.repository import cache_folder
from registry.tokens import Tokens, Vocabulary
from registry.types import Batch

BUFFER = 10_000
"""Default number of rows of a block."""


@dataclass(frozen=True)
class StreamedText:
    """Text with an unknown number of rows.

    Args:
        digests: Digest of the shards by name: of the content of local files, and of the commit of files of the Hub.
        buffer: Number of rows that are shuffled together.
    """

    files: TextFiles
    digests: dict[str, str]
    buffer: int = BUFFER
    rows: None = None
    notices: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.files.columns)

    @property
    def fingerprint(self) -> str:
        """Digest of the shards and of the columns."""
        return hashlib.sha256(repr((list(self.digests.values()), self.columns)).encode()).hexdigest()


def open_stream(data: Data, columns: set[str]) -> StreamedText:
    """Return the text that a recipe streams. Files of the Hub are not read.

    Raises:
        CseError: If the files cannot be streamed, differ in format or columns, or a column does not exist.
        MissingError: If a data set is not on this machine and the Hub does not respond.
    """
    wanted = tuple(sorted(columns))
    found: list[TextFiles] = []
    digests = {}
    for part in find_parts(data):
        check_columns(data, part, wanted)
        if part.files is None or part.files.format == "csv":
            raise CseError(
                f"'{part.name}' cannot be streamed because it is not a .parquet, .jsonl, .tsv or .txt file",
                "remove data.streaming, or convert the text to Parquet",
                code="data.not_streamable",
            )
        found.append(part.files.select(wanted))
        digests[part.name] = _digest(found[-1].paths)
    first = found[0]
    for other in found:
        if replace(other, paths=()) != replace(first, paths=()):
            raise CseError(
                f"'{first.paths[0]}' and '{other.paths[0]}' differ in format or columns",
                "stream only one of them",
                code="data.mixed_formats",
            )
    files = replace(first, paths=tuple(path for each in found for path in each.paths))
    return StreamedText(files, digests, data.shuffle_buffer or BUFFER)


def _digest(paths: Sequence[Path | str]) -> str:
    """Return a digest of the addresses of files of the Hub, and of the content of local files."""
    addresses = [path if isinstance(path, str) else _address(path) for path in paths]
    local = [Path(path) for path, address in zip(paths, addresses, strict=True) if address is None]
    content = remembered("shards", local, lambda: " ".join(map(sha256_of, local))) if local else ""
    return hashlib.sha256(repr((addresses, content)).encode()).hexdigest()


def _address(path: Path) -> str | None:
    """Return the address on the Hub of a file in its cache, or None for another file."""
    folder = cache_folder()
    if not path.is_relative_to(folder):
        return None
    repository, _, commit, *name = path.relative_to(folder).parts
    return f"hf://datasets/{repository.removeprefix('datasets--').replace('--', '/')}@{commit}/{'/'.join(name)}"


@dataclass(frozen=True)
class _Place:
    """Position of a process in its stream.

    Args:
        block: Number of the block in the epoch.
        start: State of the `IterableDataset` before that block. None means the start of the epoch.
        used: Number of used rows of the shuffled block.
    """

    epoch: int = 0
    block: int = 0
    start: dict[str, Any] | None = None
    used: int = 0


@dataclass(frozen=True)
class _Block:
    """Rows that are shuffled together, and their order."""

    number: int
    start: dict[str, Any]
    table: Any
    order: Any

    def take(self, start: int, stop: int) -> dict[str, list[str]]:
        """Return the cells of some rows of the shuffled block, by column."""
        cells: dict[str, list[str]] = self.table.take(self.order[start:stop]).to_pydict()
        return cells


@dataclass
class Stream(BatchSource[StreamedText]):
    """Batches in the order in which their rows are read.

    An epoch of a process has all rows of its shards. An incomplete last batch is dropped.
    """

    _next: int = field(default=0, init=False)
    _place: _Place = field(init=False)
    _blocks: Iterator[_Block] = field(init=False)
    _block: _Block | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._go_to(0, _Place())

    def batch(self, step: int) -> Batch:
        """Return the tokens of each view for the next step. Step 0 restarts the stream.

        Raises:
            CseError: If the data has fewer rows than a batch, or a row is malformed.
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
            own, shared = (Random(f"{self.seed}:{step}:{part}:{self.rank}") for part in (name, ""))
            return plan.vocabulary.assemble(plan.pieces(cells[plan.column], own, shared, self.max_length))

        return self._views(tokens, changed, lambda column: as_numbers(column, cells[column]))

    def state(self) -> dict[str, Any]:
        """Return the position of the next batch, for a checkpoint."""
        return {"step": self._next, **vars(self._place), "shards": self.text.fingerprint}

    def load_state(self, step: int, states: Sequence[Any]) -> None:
        """Restore the position. Raise `CseError` if the number of processes or the shards have changed."""
        if len(states) != self.world:
            raise CseError(
                f"cannot resume with {self.world} processes: the data stream was split across {len(states)}",
                f"use {len(states)} processes, or start a new run",
                code="data.other_process_count",
            )
        state = states[self.rank]
        if state["shards"] != self.text.fingerprint:
            raise CseError(
                f"cannot resume: the content of {', '.join(self.text.digests)} has changed",
                "restore the files, or start a new run",
                code="data.changed_shards",
            )
        if state["step"] != step:
            raise CseError(
                f"the checkpoint of step {step} contains the stream's position at step {state['step']}",
                "start a new run",
                code="data.other_step",
            )
        self._go_to(step, _Place(state["epoch"], state["block"], state["start"], state["used"]))

    def rows(self, epoch: int) -> Iterator[dict[str, list[str]]]:
        """Yield the rows of this process in an epoch, block by block."""
        for block in self._read(_Place(epoch)):
            yield block.take(0, len(block.order))

    def _go_to(self, step: int, place: _Place) -> None:
        self._next, self._place, self._block = step, place, None
        self._blocks = self._read(place)

    def _draw(self) -> dict[str, list[str]]:
        """Return the cells of the next rows of this process, by column."""
        began, empty = self._place.epoch, self._place.block == 0 and self._place.used == 0
        drawn: dict[str, list[str]] = {name: [] for name in self.text.columns}
        while (lacking := self.share - len(next(iter(drawn.values())))) > 0:
            if self._block is None and not self._next_block():
                if empty or self._place.epoch > began:
                    raise CseError(
                        f"{', '.join(self.text.digests)}: fewer than {self.share} sentences for each of {self.world} "
                        "processes",
                        "use a smaller train.batch_size, or more data",
                        code="data.too_few_sentences",
                    )
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
        """Read the next block. Return whether the epoch has one."""
        self._block = next(self._blocks, None)
        if self._block is None:
            return False
        used = self._place.used if self._place.block == self._block.number else 0
        self._place = _Place(self._place.epoch, self._block.number, self._block.start, used)
        return True

    def _read(self, place: _Place) -> Iterator[_Block]:
        """Yield the shuffled blocks of an epoch from a position on."""
        from datasets.distributed import split_dataset_by_node

        files = self.text.files
        where = str(files.paths[0])
        if len(files.paths) > 1:
            where = f"one of {len(files.paths)} shards such as {where}"
        order = random_order(len(files.paths), self.seed, place.epoch).tolist()
        shards = files.stream([files.paths[index] for index in order])
        if self.world > 1:
            shards = split_dataset_by_node(shards, self.rank, self.world)
        if place.start is not None:
            shards.load_state_dict(place.start)
        start, number = place.start or shards.state_dict(), place.block
        tables = shards.iter(self.text.buffer)
        while (raw := read_guarded(where, lambda: next(tables, None))) is not None:
            table = without_blanks(files.clean(raw, where)).combine_chunks()
            yield _Block(
                number, start, table, random_order(len(table), self.seed, place.epoch, self.rank, number).numpy()
            )
            start, number = shards.state_dict(), number + 1

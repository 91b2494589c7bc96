"""Translation of a column into a `.tsv` with the columns `text` and `translation`, in blocks of 2,048 rows.

Each block is a cached file. A killed process loses only the blocks that it was translating.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from cse_cli.core import paths
from cse_cli.core.devices import choose, limit_torch_threads, worker_devices
from cse_cli.data.cache import Facts, Piece, PieceWriter, Progress, explained_cache_errors, write_pieces
from cse_cli.data.sources import open_text
from cse_cli.data.tokens import Column
from cse_cli.data.translator import TranslationSettings, Translator
from cse_cli.recipe.schema import Data
from registry.errors import CseError
from registry.paths import expand_user
from registry.resources import catalog

BLOCK = 2048
"""Rows that are sorted by length and written together."""

_FILE = re.compile(r"[*?\[\]/]|\.(txt|tsv|csv|json|jsonl|parquet)(\.gz)?$")


@dataclass(frozen=True)
class TranslationRequest:
    """Text to translate, translator and output, as in the options of `cse data translate`.

    `shard` (i, n) selects the i-th of n equal parts of the rows, counted from 1.
    """

    source: str
    settings: TranslationSettings
    output: str | None = None
    split: str = "train"
    column: str = "text"
    limit: int | None = None
    shard: tuple[int, int] = (1, 1)
    batch_tokens: int | None = None
    device: str = "auto"
    workers: int | None = None


@dataclass(frozen=True)
class Translation:
    """Result of a translation.

    Args:
        output: Path of the `.tsv` with the header `text<TAB>translation`.
        rows: Number of rows.
        reused: Number of rows that were blank, repeated in their block, or translated before.
        file: Value for `[data] file` of a recipe: the output, or a glob of all shards.
    """

    output: Path
    rows: int
    reused: int
    file: str


def translate_text(request: TranslationRequest, progress: Progress, warn: Callable[[str], None]) -> Translation:
    """Translate a column of a text into a file. `warn` is called with a warning of the translator.

    Raises:
        CseError: If the text, the model or a language cannot be used, or a file cannot be written.
    """
    output = output_path(request)
    settings = replace(request.settings, source=request.settings.source or source_language(request))
    devices = worker_devices(request.device, request.workers)
    translator = Translator(settings, devices[0], request.batch_tokens)
    if len(devices) == 1:
        choose(devices[0])
    limit_torch_threads()
    if translator.instruction.warning:
        warn(translator.instruction.warning)
    column, rows = open_column(request)
    made = write_translation(column, rows, translator, output, progress, devices)
    if request.shard[1] == 1:
        return made
    return replace(made, file=re.sub(r"\.\d+(-of-\d+\.tsv)$", r".*\1", str(output)))


def write_translation(
    column: Column[str],
    rows: range,
    translator: Translator,
    output: Path,
    progress: Progress | None = None,
    devices: Sequence[str] = ("auto",),
) -> Translation:
    """Translate some rows of a column into a file, which is written atomically."""
    blocks, sent = _make_blocks(column, rows, translator, devices, progress)
    draft = output.with_name(f"tmp-{output.name}")
    with explained_cache_errors(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("w", encoding="utf-8", newline="") as file:
                file.write("text\ttranslation\n")
                for block in blocks:
                    for sentence, line in zip(column.take(block.rows), _lines(block), strict=True):
                        file.write(f"{_one_cell(sentence)}\t{_one_cell(line)}\n")
            draft.replace(output)
        finally:
            draft.unlink(missing_ok=True)
    return Translation(output, len(rows), len(rows) - sent, str(output))


def translate(
    column: Column[str],
    rows: range,
    translator: Translator,
    devices: Sequence[str] = ("auto",),
    progress: Progress | None = None,
) -> Iterator[str]:
    """Yield the translation of each row, and "" for a blank row. Blocks that were translated before are reused.

    Several devices get one process each.
    """
    blocks, _ = _make_blocks(column, rows, translator, devices, progress)
    for block in blocks:
        yield from _lines(block)


def _one_cell(line: str) -> str:
    """Return a string without the characters that end a cell of a `.tsv`."""
    return re.sub(r"[\t\r\n]", " ", line)


def _make_blocks(
    column: Column[str],
    rows: range,
    translator: Translator,
    devices: Sequence[str],
    progress: Progress | None,
) -> tuple[list[Piece], int]:
    """Return the blocks of some rows, and the number of sentences that were translated for them now."""
    blocks = list(_cut_blocks(column, rows, translator.identity))
    writer = _BlockWriter(column, translator)
    if len(devices) > 1:
        writer.devices = get_context("spawn").SimpleQueue()
        for device in devices:
            writer.devices.put(device)
    made = write_pieces(writer, blocks, len(rows), len(devices), "--workers", progress)
    return blocks, sum(facts["sent"] for facts in made)


def _cut_blocks(column: Column[str], rows: range, identity: str) -> Iterator[Piece]:
    """Yield the blocks of some rows. Their files are named after translator and sentences."""
    directory = paths.cache() / "translations" / hashlib.sha256(identity.encode()).hexdigest()[:32]
    for start in range(rows.start, rows.stop, BLOCK):
        part = range(start, min(start + BLOCK, rows.stop))
        key = hashlib.sha256(repr(column.take(part)).encode("utf-8", "surrogatepass")).hexdigest()[:32]
        yield Piece(directory / f"{key}.txt", part)


def _lines(block: Piece) -> list[str]:
    """Return the translations of a block. Its file contains one per line."""
    return block.path.read_text(encoding="utf-8").split("\n")[:-1]


@dataclass
class _BlockWriter(PieceWriter):
    """Writer of the files of blocks. Each process takes its device from the queue `devices`."""

    column: Column[str]
    translator: Translator
    devices: Any = None

    def write(self, rows: range, path: Path) -> Facts:
        if self.devices is not None:
            self.translator.device, self.devices = self.devices.get(), None
        sentences = self.column.take(rows)
        distinct = list(dict.fromkeys(sentence for sentence in sentences if sentence.strip()))
        lines = dict(zip(distinct, self.translator.translate(distinct, self.count), strict=True))
        path.write_text("".join(f"{lines.get(sentence, '')}\n" for sentence in sentences), encoding="utf-8")
        if self.count is not None:
            self.count(len(sentences) - len(distinct))
        return {"sent": len(distinct)}


def is_dataset_name(source: str) -> bool:
    """Return whether a source is the name of a data set, not a file, directory or glob."""
    if source.startswith("hf:") or source in catalog.names():
        return True
    return not (_FILE.search(source) or expand_user(Path(source)).exists())


def source_language(request: TranslationRequest) -> str | None:
    """Return the language of the column according to the catalog, or None if the text is not in the catalog."""
    if not is_dataset_name(request.source) or request.source.startswith("hf:"):
        return None
    languages = catalog.entry(request.source).language.split("-")  # "en-de" for `text` and `translation`
    return languages[-1] if request.column == "translation" else languages[0]


def open_column(request: TranslationRequest) -> tuple[Column[str], range]:
    """Return the column to translate, and the rows of the shard."""
    if is_dataset_name(request.source):
        data = Data(dataset=(request.source,), split=request.split, limit=request.limit)
    else:
        data = Data(file=str(expand_user(Path(request.source)).absolute()), limit=request.limit)
    text = open_text(data, {request.column})
    number, shards = request.shard
    if text.rows < shards:
        raise CseError(
            f"--shard: {text.rows} rows cannot be divided into {shards} shards",
            f"use at most {text.rows} shards",
            code="data.too_many_shards",
        )
    unit = BLOCK if text.rows >= BLOCK * shards else 1  # shards and the whole then have the same blocks
    units = text.rows // unit
    stop = text.rows if number == shards else units * number // shards * unit
    return text.sentences(request.column), range(units * (number - 1) // shards * unit, stop)


def parse_shard(value: str | None) -> tuple[int, int]:
    """Return (i, n) for "i/n", with i from 1 to n."""
    match = re.fullmatch(r"(\d+)/(\d+)", value or "1/1")
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise CseError(
            f"--shard: '{value}' is not a shard", "use i/n with i from 1 to n, for example 1/4", code="data.bad_shard"
        )
    return int(match[1]), int(match[2])


def output_path(request: TranslationRequest) -> Path:
    """Return the path of the output. A path given by the user must be new and end with .tsv."""
    if request.output is None:
        parts = [_stem(request.source), "" if request.split == "train" else request.split]
        parts += ["" if request.column == "text" else request.column, Path(request.settings.model).name]
        parts += [request.settings.target or ""]
        name = ".".join(re.sub(r"[^\w.-]+", "-", part).strip("-") for part in parts if part)
        return _shard_path(paths.home() / "translations" / f"{name}.tsv", request.shard)
    given = expand_user(Path(request.output)).absolute()
    if not given.name.endswith(".tsv"):
        raise CseError(
            f"--output: '{given.name}' does not end with .tsv", "add this ending", code="data.output_not_tsv"
        )
    path = _shard_path(given, request.shard)
    if path.exists():
        raise CseError(f"--output: '{path}' exists", "move it, or use another name", code="data.output_exists")
    return path


def _stem(source: str) -> str:
    """Return the name of a source without directories and ending. A glob has the name of its directory."""
    path = Path(source.removeprefix("hf:"))
    while re.search(r"[*?\[]", path.name):
        path = path.parent
    return _FILE.sub("", path.name or "text")


def _shard_path(path: Path, shard: tuple[int, int]) -> Path:
    """Return the path of a shard. All numbers have the same number of digits, so that a glob sorts them."""
    number, shards = shard
    digits = len(str(shards))
    return path if shards == 1 else path.with_name(f"{path.stem}.{number:0{digits}}-of-{shards}.tsv")

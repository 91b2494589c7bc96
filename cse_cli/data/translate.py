"""Translation of a column into a `.tsv` by hand, with the generator `translate`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cse_cli.core import paths
from cse_cli.core.devices import worker_devices
from cse_cli.data.cache import explained_cache_errors
from cse_cli.data.columns import BLOCK, Cells, ColumnMaker, Making
from cse_cli.data.sources import open_text
from cse_cli.recipe.schema import Data, Part
from registry.errors import CseError
from registry.paths import expand_user
from registry.resources import catalog

_FILE = re.compile(r"[*?\[\]/]|\.(txt|tsv|csv|json|jsonl|parquet)(\.gz)?$")


@dataclass(frozen=True)
class TranslationRequest:
    """Text to translate, parameters of the generator `translate`, and output, as in `cse data translate`.

    `shard` (i, n) selects the i-th of n equal parts of the rows, counted from 1.
    """

    text: str
    params: Mapping[str, Any]
    output: str | None = None
    split: str = "train"
    limit: int | None = None
    shard: tuple[int, int] = (1, 1)
    device: str = "auto"
    workers: int | None = None

    @property
    def column(self) -> str:
        """Column that is translated."""
        return str(self.params.get("column", "text"))


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


def translate_text(request: TranslationRequest, making: Making) -> Translation:
    """Translate a column of a text into a file.

    Raises:
        CseError: If the text, the model or a language cannot be used, or a file cannot be written.
    """
    output = output_path(request)
    params = {**request.params, "source": request.params.get("source") or source_language(request)}
    maker = ColumnMaker(Part(name="translate", params=params))
    making = replace(making, devices=worker_devices(request.device, request.workers))
    made = write_translation(*open_column(request), maker, output, making)
    if request.shard[1] == 1:
        return made
    return replace(made, file=re.sub(r"\.\d+(-of-\d+\.tsv)$", r".*\1", str(output)))


def write_translation(
    column: Cells, rows: range, maker: ColumnMaker, output: Path, making: Making | None = None
) -> Translation:
    """Translate some rows of a column into a file, which is written atomically."""
    made = maker.make(column, rows, making or Making())
    draft = output.with_name(f"tmp-{output.name}")
    with explained_cache_errors(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("w", encoding="utf-8", newline="") as file:
                file.write("text\ttranslation\n")
                for row, line in zip(rows, made, strict=True):
                    file.write(f"{_one_cell(column.take([row])[0])}\t{_one_cell(line)}\n")
            draft.replace(output)
        finally:
            draft.unlink(missing_ok=True)
    return Translation(output, len(rows), len(rows) - made.made, str(output))


def _one_cell(line: str) -> str:
    """Return a string without the characters that end a cell of a `.tsv`."""
    return re.sub(r"[\t\r\n]", " ", line)


def is_dataset_name(source: str) -> bool:
    """Return whether a source is the name of a data set, not a file, directory or glob."""
    if source.startswith("hf:") or source in catalog.names():
        return True
    return not (_FILE.search(source) or expand_user(Path(source)).exists())


def data_of(source: str, split: str = "train", limit: int | None = None) -> Data:
    """Return the `[data]` section for a source in a command: a data set, a file, a directory or a glob."""
    if is_dataset_name(source):
        return Data(dataset=(source,), split=split, limit=limit)
    return Data(file=str(expand_user(Path(source)).absolute()), limit=limit)


def source_language(request: TranslationRequest) -> str | None:
    """Return the language of the column according to the catalog, or None if the text is not in the catalog."""
    if not is_dataset_name(request.text) or request.text.startswith("hf:"):
        return None
    languages = catalog.entry(request.text).language.split("-")  # "en-de" for `text` and `translation`
    return languages[-1] if request.column == "translation" else languages[0]


def open_column(request: TranslationRequest) -> tuple[Cells, range]:
    """Return the column to translate, and the rows of the shard."""
    text = open_text(data_of(request.text, request.split, request.limit), {request.column})
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
        parts = [_stem(request.text), "" if request.split == "train" else request.split]
        parts += ["" if request.column == "text" else request.column, Path(request.params["model"]).name]
        parts += [request.params.get("to") or ""]
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

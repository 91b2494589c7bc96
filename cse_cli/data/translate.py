"""A column translated into a parallel file: line i translates row i; a translation that was stopped goes on."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from cse_cli.core import paths
from cse_cli.core.devices import choose, limit_torch_threads, worker_devices
from cse_cli.data.sources import Text, open_text
from cse_cli.data.tokens import Progress
from cse_cli.data.translation_store import Store
from cse_cli.data.translator import Batch, Settings, Translator, Workers
from cse_cli.recipe.schema import Data
from registry import catalogue
from registry.errors import CseError, DiskError
from registry.paths import expand_user, make_folder, no_room

WINDOW = 4096
"""Sentences that are sorted by length together."""

HEADER = "text\ttranslation\n"
_READ = 1000
_FILE = re.compile(r"[*?\[\]/]|\.(txt|tsv|csv|json|jsonl|parquet)(\.gz)?$")


@dataclass(frozen=True)
class Request:
    """What is to be translated, by what, and into which file.

    Args:
        source: A data set's name, `hf:owner/name`, or a file, folder or glob.
        settings: Model, languages and search.
        output: The file to write; None is one below the state directory, named after text and model.
        split: Split of the data set.
        column: Column that is translated.
        limit: Only the first so many rows.
        shard: (i, n): only the i-th of n equal parts of the rows, counted from 1.
        batch_tokens: As for `Translator`.
        device: "auto" is every CUDA device, else the CPU; or "cpu", "cuda", "cuda:N".
        workers: Processes that translate; None is one a device.
    """

    source: str
    settings: Settings
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
    """What came of it.

    Args:
        output: The `.tsv` written, header `text<TAB>translation`.
        rows: Its rows.
        reused: Rows that the model was not asked for: translated by an earlier call, repeated, or blank.
        file: What `[data] file` of a recipe names: the output, or a glob of all shards.
    """

    output: Path
    rows: int
    reused: int
    file: str


class SentenceTranslator(Protocol):
    """What `translate_rows` takes: a `Translator`, or several `Workers`."""

    @property
    def identity(self) -> str:
        """What decides the result beside the sentence."""

    def translate(self, windows: Iterable[Sequence[str]]) -> Generator[Batch, None, None]:
        """Yield every sentence of the windows with its translation, in any order."""


def translate_text(request: Request, progress: Progress, warn: Callable[[str], None]) -> Translation:
    """Translate a column of a text into a file.

    Args:
        request: What is asked for.
        progress: Called with the rows done, and all rows.
        warn: Called with what the user should know before it starts.

    Raises:
        CseError: The text, the model or the languages cannot be used; another process makes the same translation; or
            the disk refuses.
    """
    output = output_path(request)
    languages = replace(request.settings.languages, text=language_of(request))
    translator = Translator(replace(request.settings, languages=languages), request.device, request.batch_tokens)
    devices = worker_devices(request.device, request.workers)
    if len(devices) == 1:
        choose(devices[0])
        limit_torch_threads()
    if translator.warning:
        warn(translator.warning)
    rows = open_rows(request)
    if len(devices) == 1:
        made = translate_rows(rows, translator, output, progress)
    else:  # windows so small that no worker is without one until shortly before the end
        window = max(64, min(WINDOW, len(rows) // (4 * len(devices))))
        made = translate_rows(rows, Workers(translator, devices), output, progress, window)
    if request.shard[1] == 1:
        return made
    return replace(made, file=re.sub(r"\.\d+(-of-\d+\.tsv)$", r".*\1", str(output)))


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of one column."""

    text: Text
    column: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[str]:
        return islice(self.text.cells(self.column), self.start, self.stop)


def is_dataset_name(source: str) -> bool:
    """Tell whether a source is a data set's name; else it is a file, a folder or a glob."""
    if source.startswith("hf:") or source in catalogue.names():
        return True
    return not (_FILE.search(source) or expand_user(Path(source)).exists())


def language_of(request: Request) -> str | None:
    """Return the language that the catalogue gives for the column that is translated."""
    if not is_dataset_name(request.source) or request.source.startswith("hf:"):
        return None
    languages = catalogue.entry(request.source).language.split("-")  # "en-de": of `text` and of `translation`
    return languages[-1] if request.column == "translation" else languages[0]


def open_rows(request: Request) -> Rows:
    """Return the rows to translate.

    Raises:
        CseError: The text or the column is not there, or there are fewer rows than shards.
    """
    source, columns = request.source, {request.column}
    if is_dataset_name(source):
        text = open_text(Data(dataset=(source,), split=request.split, limit=request.limit), columns)
    else:
        text = open_text(Data(file=str(expand_user(Path(source)).absolute()), limit=request.limit), columns)
    number, shards = request.shard
    if text.rows < shards:
        raise CseError(f"--shard: {text.rows} rows cannot be cut into {shards} shards", "ask for fewer shards")
    return Rows(text, request.column, text.rows * (number - 1) // shards, text.rows * number // shards)


def parse_shard(written: str | None) -> tuple[int, int]:
    """Return (i, n) of "i/n".

    Raises:
        CseError: It is not of that form, or i is not one of 1 to n.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", written or "1/1")
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise CseError(f"--shard: '{written}' is not a shard", "use i/n with i from 1 to n, for example 1/4 to 4/4")
    return int(match[1]), int(match[2])


def output_path(request: Request) -> Path:
    """Return where the result goes.

    Raises:
        CseError: There is a file at the path that the user gave, or it does not end in .tsv.
    """
    if request.output is None:
        parts = [_stem(request.source), "" if request.split == "train" else request.split]
        parts += ["" if request.column == "text" else request.column, Path(request.settings.model).name]
        parts += [request.settings.languages.target or ""]
        name = ".".join(re.sub(r"[^\w.-]+", "-", part).strip("-") for part in parts if part)
        return _shard_path(paths.home() / "translations" / f"{name}.tsv", request.shard)
    asked = expand_user(Path(request.output)).absolute()
    if not asked.name.endswith(".tsv"):
        raise CseError(f"--output: '{asked.name}' must end in .tsv, which tells a recipe how to read it")
    path = _shard_path(asked, request.shard)
    if path.exists():
        raise CseError(f"--output: {path} exists already", "move it away, or give another name")
    return path


def _stem(source: str) -> str:
    """Return a source's name without folders and ending; a glob's is its folder's."""
    path = Path(source.removeprefix("hf:"))
    while re.search(r"[*?\[]", path.name):
        path = path.parent
    return _FILE.sub("", path.name or "text")


def _shard_path(path: Path, shard: tuple[int, int]) -> Path:
    """Return a shard's path; numbers have as many digits as the last, so that a glob has them in order."""
    number, shards = shard
    digits = len(str(shards))
    return path if shards == 1 else path.with_name(f"{path.stem}.{number:0{digits}}-of-{shards}.tsv")


def translate_rows(
    rows: Rows, translator: SentenceTranslator, output: Path, progress: Progress | None = None, window: int = WINDOW
) -> Translation:
    """Translate rows into a file; the translator gets the distinct sentences that no earlier call has translated.

    Args:
        rows: What is translated.
        translator: What makes translations.
        output: File to write, whole or not at all.
        progress: Called after every batch.
        window: Sentences given to the translator at a time.

    Raises:
        CseError: Another process makes the same translation, or the disk refuses.
    """
    folder = paths.cache() / "translations"
    name = hashlib.sha256(translator.identity.encode()).hexdigest()[:32]
    same = hashlib.sha256(repr((name, rows.text.fingerprint, rows.column, rows.start, rows.stop)).encode()).hexdigest()
    sent = 0
    try:
        make_folder(folder)
        with FileLock(folder / f"{same[:32]}.lock", timeout=0), Store(folder / f"{name}.sqlite") as store:
            missing = Untranslated(rows, store, window)
            with closing(translator.translate(missing)) as batches:
                for batch in batches:
                    store.save(batch)
                    sent += len(batch)
                    missing.waiting.difference_update(sentence for sentence, _ in batch)
                    if progress is not None:
                        progress(missing.done, len(rows))
            store.commit()
            _write(rows, store, output)
    except Timeout as error:
        raise CseError("another process is making this translation", "wait for it: its result is shared") from error
    except sqlite3.DatabaseError as error:
        file, full = f"{folder / name}.sqlite", getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"
        if full:
            raise DiskError(f"{file}: {error}", "free some disk space") from error
        # Not made anew by itself: what it holds may have taken hours.
        raise CseError(
            f"{file}: {error}", "copy it back from a backup, or delete it: what it held is translated again"
        ) from error
    except OSError as error:
        kind = DiskError if no_room(error) else CseError
        raise kind(
            f"{error.filename or folder}: {error.strerror or error}", "free some disk space, or set CSE_HOME"
        ) from error
    return Translation(output, len(rows), len(rows) - sent, str(output))


class Untranslated:
    """Iterates over windows of the distinct sentences that a store lacks.

    Args:
        rows: All sentences; blank ones are left out.
        store: What is there.
        size: Sentences a window.
    """

    def __init__(self, rows: Rows, store: Store, size: int) -> None:
        self._rows, self._store, self._size = rows, store, size
        self._read = 0
        self.waiting: set[str] = set()
        """Sentences handed out and not yet translated: whoever saves a translation removes it here."""

    @property
    def done(self) -> int:
        """Rows read whose translation is there."""
        return self._read - len(self.waiting)

    def __iter__(self) -> Iterator[list[str]]:
        window: list[str] = []
        for chunk in _chunks(self._rows):
            distinct = {sentence for sentence in chunk if sentence.strip()} - self.waiting
            there = self._store.find(distinct)
            new = [sentence for sentence in dict.fromkeys(chunk) if sentence in distinct and sentence not in there]
            self.waiting.update(new)
            self._read += len(chunk)
            window += new
            while len(window) >= self._size:
                yield window[: self._size]
                del window[: self._size]
        if window:
            yield window


def _write(rows: Rows, store: Store, output: Path) -> None:
    """Write the file under another name and rename it."""
    output.parent.mkdir(parents=True, exist_ok=True)
    draft = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    try:
        with draft.open("w", encoding="utf-8", newline="") as file:
            file.write(HEADER)
            for chunk in _chunks(rows):
                there = store.find(set(chunk))
                file.writelines(f"{_cell(row)}\t{_cell(there[row]) if row.strip() else ''}\n" for row in chunk)
        draft.replace(output)
    finally:
        draft.unlink(missing_ok=True)


def _cell(line: str) -> str:
    """Return a line that fits one cell of a `.tsv`."""
    return re.sub(r"[\t\r\n]", " ", line)


def _chunks(rows: Iterable[str]) -> Iterator[list[str]]:
    source = iter(rows)
    while chunk := list(islice(source, _READ)):
        yield chunk

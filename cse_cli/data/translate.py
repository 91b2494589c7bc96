"""Makes the parallel column: line i of the output translates line i of the text, whatever stopped it on the way."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from cse_cli import home
from cse_cli.data.sources import Text, open_text
from cse_cli.data.tokens import Progress
from cse_cli.recipe.schema import Data
from registry.errors import CseError
from registry.paths import write_atomically

CHUNK = 512
"""Sentences between two saved states: at most so many are translated again after a kill."""

HEADER = "text\ttranslation\n"


class Translates(Protocol):
    """What makes translations."""

    @property
    def identity(self) -> str:
        """What decides the result beside the text: part of the saved chunks' key."""

    def translate(self, sentences: Sequence[str]) -> list[str]:
        """Return one line a sentence, in order."""


@dataclass(frozen=True)
class Translation:
    """What came of it.

    Args:
        output: The `.tsv` written, header `text<TAB>translation`.
        rows: Its rows.
        reused: Rows that an earlier call had already translated.
    """

    output: Path
    rows: int
    reused: int


def source_text(source: str, split: str, limit: int | None) -> Text:
    """Return the sentences of a file or of a catalogue data set.

    Args:
        source: Path of a `.txt` or `.tsv` (plain or .gz), or a data set's name.
        split: Split of the data set.
        limit: Only the first so many sentences.
    """
    path = Path(source).expanduser()
    if path.is_file() or re.search(r"\.(txt|tsv)(\.gz)?$", source):
        return open_text(Data(file=str(path.absolute()), limit=limit), {"text"})
    return open_text(Data(dataset=(source,), split=split, limit=limit), {"text"})


def new_output(asked: str | None, source: str, split: str, model: str) -> Path:
    """Return where the result goes.

    Args:
        asked: The path the user gave, or None for one below the state directory, named after data and model.
        source: What is translated.
        split: Split of it.
        model: What translates it.

    Raises:
        CseError: There is a file at the path given.
    """
    if asked is None:
        name = re.sub(r"\.(txt|tsv)(\.gz)?$", "", Path(source).name)
        part = "" if split == "train" else f".{split}"
        return home.home() / "translations" / f"{name}{part}.{Path(model).name}.tsv"
    path = Path(asked).expanduser().absolute()
    if path.exists():
        raise CseError(f"--output: {path} exists already", "move it away, or give another name")
    if not path.name.endswith(".tsv"):
        raise CseError(f"--output: '{path.name}' must end in .tsv, which tells a recipe how to read it")
    return path


def translate_text(text: Text, translator: Translates, output: Path, progress: Progress | None = None) -> Translation:
    """Translate a text into a file, reusing every chunk an earlier call finished.

    Args:
        text: Sentences, in the column `text`.
        translator: What makes translations; not called if all chunks are there.
        output: File to write, whole or not at all.
        progress: Told after every chunk.

    Raises:
        CseError: Another process makes the same translation, or the disk refuses.
    """
    key = hashlib.sha256(f"{text.fingerprint}\n{translator.identity}\n{CHUNK}".encode()).hexdigest()[:32]
    folder = home.cache() / "translations" / key
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock", timeout=0):
            reused = _fill(folder, text, translator, progress)
            _join(folder, text.rows, output)
    except Timeout as error:
        raise CseError(
            "another process makes this translation right now", "wait for it: its result is shared"
        ) from error
    except OSError as error:
        raise CseError(
            f"{error.filename or folder}: {error.strerror or error}", "free some disk space, or set CSE_HOME"
        ) from error
    return Translation(output, text.rows, reused)


def _fill(folder: Path, text: Text, translator: Translates, progress: Progress | None) -> int:
    """Translate the chunks that are not there; return how many sentences were."""
    done = reused = 0
    for number, sentences in enumerate(_chunks(text.cells("text"))):
        part = _part(folder, number)
        if part.is_file():
            reused += len(sentences)
        else:
            pairs = zip(sentences, translator.translate(sentences), strict=True)
            write_atomically(part, "".join(f"{_cell(a)}\t{_cell(b)}\n" for a, b in pairs))
        done += len(sentences)
        if progress is not None:
            progress(done, text.rows)
    return reused


def _join(folder: Path, rows: int, output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    draft = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    with draft.open("wb") as joined:
        joined.write(HEADER.encode())
        for number in range(-(-rows // CHUNK)):
            joined.write(_part(folder, number).read_bytes())
    draft.replace(output)


def _part(folder: Path, number: int) -> Path:
    return folder / f"{number:06}.tsv"


def _cell(line: str) -> str:
    """Return a line that fits one cell of a `.tsv`."""
    return re.sub(r"[\t\r\n]", " ", line)


def _chunks(cells: Iterable[str]) -> Iterator[list[str]]:
    source = iter(cells)
    while chunk := list(islice(source, CHUNK)):
        yield chunk

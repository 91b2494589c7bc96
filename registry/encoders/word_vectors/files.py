"""Files of word vectors in text form, as GloVe and word2vec write them: found, read and checked."""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from registry.catalogue.find import data_folder
from registry.catalogue.readers import lines
from registry.errors import CseError, MissingError

Vector = np.ndarray[tuple[int], np.dtype[np.float32]]


def locate_words(file: str) -> Path:
    """Return where a file lies: a path, or below `$CSE_DATA`.

    Raises:
        MissingError: It is in neither place.
    """
    folder = data_folder()
    candidates = [Path(file).expanduser(), *([folder / file] if folder else [])]
    found = next((path for path in candidates if path.is_file()), None)
    if found is None:
        where = f"nor below {folder} (CSE_DATA)" if folder else "and CSE_DATA is not set"
        raise MissingError(
            f"the word vectors {file!r} are not at {candidates[0].absolute()}, {where}",
            "put the file there, unpacked or as .gz; GloVe's are at https://nlp.stanford.edu/projects/glove/",
        )
    return found


def read_words(path: Path, limit: int | None) -> tuple[list[str], Tensor]:
    """Return words and a table (n + 1, D): row 0 zero, row i + 1 the vector of word i; of a repeated word the first.

    Args:
        path: A line for each word: the word, then D numbers, separated by blanks. A first line that holds two whole
            numbers, how many words and D, is passed over. A word may contain blanks: the last D fields are numbers.
        limit: Words read at most; files put the frequent ones first.

    Raises:
        CseError: A line is of another form; the message gives its number.
    """
    words: dict[str, None] = {}
    table = array("f")
    width = 0
    for word, vector in _rows(path):
        if not words:
            width = len(vector)
            table.frombytes(bytes(4 * width))
        if word not in words:
            words[word] = None
            table.frombytes(vector.tobytes())
        if len(words) == limit:
            break
    if not words:
        raise CseError(f"{path}: no word vectors", "a line holds a word and its numbers, separated by blanks")
    return list(words), torch.frombuffer(table, dtype=torch.float32).reshape(-1, width)


def _rows(path: Path) -> Iterator[tuple[str, Vector]]:
    width = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # what numpy makes of text that is no number
        for number, line in lines(path):
            fields = line.rstrip(" ").split(" ")
            if number == 1 and len(fields) == 2 and all(field.isdecimal() for field in fields):
                width = int(fields[1])
                continue
            width = width or len(fields) - 1
            yield _row(path, number, fields, width)


def _row(path: Path, number: int, fields: list[str], width: int) -> tuple[str, Vector]:
    word, numbers = " ".join(fields[:-width]), " ".join(fields[-width:])
    try:
        vector = np.fromstring(numbers, dtype=np.float32, sep=" ")
    except (ValueError, DeprecationWarning):
        vector = np.empty(0, dtype=np.float32)
    if not 0 < width == len(vector) < len(fields) or not np.isfinite(vector).all():
        form = f"a word and {width or 'some'} numbers, separated by blanks"
        raise CseError(
            f"{path}:{number}: not {form}: {' '.join(fields)[:60]!r}",
            "give a text file as GloVe or word2vec write it; binary ones must be converted first",
        )
    return word, vector

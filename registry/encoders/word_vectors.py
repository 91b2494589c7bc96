"""Averages of word vectors: encoder, vocabulary, and reader of files in the format of GloVe or word2vec."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from registry import ENCODERS
from registry.encoders.averages import Adjustment, TokenAverage, adjusted, inverse_frequency, read_counts, zipf
from registry.encoders.export import drafted, write_own, write_weights
from registry.errors import CseError
from registry.resources.catalog import require_own_file
from registry.resources.rows import lines
from registry.tokens import Pieces, Sample, Tokens
from registry.types import FileName, Tune

Vector = np.ndarray[tuple[int], np.dtype[np.float32]]

WORDS = "words.json"
VECTORS = "vectors.safetensors"


class WordAverage(TokenAverage):
    """Encoder that averages the vectors of a sentence's known words.

    Args:
        words: Distinct words.
        table: Vectors (n + 1, D): row 0 is zero, row i + 1 is the vector of word i.
        lower: Whether sentences are converted to lower case.
        frozen: Whether the vectors are not trained.
    """

    vocabulary: WordVocabulary

    def __init__(self, words: Sequence[str], table: Tensor, lower: bool, frozen: bool) -> None:
        super().__init__(WordVocabulary(words, lower), table, frozen)

    def export(self, folder: Path, max_length: int) -> None:
        """Write words and vectors in a format that only cse reads. sentence-transformers splits words differently."""
        settings = {"format": "word_average", "lower": self.vocabulary.lower, "max_length": max_length}
        with drafted(folder) as draft:
            write_own(draft, settings, "Averages of word vectors.", self.prompts)
            (draft / WORDS).write_text(json.dumps(self.vocabulary.words, ensure_ascii=False), encoding="utf-8")
            write_weights(draft / VECTORS, {"table": self.table}, marked=False)

    @classmethod
    def open(cls, folder: Path, settings: Mapping[str, Any]) -> WordAverage:
        """Return the encoder that `export` wrote to a directory."""
        from safetensors.torch import load_file

        words = json.loads((folder / WORDS).read_text(encoding="utf-8"))
        return WordAverage(words, load_file(folder / VECTORS)["table"], settings["lower"], frozen=True)


@ENCODERS.register("word_vectors")
class WordVectors(WordAverage):
    """Average the vectors of a sentence's known words.

    s = Σₜ wₜ·vₜ / n over the n words that the file contains, or 0 if it contains none. There are no special tokens and
    no dropout. methods/glove.md describes the split of sentences into words.

    wₜ is 1, or the weight a/(a + pₜ) of SIF for a word with probability pₜ. `adjust` changes the vectors before: it
    subtracts their mean μ ("center"), transforms them to mean 0 and covariance I ("whiten"), or subtracts μ and removes
    the first principal components ("all_but_the_top"). Mean and covariance weight each word by its probability, or
    all words equally.

    Shapes: ids (B, L) → (B, L, D) → (B, D).

    Source: GloVe (Pennington et al. 2014); the baseline of Reimers and Gurevych 2019 (Table 1); SIF (Arora et al. 2017)
    for the weights; Zipfian whitening (Yokoi et al. 2024) for `adjust`; all-but-the-top (Mu and Viswanath 2018).
    Doubtful and settled in methods/glove.md: which vectors (G1, `file`), case (G2, `lower`), split of sentences (G3);
    in methods/sif.md: frequencies (SI1, `frequencies`), words without a count (SI4, `counted_only`).

    Args:
        file: Text file, plain or `.gz`, with one word and its numbers per line, or a `.npy` table with one row per word
            next to a `.parquet` file with one column of words. A path, a path below $CSE_DATA, or the name of a known
            file, which is downloaded: "glove.840B.300d.txt" (2 GB) or "glove_6B_50d_emb.npy" (76 MB).
        lower: Whether sentences are converted to lower case, for files in lower case such as glove.6B. glove.840B has
            upper and lower case.
        limit: Maximum number of words, from the first, which are the most frequent. Default: all.
        frozen: Whether the vectors are not trained.
        frequencies: Text file with a word and its number of occurrences per line: a path, or the name of a known file,
            "enwiki_vocab_min200.txt" (2 MB). Words without a count have probability 0. Default: Zipf's law, pᵣ ∝ 1/r
            for the r-th word of `file`.
        counted_only: Whether words without a count are unknown.
        sif: Constant a of the weights. Default: no weights.
        adjust: Change of the vectors. Default: none.
        by_frequency: Whether `adjust` weights each word by its probability (Zipfian) instead of equally (uniform).
        components: Number of components that "all_but_the_top" removes. Default: a hundredth of the dimensions.

    Example:
        [encoders.online]
        name = "word_vectors"
        file = "glove.6B.300d.txt"
        lower = true
    """

    def __init__(
        self,
        file: FileName,
        lower: bool = False,
        limit: Annotated[int, Field(ge=1)] | None = None,
        frozen: bool = True,
        frequencies: FileName | None = None,
        counted_only: bool = False,
        sif: Annotated[float, Field(gt=0), Tune(1e-5, 1e-2, log=True)] | None = None,
        adjust: Adjustment | None = None,
        by_frequency: bool = True,
        components: Annotated[int, Field(ge=1)] | None = None,
    ) -> None:
        words, table = read_words(require_own_file(file, "word vectors", _SOURCE), limit)
        shares = zipf(len(words))
        if frequencies is not None:
            counts = read_counts(require_own_file(frequencies, "word frequencies", _COUNTS))
            if counted_only:
                kept = [place for place, word in enumerate(words) if word in counts]
                words, table = [words[place] for place in kept], table[[0, *(place + 1 for place in kept)]]
            shares = torch.tensor([counts.get(word, 0) for word in words], dtype=torch.float64)
            shares /= shares.sum()
        if adjust is not None:
            equal = torch.full_like(shares, 1 / len(shares))
            table[1:] = adjusted(table[1:], shares if by_frequency else equal, adjust, components)
        if sif is not None:
            table[1:] *= inverse_frequency(shares, sif).float()[:, None]
        super().__init__(words, table, lower, frozen)


_SOURCE = "save the file there, plain or as .gz. Download GloVe from https://nlp.stanford.edu/projects/glove/"
_COUNTS = "save a text file there, with one word and its number of occurrences per line"
_PARTS = re.compile(r"\w+|[^\w\s]")


class WordVocabulary:
    """Vocabulary of a file of word vectors.

    A sentence is split at white space. A piece in the vocabulary stays one word ("U.S.", "n't"). Any other piece is
    split into alphanumeric strings and single punctuation marks, of which unknown ones are ignored.

    Args:
        words: Distinct words. Padding has ID 0, word i has ID i + 1.
        lower: Whether sentences are converted to lower case.
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
        """Number of IDs."""
        return len(self.words) + 1

    @property
    def specials(self) -> frozenset[int]:
        """Special tokens: only padding."""
        return frozenset({0})

    @property
    def mask(self) -> int | None:
        """No mask token."""
        return None

    @property
    def continued(self) -> frozenset[int]:
        """No sub-words."""
        return frozenset()

    def id_of(self, token: str) -> int:
        """Return the ID of a word."""
        if token not in self._places:
            raise CseError(
                f"the file of word vectors does not contain the word '{token}'",
                "use a word of the file",
                code="encoders.unknown_word",
            )
        return self._places[token]

    def with_template(self, template: str | None) -> WordVocabulary:
        """Return the vocabulary itself, because it does not support a template."""
        if template is not None:
            raise CseError(
                "an average of word vectors does not support a template",
                "remove template",
                code="encoders.unsupported_template",
            )
        return self

    def room(self, max_length: int) -> int:
        """Return `max_length`, because there are no special tokens."""
        return max_length

    def ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Return the IDs of the known words in each text, up to `max_length`."""
        return [list(self._known(text))[:max_length] for text in texts]

    def pad(self, rows: Sequence[Sequence[int]]) -> Tokens:
        """Return single sentences, padded to the longest. The length can be 0."""
        return self.assemble([Pieces(tuple(row)) for row in rows])

    def pieces(self, samples: Sequence[Sample], max_length: int) -> list[Pieces]:
        """Return samples as IDs, each side of a pair truncated to `max_length`."""
        found = []
        for sample in samples:
            first = tuple(self._known(sample.text))[:max_length]
            second = None if sample.pair is None else tuple(self._known(sample.pair))[:max_length]
            found.append(Pieces(first, second, sample.label))
        return found

    def assemble(self, pieces: Sequence[Pieces]) -> Tokens:
        """Return padded tokens. The two sides of a pair are concatenated, the second with segment 1."""
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
        """Return tokenized and padded samples."""
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
    """Return the words and a table (n + 1, D): row 0 is zero, row i + 1 is the vector of word i.

    Args:
        path: Text file with one line for each word: the word and D numbers, separated by spaces. A first line with two
            integers, the number of words and D, is skipped. A word can contain spaces, because the last D fields are
            the numbers. Of a repeated word, the first line counts. Or a `.npy` table next to a `.parquet` file.
        limit: Maximum number of words.
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
        raise CseError(
            f"{path} contains no word vectors",
            "use a file with one word and its numbers per line, separated by spaces",
            code="encoders.no_word_vectors",
        )
    return list(words), torch.frombuffer(table, dtype=torch.float32).reshape(-1, width)


def _table_rows(path: Path) -> Iterator[tuple[str, Vector]]:
    """Yield the rows of a `.npy` table with their words from the `.parquet` file next to it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(path.parent.glob("*.parquet"))
    if len(files) != 1:
        raise CseError(
            f"{path}: its directory must contain exactly one .parquet file of words, and contains {len(files)}",
            _FORM,
            code="encoders.bad_word_table",
        )
    try:
        table, column = np.load(path, mmap_mode="r", allow_pickle=False), pq.read_table(files[0])
    except (OSError, ValueError, pa.ArrowException) as error:
        raise CseError(
            f"{path} cannot be read with {files[0].name}: {error}", _FORM, code="encoders.bad_word_table"
        ) from error
    if table.ndim != 2 or table.dtype.kind != "f" or column.num_columns != 1 or len(table) != column.num_rows:
        shapes = f"{table.dtype} {table.shape} and a table of words {(column.num_rows, column.num_columns)}"
        raise CseError(f"{path} does not have one vector per word: {shapes}", _FORM, code="encoders.bad_word_table")
    yield from zip(column.column(0).to_pylist(), np.ascontiguousarray(table, dtype=np.float32), strict=True)


_FORM = "use a .npy table (words, D) of floats next to a .parquet file with one column of words"


def _rows(path: Path) -> Iterator[tuple[str, Vector]]:
    width = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # numpy's reaction to text that is not a number
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
        form = f"a word and {width or 'some'} numbers, separated by spaces"
        raise CseError(
            f"{path}:{number}: '{' '.join(fields)[:60]}' is not {form}",
            "use a text file in the format of GloVe or word2vec, or convert a binary file to text",
            code="encoders.bad_word_line",
        )
    return word, vector

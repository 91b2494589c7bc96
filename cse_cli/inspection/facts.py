"""Facts about a training text: rows, lengths, duplicates, languages, leakage and hard negatives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cse_cli.data.cache import Progress
from cse_cli.data.sources import Text
from cse_cli.inspection.duplicates import Duplicates, find_duplicates
from cse_cli.inspection.language import guess_languages
from cse_cli.inspection.leakage import Leak, find_leaks
from cse_cli.inspection.near import WordRows, example_pairs, near_duplicates
from cse_cli.inspection.negatives import Negatives, compare_negatives
from cse_cli.inspection.subject import Subject
from registry.evaluators.pairs import one_line
from registry.tokens import Sample, Vocabulary
from registry.words import words

SAMPLE = 50_000
"""Maximum number of rows whose lengths, language and negatives are examined. Tokenizers need most of the time."""

NEAR_SAMPLE = 1_000_000
"""Maximum number of distinct sentences that are compared for near-duplicates, which takes 1.7 GB of memory."""

LEVELS = (0.0, 0.05, 0.5, 0.95, 1.0)
"""Quantiles of lengths. A quantile is a length that occurs, not a mean of two."""

BLOCK = 8192
"""Rows that are read at a time."""

_WHOLE = 10**6
"""Maximum length of a sentence that is not cut."""


@dataclass(frozen=True)
class Lengths:
    """Lengths of the sentences of a column in a sample of rows.

    Args:
        rows: Number of rows in the sample.
        characters: Quantiles at `LEVELS` of the number of characters.
        words: Quantiles of the number of words (`registry.words`).
        tokens: Quantiles of the number of tokens before the cut, special tokens included, without a template.
        max_length: Maximum number of tokens in training.
        cut: Number of rows that are cut because they have more.
        histogram: Number of tokens → number of rows.
    """

    rows: int
    characters: tuple[int, ...]
    words: tuple[int, ...]
    tokens: tuple[int, ...]
    max_length: int
    cut: int
    histogram: dict[int, int]

    @property
    def cut_share(self) -> float:
        """Share of the rows that are cut."""
        return self.cut / self.rows


@dataclass(frozen=True)
class NearDuplicates:
    """Near-duplicates among distinct sentences (`near.is_near`).

    Args:
        sentences: Number of distinct sentences that were compared.
        near: Number of those that have a near-duplicate.
        examples: Pairs of near-duplicates.
    """

    sentences: int
    near: int
    examples: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Inspection:
    """Facts about a training text.

    Args:
        name: File, data set or recipe.
        settings: Name of the recipe with the settings.
        rows: Number of rows that are not blank.
        blank: Number of blank rows, which are skipped.
        anchor: Column of the anchors, to which duplicates, languages and leakage refer.
        tokenizer: Name of the model with the tokenizer.
        lengths: Lengths of each column.
        duplicates: Equal sentences.
        frequent: The most frequent sentences that have several rows, with their number of rows.
        near: Near-duplicates.
        batch_size: Number of rows of a batch.
        batches_with_duplicates: Expected share of batches that contain a sentence twice.
        anchors_with_copy: Expected share of the rows of a batch whose sentence is also in another row.
        languages: Guessed language → share of the rows in a sample.
        searched: Evaluation sets that were searched for.
        leaks: Evaluation sets with sentences in the text.
        negatives: Hardness of hard negatives in a sample, or None without any.
    """

    name: str
    settings: str
    rows: int
    blank: int
    anchor: str
    tokenizer: str
    lengths: dict[str, Lengths]
    duplicates: Duplicates
    frequent: tuple[tuple[str, int], ...]
    near: NearDuplicates
    batch_size: int
    batches_with_duplicates: float
    anchors_with_copy: float
    languages: dict[str, float]
    searched: tuple[str, ...]
    leaks: tuple[Leak, ...]
    negatives: Negatives | None


def inspect_text(subject: Subject, show: Callable[[str, int, int], None]) -> Inspection:
    """Return the facts about a text. `show` is called with the current work, and the rows done and in total."""
    text, roles, recipe = subject.text, subject.roles, subject.recipe
    show("comparing sentences", 0, text.rows)
    duplicates, first, repeated = find_duplicates(text.cells(roles.anchor))
    frequent = tuple((one_line(cell(text, roles.anchor, row)), rows) for row, rows in repeated)
    near = _near(text, roles.anchor, first, lambda *count: show("comparing words", *count))
    show("searching for evaluation sentences", 0, text.rows)
    leaks = find_leaks(text.cells(roles.anchor), subject.sets)
    sample = {name: sample_cells(text, name, SAMPLE) for name in roles.columns}
    lengths = {
        name: measure_lengths(
            cells, subject.vocabularies[name], recipe.data.max_length, lambda *count: show("tokenizing", *count)
        )
        for name, cells in sample.items()
    }
    negatives = None
    if roles.negative is not None:
        triples = zip(sample[roles.anchor], sample[roles.positive], sample[roles.negative], strict=True)
        negatives = compare_negatives(triples)
    return Inspection(
        name=subject.name,
        settings=subject.settings,
        rows=text.rows,
        blank=sum(content.blank for _, content in text.parts),
        anchor=roles.anchor,
        tokenizer=subject.tokenizer,
        lengths=lengths,
        duplicates=duplicates,
        frequent=frequent,
        near=near,
        batch_size=recipe.train.batch_size,
        batches_with_duplicates=duplicates.batches_with_duplicates(recipe.train.batch_size),
        anchors_with_copy=duplicates.anchors_with_copy(recipe.train.batch_size),
        languages=guess_languages(sample[roles.anchor]),
        searched=tuple(subject.sets),
        leaks=tuple(leaks),
        negatives=negatives,
    )


def sample_cells(text: Text, column: str, count: int) -> list[str]:
    """Return the cells of at most `count` rows, which are evenly spread over the text."""
    return list(_take(text, column, _spread(np.arange(text.rows), count)))


def cell(text: Text, column: str, row: int) -> str:
    """Return one cell of a text."""
    return text.sentences(column).take([row])[0]


def measure_lengths(
    cells: Sequence[str], vocabulary: Vocabulary, max_length: int, progress: Progress | None = None
) -> Lengths:
    """Return the lengths of sentences. A sentence is cut if it has more sub-words than fit `max_length`."""
    room, pieces = vocabulary.room(max_length), list[int]()
    for start in range(0, len(cells), 1024):
        samples = [Sample(text) for text in cells[start : start + 1024]]
        pieces += [len(piece.first) for piece in vocabulary.pieces(samples, _WHOLE)]
        if progress is not None:
            progress(len(pieces), len(cells))
    tokens = [count + max_length - room for count in pieces]
    return Lengths(
        rows=len(cells),
        characters=_quantiles([len(text) for text in cells]),
        words=_quantiles([len(words(text)) for text in cells]),
        tokens=_quantiles(tokens),
        max_length=max_length,
        cut=sum(count > room for count in pieces),
        histogram=dict(sorted(Counter(tokens).items())),
    )


def _near(text: Text, column: str, first: NDArray[np.int64], progress: Progress) -> NearDuplicates:
    """Return the near-duplicates among distinct sentences, given the first row of each."""
    chosen = _spread(first, NEAR_SAMPLE)

    def sentences() -> Iterator[list[str]]:
        for done, sentence in enumerate(_take(text, column, chosen)):
            if done % BLOCK == 0:
                progress(done, len(chosen))
            yield words(sentence)

    rows = WordRows.of(sentences())
    found = near_duplicates(rows)
    examples = [
        tuple(one_line(cell(text, column, int(chosen[row]))) for row in pair) for pair in example_pairs(rows, found)
    ]
    return NearDuplicates(len(chosen), int(found.sum()), tuple((one, other) for one, other in examples))


def _take(text: Text, column: str, rows: NDArray[np.int64]) -> Iterator[str]:
    cells = text.sentences(column)
    for start in range(0, len(rows), BLOCK):
        yield from cells.take(rows[start : start + BLOCK].tolist())


def _spread(rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return all rows, or `count` of them at equal distances."""
    return rows if len(rows) <= count else rows[np.arange(count) * len(rows) // count]


def _quantiles(values: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(value) for value in np.quantile(values, LEVELS, method="inverted_cdf"))

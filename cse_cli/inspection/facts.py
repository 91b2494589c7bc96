"""Facts about a training text: lengths, duplicates, sentences of evaluation sets, and which of them are alarming."""

from __future__ import annotations

import hashlib
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cse_cli.data.cache import Progress
from cse_cli.data.sources import Text
from cse_cli.recipe.requirements import of_part
from cse_cli.recipe.schema import Recipe
from registry import AUGMENTERS, EVALUATORS
from registry.errors import MissingError
from registry.evaluators.pairs import one_line
from registry.resources import catalog
from registry.tokens import Sample, Vocabulary
from registry.words import words

LEVELS = (0.0, 0.05, 0.5, 0.95, 1.0)
"""Quantiles of lengths. A quantile is a length that occurs, not a mean of two."""
PROGRESS_EVERY = 1 << 18
"""Rows between two reports of progress, about a second."""
LONG = 10
"""Number of words from which on a word may be left out. "He is a doctor" and "He is a nurse" are different."""
PACKAGED = "stsb_open"
"""Scored pairs of the package, which are always searched for."""

COPIES = 0.05
"""Share of the rows of a batch with an equal sentence in the batch. Contrastive losses use it as a negative, so that
one in 20 rows is moved away from its own sentence."""
LEAKED = 0.01
"""Share of the sentences of an evaluation set that occur in the text. Below it they change no score visibly."""
CUT = 0.5
"""Share of the rows that are cut: the majority of the sentences is not trained on as a whole."""
ALARM_SAMPLE = 2000
"""Rows that are tokenized before a run. The standard error of a share is at most 1.1 points."""


@dataclass(frozen=True)
class Lengths:
    """Lengths of the sentences of a column in a sample of rows.

    `tokens` are quantiles at `LEVELS` of the number of tokens before the cut, without a template. `cut` rows have more
    than `max_length`.
    """

    rows: int
    tokens: tuple[int, ...]
    max_length: int
    cut: int


def measure_lengths(
    text: Text, vocabularies: Mapping[str, Vocabulary], max_length: int, sample: int
) -> dict[str, Lengths]:
    """Return the lengths of each column. A sentence is cut if it has more sub-words than fit `max_length`."""
    found = {}
    for column, vocabulary in vocabularies.items():
        cells = sample_cells(text, column, np.arange(text.rows), sample)
        room, pieces = vocabulary.room(max_length), list[int]()
        for start in range(0, len(cells), 1024):
            samples = [Sample(cell) for cell in cells[start : start + 1024]]
            pieces += [len(piece.first) for piece in vocabulary.pieces(samples, 10**6)]
        tokens = np.quantile([count + max_length - room for count in pieces], LEVELS, method="inverted_cdf")
        cut = sum(count > room for count in pieces)
        found[column] = Lengths(len(cells), tuple(tokens.astype(int).tolist()), max_length, cut)
    return found


def sample_cells(text: Text, column: str, rows: NDArray[np.int64], count: int) -> list[str]:
    """Return the cells of at most `count` of some rows, at equal distances."""
    chosen = rows if len(rows) <= count else rows[np.arange(count) * len(rows) // count]
    cells = text.sentences(column)
    return [cell for start in range(0, len(chosen), 8192) for cell in cells.take(chosen[start : start + 8192].tolist())]


def cut_columns(recipe: Recipe) -> set[str]:
    """Return the columns whose sentences are cut at `data.max_length` before augmenters read them."""
    return {
        view.column
        for view in recipe.views.values()
        if not any(AUGMENTERS[part.name].cls.reads_whole_text for part in view.augment)
    }


@dataclass(frozen=True)
class Found:
    """Equal sentences of a text, and those of evaluation sets, after white space is reduced to single spaces.

    Args:
        copies: Number of rows of a sentence → number of sentences with this number of rows.
        first: First row of each distinct sentence.
        frequent: First row and number of rows of the most frequent sentences that have several.
        leaks: Evaluation set → its sentences that occur in the text.
    """

    rows: int
    copies: dict[int, int]
    first: NDArray[np.int64]
    frequent: list[tuple[int, int]]
    leaks: dict[str, list[str]]

    def anchors_with_copy(self, batch_size: int) -> float:
        """Return the expected share of the rows of a batch whose sentence is also in another row of the batch.

        Σ_g c_g / N · (1 − C(N − c_g, B − 1) / C(N − 1, B − 1)).
        """
        others = min(batch_size, self.rows) - 1

        def log_choose(total: int) -> float:
            return math.lgamma(total + 1) - math.lgamma(others + 1) - math.lgamma(total - others + 1)

        def none_of(rows: int) -> float:
            left = self.rows - rows
            return 0.0 if others > left else math.exp(log_choose(left) - log_choose(self.rows - 1))

        return sum(sentences * rows / self.rows * (1 - none_of(rows)) for rows, sentences in self.copies.items())


def read_once(text: Text, column: str, sets: Mapping[str, Sequence[str]], progress: Progress) -> Found:
    """Return the equal sentences of a column, and those of evaluation sets, in one pass.

    Sentences are compared by 64 bits of their BLAKE2b digest. For 20 million rows the probability that two different
    ones are counted as equal is 1e-5.
    """
    known, present = {sentence for sentences in sets.values() for sentence in sentences}, set[str]()

    def digested() -> Iterator[int]:
        for done, cell in enumerate(text.cells(column), start=1):
            if (line := one_line(cell)) in known:
                present.add(line)
            if done % PROGRESS_EVERY == 0:
                progress(done, text.rows)
            yield int.from_bytes(hashlib.blake2b(line.encode("utf-8", "surrogatepass"), digest_size=8).digest())

    digests = np.fromiter(digested(), dtype=np.uint64)
    _, first, rows = np.unique(digests, return_index=True, return_counts=True)
    most = np.lexsort((first, -rows))[:3]
    frequent = [(int(first[place]), int(rows[place])) for place in most if rows[place] > 1]
    counted = dict(sorted(Counter(rows.tolist()).items()))
    leaks = {name: [one for one in sentences if one in present] for name, sentences in sets.items()}
    return Found(len(digests), counted, np.sort(first), frequent, leaks)


def near_duplicates(sentences: Iterable[str]) -> tuple[int, list[int]]:
    """Return how many distinct sentences have a near-duplicate, and the positions of two of them, if there are some.

    Two sentences are near-duplicates if their words are the same, or are the same after one word is left out of a
    sentence with at least `LONG` words. Words ignore case and punctuation. They are compared by 64-bit hashes.
    """
    codes, owners = array("q"), array("q")
    for place, sentence in enumerate(sentences):
        if found := words(sentence):
            left_out = range(len(found)) if len(found) >= LONG else ()
            of_sentence = {hash(tuple(found)), *(hash((*found[:j], *found[j + 1 :])) for j in left_out)}
            codes.extend(of_sentence)
            owners.extend([place] * len(of_sentence))
    every, places = np.array(codes, dtype=np.int64), np.array(owners, dtype=np.int64)
    order = np.argsort(every, kind="stable")
    equal = np.flatnonzero(every[order][1:] == every[order][:-1])
    near = np.unique(places[order][np.concatenate((equal, equal + 1))])
    return len(near), [int(places[order][at]) for at in (*equal[:1], *(equal[:1] + 1))]


def sets_of_recipe(recipe: Recipe) -> dict[str, list[str]]:
    """Return set → distinct sentences for the evaluators of a recipe, and for the sets of the package.

    Without the training text, sets of the Hub (`hf:`), and sets that are not on this machine. Nothing is downloaded.
    """
    trained = {f"{name}/{recipe.data.split}" for name in recipe.data.dataset}
    found: dict[str, list[str]] = {}
    for key, part in recipe.evaluators.items():
        entry = EVALUATORS[part.name]
        for one in of_part(f"evaluators.{key}", entry, part.params):
            if one.kind == "dataset" and one.name in catalog.names():
                found[f"{one.name}/{one.split}"] = _of_catalog(one.name, one.split)
            elif one.kind == "file" and not entry.references:
                with suppress(MissingError):
                    found[one.name] = list(dict.fromkeys(entry.build(part.params).texts()))
    found |= {f"{PACKAGED}/{split}": _of_catalog(PACKAGED, split) for split in ("dev", "test")}
    return {name: sentences for name, sentences in found.items() if sentences and name not in trained}


def _of_catalog(name: str, split: str) -> list[str]:
    """Return the distinct sentences of a split, or an empty list if it is not on this machine."""
    found = catalog.find(name, split)
    if found is None:
        return []
    columns = [column for column in found[1].columns if column not in ("subset", "score", "label")]
    return list(dict.fromkeys(one_line(cell) for row in found[1].read(columns) for cell in row))


def alarms_before_run(
    text: Text, recipe: Recipe, vocabularies: Mapping[str, Vocabulary], progress: Progress
) -> list[str]:
    """Return the alarming facts about the text of a run.

    They are found in one pass over the text, 4 s for a million rows. `vocabularies` has the tokenizer of each column
    that a view reads.
    """
    sets, anchor = sets_of_recipe(recipe), next(iter(recipe.views.values())).column
    found = read_once(text, anchor, sets, progress)
    columns = {column: vocabularies[column] for column in sorted(cut_columns(recipe) & vocabularies.keys())}
    return alarms_of(found, recipe, sets, measure_lengths(text, columns, recipe.data.max_length, ALARM_SAMPLE))


def alarms_of(
    found: Found, recipe: Recipe, sets: Mapping[str, Sequence[str]], lengths: Mapping[str, Lengths]
) -> list[str]:
    """Return the alarming facts, given all sentences of the evaluation sets."""
    alarms, batch_size = list[str](), recipe.train.batch_size
    copies = 0.0 if recipe.data.unique_in_batch else found.anchors_with_copy(batch_size)
    if len(found.first) == 1 < found.rows:
        alarms.append(
            f"all {found.rows:,} rows of the training text are the same sentence: every negative of a contrastive "
            "loss equals its anchor"
        )
    elif copies > COPIES:
        alarms.append(
            f"{copies:.0%} of the rows of a batch of {batch_size} have an equal sentence in the batch, which "
            f"contrastive losses use as a negative: {found.rows - len(found.first):,} of {found.rows:,} rows repeat an "
            "earlier one"
        )
    leaked = {name: len(sentences) / len(sets[name]) for name, sentences in found.leaks.items()}
    if shares := [f"{name} {share:.0%}" for name, share in leaked.items() if share >= LEAKED]:
        alarms.append(
            f"the training text contains sentences of evaluation sets ({', '.join(shares)}): scores on them cannot be "
            "compared with those of methods that were trained on other text"
        )
    for column, one in lengths.items():
        if one.cut / one.rows > CUT:
            about = "" if one.rows == found.rows else "about "
            alarms.append(
                f"{about}{one.cut / one.rows:.0%} of the rows are cut, because they have more than data.max_length = "
                f"{one.max_length} tokens in the column `{column}`"
            )
    return alarms

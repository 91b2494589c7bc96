"""Sentences of evaluation sets that occur in a training text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from cse_cli.inspection.duplicates import EXAMPLES
from cse_cli.recipe.requirements import of_part
from cse_cli.recipe.schema import Recipe
from registry import EVALUATORS
from registry.errors import MissingError
from registry.evaluators.pairs import one_line
from registry.resources import catalog
from registry.words import words

_NOT_TEXT = {"subset", "score", "label"}
"""Columns of evaluation data that contain no sentences."""

_SCORED = ("dev", "test")
"""Splits of scored pairs that are searched for in a text without a recipe."""

PACKAGED = "stsb_open"
"""Scored pairs of the package, which are always searched for."""


@dataclass(frozen=True)
class Leak:
    """Sentences of one evaluation set in a training text.

    Args:
        name: "dataset/split", or the file of the set.
        sentences: Number of distinct sentences of the set.
        exact: Number of those that occur in the text, after white space is reduced to single spaces.
        same_words: Number of those that occur, ignoring case and punctuation. It includes the exact ones.
        rows: Number of rows of the text that contain one of the latter.
        examples: Some of the latter, as in the set.
    """

    name: str
    sentences: int
    exact: int
    same_words: int
    rows: int
    examples: tuple[str, ...]

    @property
    def share(self) -> float:
        """Share of the set's sentences that occur in the text, ignoring case and punctuation."""
        return self.same_words / self.sentences


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
    found |= {f"{PACKAGED}/{split}": _of_catalog(PACKAGED, split) for split in _SCORED}
    return {name: sentences for name, sentences in found.items() if sentences and name not in trained}


def sets_on_machine() -> dict[str, list[str]]:
    """Return "dataset/split" → distinct sentences for the dev and test splits of scored pairs on this machine."""
    entries = (entry for entry in map(catalog.entry, catalog.names()) if entry.kind == "pairs" and not entry.generator)
    names = [(entry.name, split) for entry in entries for split in _SCORED if split in entry.splits]
    found = {f"{name}/{split}": _of_catalog(name, split) for name, split in names}
    return {name: sentences for name, sentences in found.items() if sentences}


def _of_catalog(name: str, split: str) -> list[str]:
    """Return the distinct sentences of a split, or an empty list if it is not on this machine."""
    found = catalog.find(name, split)
    if found is None:
        return []
    columns = [column for column in found[1].columns if column not in _NOT_TEXT]
    return list(dict.fromkeys(one_line(cell) for row in found[1].read(columns) for cell in row))


def find_leaks(cells: Iterable[str], sets: Mapping[str, Sequence[str]]) -> list[Leak]:
    """Return the sets with at least one sentence in a text, in the order of the sets."""
    normal = {sentence: normalized(sentence) for sentences in sets.values() for sentence in sentences}
    known = set(normal.values()) - {""}
    exact: set[str] = set()
    rows: Counter[str] = Counter()
    for cell in cells:
        if (form := normalized(cell)) in known:
            rows[form] += 1
            exact.add(one_line(cell))
    return [
        leak for name, sentences in sets.items() if (leak := _leak(name, sentences, normal, exact, rows)).same_words
    ]


def normalized(sentence: str) -> str:
    """Return the words of a sentence, ignoring case and punctuation."""
    return " ".join(words(sentence))


def _leak(
    name: str, sentences: Sequence[str], normal: Mapping[str, str], exact: Collection[str], rows: Mapping[str, int]
) -> Leak:
    found = [sentence for sentence in sentences if normal[sentence] in rows]
    return Leak(
        name,
        len(sentences),
        sum(sentence in exact for sentence in found),
        len(found),
        sum(rows[form] for form in {normal[sentence] for sentence in found}),
        tuple(found[:EXAMPLES]),
    )

"""Queries with their right answers, from pairs. Registers nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from registry import catalogue
from registry.catalogue import Column, Pair
from registry.errors import CseError, UnknownNameError, suggestion
from registry.evaluators.sts import one_line


@dataclass(frozen=True)
class Questions:
    """Queries to be answered from candidates; white space is single blanks.

    Args:
        queries: Distinct queries that have a right answer.
        candidates: Distinct second sentences of all pairs.
        right: For each query the indices of its right answers.
    """

    queries: list[str]
    candidates: list[str]
    right: list[list[int]]

    @property
    def hidden(self) -> list[list[int]]:
        """For each query the candidate that is the same text, unless it is a right answer."""
        at = {text: place for place, text in enumerate(self.candidates)}
        own = [(at.get(query), answers) for query, answers in zip(self.queries, self.right, strict=True)]
        return [[] if place is None or place in answers else [place] for place, answers in own]


def questions(pairs: Sequence[Pair], min_score: float | None) -> Questions:
    """Return what the pairs ask.

    Raises:
        CseError: No pair scores as high as `min_score`, or there is one candidate only.
    """
    candidates = {text: place for place, text in enumerate(dict.fromkeys(one_line(pair.second) for pair in pairs))}
    right: dict[str, set[int]] = {}
    for pair in pairs:
        if min_score is None or pair.score >= min_score:
            right.setdefault(one_line(pair.first), set()).add(candidates[one_line(pair.second)])
    if not right:
        best = max(pair.score for pair in pairs)
        raise CseError(f"no pair scores {min_score:g} or more: the highest is {best:g}", "lower `min_score`")
    if len(candidates) == 1:
        raise CseError("all pairs have the same second sentence: nothing to choose from", "add pairs with others")
    return Questions(list(right), list(candidates), [sorted(answers) for answers in right.values()])


def dataset_pairs(dataset: str, split: str, columns: Sequence[Column]) -> list[Pair]:
    """Return two columns of a data set as pairs; a third one is their score.

    Raises:
        CseError: A cell is empty, or a score is no number.
        UnknownNameError: There is no such column.
    """
    known = catalogue.entry(dataset).columns_of(split)
    for column in columns:
        if column.name not in known:
            raise UnknownNameError(
                f"dataset '{dataset}/{split}' has no column '{column.name}'.{suggestion(column.name, known)}",
                f"give `{column.parameter}` the right name; there are {', '.join(known)}",
            )
    first, second, *scored = (column.name for column in columns)
    rows = enumerate(catalogue.open_text(dataset, split), start=1)
    return [_pair(f"{dataset}/{split}: row {n}", row[first], row[second], *(row[s] for s in scored)) for n, row in rows]


def _pair(place: str, first: str, second: str, score: str = "nan") -> Pair:
    if not (first.strip() and second.strip()):
        raise CseError(f"{place}: a sentence is empty", "use another split, or your own `file`")
    try:
        return Pair("", float(score), first, second)
    except ValueError:
        raise CseError(f"{place}: the score {score!r} is no number", "give `score_column` the right name") from None

"""Retrieval: is the right answer among the candidates nearest to a query?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from registry import EVALUATORS, catalogue
from registry.catalogue import Column, Pair, PairFile
from registry.errors import CseError, UnknownNameError, suggestion
from registry.evaluators.pairs import PairEvaluator, one_line
from registry.types import DatasetName, Encode, FileName

KS = (1, 5, 10)


@EVALUATORS.register("retrieval_at_k")
class RetrievalAtK(PairEvaluator):
    """Find each query's right answers among all second sentences by cosine, × 100.

    recall@k = mean over queries of |right answers among the k nearest| / |right answers|; with one right answer each,
    the accuracy@k. mrr = mean over queries of 1 / rank of the first right answer.

    A query is a distinct first sentence; its right answers are the second sentences it is paired with, and every
    distinct second sentence is a candidate for every query, but for the query's own text where that is no right
    answer. Every cosine is computed, none approximated. Ties go against the model: a wrong candidate as near as a right
    one, within 1e-6, stands before it, so a collapsed encoder finds nothing.

    Source: the standard measures of information retrieval (Manning, Raghavan and Schütze 2008, section 8.4);
    accuracy@1 of translations is Tatoeba's (Artetxe and Schwenk 2019).
    Doubtful: whether low-scored pairs are right answers; all are unless `min_score` says which, and the second
    sentences of the others then stay candidates.

    Args:
        dataset: Name in the data catalogue; or give `file`.
        split: Split of it, or of the hub's; "all" joins the splits of `dataset`. Of a file, what it counts as: only
            "dev" and the like may select.
        file: Pairs of your own instead: a .tsv, .csv, .jsonl (plain or .gz) or .parquet with named columns; a relative
            path counts from the current folder, then from $CSE_DATA. Or a data set of the hub, "hf:owner/name".
        query_column: Column with the queries.
        positive_column: Column with the right answers.
        score_column: Column with the score that `min_score` is held against.
        min_score: Least score of a right answer; without it, every pair is one and scores are not read.
    """

    metric: ClassVar[str] = "recall_at_1"
    metrics: ClassVar[tuple[str, ...]] = ("recall_at_1", "recall_at_5", "recall_at_10", "mrr")

    def __init__(
        self,
        dataset: DatasetName | None = None,
        split: str = "test",
        file: FileName | None = None,
        query_column: str = "query",
        positive_column: str = "positive",
        score_column: str = "score",
        min_score: float | None = None,
    ) -> None:
        catalogue.require_one("retrieval_at_k", dataset, file)
        self.dataset = dataset or ""
        self.split = split
        self.min_score = min_score
        self.columns = [Column("query_column", query_column), Column("positive_column", positive_column)]
        if min_score is not None:
            self.columns.append(Column("score_column", score_column))
        if file is not None:
            first, second, *scored = self.columns
            self.own = PairFile(file, first, second, scored[0] if scored else None, split=split)
            self._questions()  # a malformed file is reported before training, not after

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return the recall at each k and the mean reciprocal rank."""
        asked = self._questions()
        rows = {text: row for row, text in enumerate(dict.fromkeys([*asked.candidates, *asked.queries]))}
        vectors = encode(list(rows))
        queries = vectors[[rows[text] for text in asked.queries]]
        found = ranks(queries, vectors[: len(asked.candidates)], asked.right, asked.hidden)
        recalls = {
            f"recall_at_{k}": 100 * sum(sum(rank <= k for rank in each) / len(each) for each in found) / len(found)
            for k in KS
        }
        return {**recalls, "mrr": 100 * sum(1 / each[0] for each in found) / len(found)}

    def texts(self) -> list[str]:
        """Return every distinct sentence of the pairs."""
        asked = self._questions()
        return list(dict.fromkeys([*asked.candidates, *asked.queries]))

    def pairs(self) -> Sequence[Pair]:
        """Return the pairs of the chosen columns."""
        if self.own is not None:
            return self.own.pairs
        return dataset_pairs(self.dataset, self.split, self.columns)

    def _questions(self) -> Questions:
        return questions(self.pairs(), self.min_score)


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
        CseError: A cell is empty, or a score is not a number.
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
        raise CseError(f"{place}: the score {score!r} is not a number", "give `score_column` the right name") from None


TIE = 1e-6
"""Cosines this near are equal: float32 vectors of one sentence differ by about a tenth of it from batch to batch."""
ANSWERS, CANDIDATES = 1024, 4096
"""Cosines computed at a time."""


def ranks(
    queries: Tensor, candidates: Tensor, right: Sequence[Sequence[int]], hidden: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Return the ranks of each query's right answers, from 1, best first.

    A wrong candidate as near as a right answer stands before it, so that a collapsed encoder finds nothing. A right
    answer stands before those of the same query that are farther off.

    Args:
        queries: (q, D)
        candidates: (c, D)
        right: For each query the candidates that answer it, at least one.
        hidden: For each query other candidates that are left out.
    """
    owner = torch.tensor([query for query, answers in enumerate(right) for _ in answers])
    answer = torch.tensor([candidate for answers in right for candidate in answers])
    found: list[list[tuple[float, int]]] = [[] for _ in right]
    for start in range(0, len(owner), ANSWERS):
        rows = slice(start, start + ANSWERS)
        nearness, before = _wrong_before(queries, candidates, (owner[rows], answer[rows]), (right, hidden))
        for query, near, wrong in zip(owner[rows].tolist(), nearness, before, strict=True):
            found[query].append((-near, wrong))
    return [[wrong + place for place, (_, wrong) in enumerate(sorted(each), start=1)] for each in found]


def _wrong_before(
    queries: Tensor,
    candidates: Tensor,
    pairs: tuple[Tensor, Tensor],
    left_out: tuple[Sequence[Sequence[int]], ...],
) -> tuple[list[float], list[int]]:
    """Return the cosine of each query with its answer, and how many wrong candidates are as near."""
    owner, answer = pairs
    distinct, row = torch.unique_consecutive(owner, return_inverse=True)
    asked = unit(queries[distinct])
    nearness = (asked[row] * unit(candidates[answer])).sum(dim=1)
    skip = [(place, c) for place, query in enumerate(distinct.tolist()) for each in left_out for c in each[query]]
    lines, columns = torch.tensor(skip).T
    before = torch.zeros(len(owner), dtype=torch.long)
    for start in range(0, len(candidates), CANDIDATES):
        block = unit(candidates[start : start + CANDIDATES])
        cosines = asked @ block.T
        here = (columns >= start) & (columns < start + len(block))
        cosines[lines[here], columns[here] - start] = -torch.inf
        before += (cosines[row] >= nearness[:, None] - TIE).sum(dim=1)
    return nearness.tolist(), before.tolist()


def unit(vectors: Tensor) -> Tensor:
    """Return vectors (n, D) at length 1, in double precision; NaN counts as 0, and a vector of zeros stays."""
    clean = vectors.double().nan_to_num()
    length: Tensor = clean.norm(dim=1, keepdim=True)
    return clean / length.where(length > 0, 1.0)

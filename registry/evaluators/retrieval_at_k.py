"""Retrieval of the right answer among the candidates nearest to a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from registry import EVALUATORS
from registry.errors import CseError
from registry.evaluators.pairs import PairEvaluator, one_line
from registry.resources import catalog
from registry.resources.catalog import Pair, PairFile
from registry.resources.rows import Column
from registry.types import DatasetName, Encode, FileName
from registry.words import bm25

KS = (1, 5, 10)


@EVALUATORS.register("retrieval_at_k")
class RetrievalAtK(PairEvaluator):
    """Find each query's right answers among all second sentences by cosine similarity, × 100.

    recall@k = mean over queries of |right answers among the k nearest| / |right answers|. For queries with
    one right answer, this is the accuracy@k. mrr = mean over queries of 1 / rank of the first right answer.

    A query is a distinct first sentence. Its right answers are the second sentences of its pairs. The candidates are
    all distinct second sentences, except the query's own text if that is not a right answer. All similarities are
    computed, without approximation. Queries have the model's prompt for queries, and candidates the one for documents.
    A wrong candidate within 1e-6 of a right one is ranked before it, so a collapsed encoder has score 0.

    Source: the standard measures of information retrieval (Manning, Raghavan and Schütze 2008, section 8.4);
    accuracy@1 of translations is Tatoeba's (Artetxe and Schwenk 2019).
    Doubtful: whether pairs with a low score are right answers. All are, unless `min_score` is set. The second sentences
    of the other pairs then remain candidates.

    Args:
        dataset: Data set in the catalog. Alternative to `file`.
        split: Split of the data set or of the Hub data set, or role of the file. "all" joins the splits of `dataset`.
            Only splits such as "dev" can select checkpoints.
        file: Your own pairs: a .tsv, .csv, .jsonl (plain or .gz) or .parquet file with named columns. A relative path
            is resolved against the current directory, then against $CSE_DATA. Or a Hub data set, "hf:owner/name".
        query_column: Column with the queries.
        positive_column: Column with the right answers.
        score_column: Column with the scores for `min_score`.
        min_score: Minimum score of a right answer. Default: every pair is one, and scores are not read.

    Example:
        [evaluators.translations]
        name = "retrieval_at_k"
        dataset = "tatoeba_open"
        split = "train"
        query_column = "text"
        positive_column = "translation"
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
        catalog.require_one("retrieval_at_k", dataset, file)
        self.dataset = dataset or ""
        self.split = split
        self.min_score = min_score
        self._first: list[float] = []
        self.columns = [Column("query_column", query_column), Column("positive_column", positive_column)]
        if min_score is not None:
            self.columns.append(Column("score_column", score_column))
        if file is not None:
            first, second, *scored = self.columns
            self.own = PairFile(file, first, second, scored[0] if scored else None, split=split)
            self._questions()  # report a malformed file before training

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return the recall for each k, and the mean reciprocal rank."""
        asked = self._questions()
        queries, candidates = encode(asked.queries, "query"), encode(asked.candidates, "document")
        found = ranks(queries, candidates, asked.right, asked.hidden)
        self._first = [1 / each[0] for each in found]
        return _metrics(found)

    def series(self) -> Mapping[str, Sequence[float]]:
        """Return "reciprocal_rank" of each query's first right answer, and "answer".

        This is the number of the right answer, or another number for each query with several.
        """
        asked = enumerate(self._questions().right)
        answers = [float(right[0]) if len(right) == 1 else -1.0 - place for place, right in asked]
        return {"reciprocal_rank": self._first, "answer": answers} if self._first else {}

    def word_overlap(self) -> dict[str, float]:
        """Return the metrics with `registry.words.bm25` instead of the cosine. Ties go against it."""
        asked, found = self._questions(), []
        for scores, right, hidden in zip(bm25(asked.queries, asked.candidates), asked.right, asked.hidden, strict=True):
            answers = np.sort(scores[right])[::-1]
            wrong = np.delete(scores, [*right, *hidden])
            found.append([place + int((wrong >= answer).sum()) for place, answer in enumerate(answers, start=1)])
        return _metrics(found)

    def texts(self) -> list[str]:
        """Return every distinct sentence of the pairs."""
        asked = self._questions()
        return list(dict.fromkeys([*asked.candidates, *asked.queries]))

    def all_pairs(self) -> Sequence[Pair]:
        """Return the pairs of the selected columns."""
        return catalog.read_columns(self.dataset, self.split, self.columns) if self.own is None else self.own.pairs

    def _questions(self) -> Questions:
        """Return the queries and candidates of the pairs."""
        pairs = self.pairs()
        candidates = {text: place for place, text in enumerate(dict.fromkeys(one_line(pair.second) for pair in pairs))}
        right: dict[str, set[int]] = {}
        for pair in pairs:
            if self.min_score is None or pair.score >= self.min_score:
                right.setdefault(one_line(pair.first), set()).add(candidates[one_line(pair.second)])
        if not right:
            best = max(pair.score for pair in pairs)
            raise CseError(
                f"retrieval_at_k: no score is min_score = {self.min_score:g} or more (highest: {best:g})",
                f"set min_score = {best:g} or less",
                code="evaluators.no_such_score",
            )
        if len(candidates) == 1:
            raise CseError(
                "retrieval_at_k: all pairs have the same second sentence",
                "use data with at least two second sentences",
                code="evaluators.one_candidate",
            )
        return Questions(list(right), list(candidates), [sorted(answers) for answers in right.values()])


@dataclass(frozen=True)
class Questions:
    """Queries and candidates, with white space reduced to single spaces.

    Args:
        queries: Distinct queries with a right answer.
        candidates: Distinct second sentences of all pairs.
        right: Indices of the right answers for each query.
    """

    queries: list[str]
    candidates: list[str]
    right: list[list[int]]

    @cached_property
    def hidden(self) -> list[list[int]]:
        """For each query, the candidate with the same text unless it is a right answer."""
        at = {text: place for place, text in enumerate(self.candidates)}
        own = [(at.get(query), answers) for query, answers in zip(self.queries, self.right, strict=True)]
        return [[] if place is None or place in answers else [place] for place, answers in own]


def _metrics(found: Sequence[Sequence[int]]) -> dict[str, float]:
    """Return the metrics of the ranks of each query's right answers."""
    recalls = {
        f"recall_at_{k}": 100 * sum(sum(rank <= k for rank in each) / len(each) for each in found) / len(found)
        for k in KS
    }
    return {**recalls, "mrr": 100 * sum(1 / each[0] for each in found) / len(found)}


TIE = 1e-6
"""Tolerance of equal cosines. The float32 embeddings of a sentence in two batches differ by about a tenth of it."""
ANSWERS, CANDIDATES = 1024, 4096
"""Maximum number of rows and columns of cosines in memory."""


def ranks(
    queries: Tensor, candidates: Tensor, right: Sequence[Sequence[int]], hidden: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Return the ranks of each query's right answers, from 1, best first.

    A wrong candidate as near as a right answer is ranked before it, so a collapsed encoder has score 0. Of the right
    answers of a query, the nearest is ranked first.

    Args:
        queries: (q, D)
        candidates: (c, D)
        right: Indices of the right answers of each query, at least one.
        hidden: Indices of excluded candidates of each query.
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
    """Return the cosine of each query with its answer, and the number of wrong candidates that are as near."""
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
    """Return (n, D) rows of length 1 in double precision. NaN counts as 0, and zero rows do not change."""
    clean = vectors.double().nan_to_num()
    length: Tensor = clean.norm(dim=1, keepdim=True)
    return clean / length.where(length > 0, 1.0)

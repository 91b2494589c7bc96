"""Retrieval: is the right answer among the candidates nearest to a query?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from registry import EVALUATORS, catalogue
from registry.catalogue import Column, Pair, PairFile
from registry.evaluators.query_pairs import Questions, dataset_pairs, questions
from registry.evaluators.ranking import ranks
from registry.types import DatasetName, Encode, Evaluator, FileName

KS = (1, 5, 10)


@EVALUATORS.register("retrieval_at_k")
class RetrievalAtK(Evaluator):
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
        catalogue.demand_one("retrieval_at_k", dataset, file)
        self.dataset = dataset or ""
        self.split = split
        self.min_score = min_score
        self.columns = [Column("query_column", query_column), Column("positive_column", positive_column)]
        if min_score is not None:
            self.columns.append(Column("score_column", score_column))
        self.own: PairFile | None = None
        if file is not None:
            first, second, *scored = self.columns
            self.own = PairFile(file, first, second, scored[0] if scored else None, split=split)
            self._questions()  # what is wrong with the file is told before training, not after

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

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split", or "file/split", → content digest."""
        if self.own is not None:
            return self.own.fingerprints(self.split)
        return {f"{self.dataset}/{self.split}": catalogue.fingerprint(self.dataset, self.split)}

    def _questions(self) -> Questions:
        return questions(self._pairs(), self.min_score)

    def _pairs(self) -> Sequence[Pair]:
        if self.own is not None:
            return self.own.pairs
        return dataset_pairs(self.dataset, self.split, self.columns)

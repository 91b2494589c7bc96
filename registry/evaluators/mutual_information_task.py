"""How much a sentence tells of one that people find equal: IFCL's MI_task."""

from __future__ import annotations

from typing import Any

from registry import EVALUATORS
from registry.errors import CseError
from registry.evaluators.mutual_information import MutualInformationBound, errors_at, mutual_information
from registry.evaluators.pairs import PairEvaluator, one_line
from registry.types import DatasetName, Encode, ViewName


@EVALUATORS.register("mutual_information_task")
class MutualInformationTask(PairEvaluator, MutualInformationBound):
    """Bound the mutual information of sentences that people gave one gold score, the highest, from below, in nats.

    MI as in `mutual_information`, with h and h* the vectors of a pair's two sentences, over the pairs whose gold score
    is `gold` exactly, N of them a chunk in the order of the data; an incomplete last chunk is left out.

    Both sentences go through one view in training mode; the draws differ from place to place, so a sentence that stands
    on both sides has two vectors. With `training` off they are evaluation's vectors of the changed sentences.

    Shapes: n pairs → (n, D) for each side.

    Source: IFCL (Xiao et al. 2023, equation 10 and Table 4: the closer to the views' values, the better).
    Doubtful: N is not given. All of STS-B has 419 pairs of score 5, its test split 97: log 97 = 4.57, and 4.58 is
    printed. Here N = 128 on all of it (`mi_n`, `split`); else as `mutual_information` (methods/ifcl.md A21).

    Args:
        view: The view whose augmenters the sentences go through, none of which may read a second column.
        dataset: Name in the data catalogue, scored pairs.
        split: Split of it; "all" joins its splits.
        gold: Score of the pairs compared.
        column: The view's own column, as the recipe calls it.
    """

    def __init__(
        self,
        view: ViewName,
        dataset: DatasetName = "stsb",
        split: str = "all",
        gold: float = 5.0,
        column: str = "text",
        **bound: Any,
    ) -> None:
        super().__init__(**bound)
        self.view, self.dataset, self.split = view, dataset, split
        self.gold, self.column = gold, column

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return the mutual information and its bound."""
        where = f"mutual_information_task, {self.dataset}/{self.split}"
        pairs = self.pairs()
        equal = [pair for pair in pairs if pair.score == self.gold]
        if not equal:
            best = max(pair.score for pair in pairs)
            raise CseError(f"{where}: no pair scores {self.gold:g}; the highest is {best:g}", f"set gold = {best:g}")
        sides = [one_line(pair.first) for pair in equal] + [one_line(pair.second) for pair in equal]
        with errors_at(where):
            vectors = encode.encode_view(self.view, {self.column: sides}, training=self.training)
            return mutual_information(vectors[: len(equal)], vectors[len(equal) :], self.mi_n, self.temperature)

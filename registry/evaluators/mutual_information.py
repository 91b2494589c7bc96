"""Mutual information of two views of a sentence: IFCL's equation 10."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from registry import EVALUATORS
from registry.errors import CseError
from registry.evaluators.pairs import finite, unit
from registry.resources import catalog
from registry.resources.catalog import ROWS, require_own_file
from registry.resources.rows import Source, own_source
from registry.types import DatasetName, Encode, Evaluator, FileName, ViewName


class MutualInformationBound(Evaluator):
    """Lower bound of the mutual information of corresponding embeddings.

    Args:
        mi_n: Number N of rows or pairs in a chunk.
        temperature: Temperature τ.
        training: Use the embeddings of the losses instead of those of evaluation.
    """

    metric: ClassVar[str] = "mutual_information"
    metrics: ClassVar[tuple[str, ...]] = ("mutual_information", "bound")

    def __init__(
        self,
        *,
        mi_n: Annotated[int, Field(ge=2)] = 128,
        temperature: Annotated[float, Field(gt=0)] = 0.05,
        training: bool = True,
    ) -> None:
        self.mi_n, self.temperature, self.training = mi_n, temperature, training


@EVALUATORS.register("mutual_information")
class MutualInformation(MutualInformationBound):
    """Bound the mutual information of two views of a sentence from below, in nats.

    MI(h, h*) = log N + (1/N) Σᵢ log( e^{cos(hᵢ,h*ᵢ)/τ} / Σⱼ e^{cos(hᵢ,h*ⱼ)/τ} ), j over the N sentences of a chunk,
    averaged over chunks. It cannot exceed log N, the metric `bound`, so values with different N cannot be compared. An
    incomplete last chunk is omitted.

    h and h* are the embeddings of the losses: those of the evaluated encoder with dropout, and with the pooling and the
    heads of training, for each encoder of the views. The random numbers differ between the views and are the same in
    every call. Without `training` they are the embeddings of evaluation, so two views without augmenters are identical.

    Shapes: n sentences → (n, D) for each view.

    Source: IFCL (Xiao et al. 2023, equation 10 and Table 4, which presents lower as better).
    Doubtful: N, τ, pooling and dropout are not given (methods/ifcl.md A21). The batch size N = 64 is impossible,
    because 4.58 is reported and log 64 = 4.16. Here N = 128 (`mi_n`), τ = 0.05 (`temperature`), with the pooling and
    dropout of training (`training`). The sentences of EnData are not given either. Here they are the first `limit`.

    Args:
        first: View of h.
        second: View of h*.
        dataset: Data set in the catalog with the columns that the views read. Alternative to `file`.
        file: Your own text: a .txt file with one sentence per line, or a .tsv or .csv file with a header, plain or .gz.
            A relative path is resolved against the current directory, then against $CSE_DATA.
        split: Split of the data set, or role of the file. Only splits such as "dev" and "train" can select checkpoints.
        limit: Maximum number of rows.

    Example:
        [evaluators.mutual_information]
        name = "mutual_information"
        first = "anchor"
        second = "identical"
        dataset = "tatoeba_open"
    """

    def __init__(
        self,
        first: ViewName,
        second: ViewName,
        dataset: DatasetName | None = None,
        file: FileName | None = None,
        split: str = "train",
        limit: Annotated[int, Field(ge=2)] = 6400,
        **bound: Any,
    ) -> None:
        super().__init__(**bound)
        catalog.require_one("mutual_information", dataset, file)
        if first == second:
            raise CseError(
                f"mutual_information: first and second are both the view '{first}', so each embedding would be "
                "compared with itself",
                "set `first` and `second` to two views of the recipe, which can differ only by dropout",
                code="evaluators.same_view",
            )
        self.first, self.second = first, second
        self.name = f"{dataset or file}/{split}"
        self.dataset, self.file, self.split, self.limit = dataset, file, split, limit
        if file is not None:
            self._source  # noqa: B018 - report an unreadable file before training

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return the mutual information and its bound."""
        rows = list(islice(self._source.rows(), self.limit))
        columns = {name: [row[place] for row in rows] for place, name in enumerate(self._source.columns)}
        with prefix_errors(f"mutual_information, {self.name}"):
            views = self.first, self.second
            one, other = (encode.encode_view(view, columns, training=self.training) for view in views)
            return mutual_information(one, other, self.mi_n, self.temperature)

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split", or "file/split", → content digest of all rows."""
        return {self.name: ROWS + self._source.digest}

    @cached_property
    def _source(self) -> Source:
        if self.dataset is not None:
            return catalog.locate(self.dataset, self.split)
        action = "use a path relative to the current directory or to $CSE_DATA, or an absolute path"
        return own_source(require_own_file(self.file or "", "text for mutual_information", action))


def mutual_information(first: Tensor, second: Tensor, size: int, temperature: float) -> dict[str, float]:
    """Return "mutual_information" in nats, averaged over chunks of `size` rows, and its "bound", log `size`.

    Each chunk: log N + (1/N) Σᵢ log( e^{cos(hᵢ,h*ᵢ)/τ} / Σⱼ e^{cos(hᵢ,h*ⱼ)/τ} ), in double precision. An incomplete
    last chunk is omitted, because its bound is different.

    Args:
        first: (n, D) h. Values that are not finite count as 0.
        second: (n, D) h*. Row i corresponds to row i of `first`.
        size: Number N of rows in a chunk.
        temperature: Temperature τ.
    """
    if len(first) < size:
        raise CseError(
            f"{len(first)} rows are fewer than mi_n = {size}",
            f"set mi_n = {len(first)} or less",
            code="evaluators.too_few_rows",
        )
    one, other = (unit(finite(side)) for side in (first, second))
    chunks = len(first) // size
    total = 0.0
    for start in range(0, chunks * size, size):
        logits = one[start : start + size] @ other[start : start + size].T / temperature
        total += float(torch.log_softmax(logits, dim=1).diagonal().mean())
    return {"mutual_information": math.log(size) + total / chunks, "bound": math.log(size)}


@contextmanager
def prefix_errors(where: str) -> Iterator[None]:
    """Add `where` at the beginning of error messages."""
    try:
        yield
    except CseError as error:
        raise type(error)(f"{where}: {error.message}", error.next_action, code=error.code) from error

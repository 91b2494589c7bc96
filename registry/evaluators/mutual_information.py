"""How much two views of a sentence tell of each other: IFCL's equation 10."""

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

from registry import EVALUATORS, catalogue
from registry.catalogue import Source, own_source
from registry.catalogue.find import require_own_file
from registry.catalogue.pairs import ROWS
from registry.errors import CseError
from registry.evaluators.pairs import finite, unit
from registry.types import DatasetName, Encode, Evaluator, FileName, ViewName


class MutualInformationBound(Evaluator):
    """Bounds from below the mutual information of vectors that belong together.

    Args:
        mi_n: N, rows or pairs a chunk.
        temperature: τ.
        training: Compare what losses compare, instead of what evaluation does.
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
    averaged over chunks. It cannot exceed log N, returned beside it as `bound`: numbers of different N cannot be
    compared. An incomplete last chunk is left out.

    h and h* are what losses compare: the scored encoder's vectors with dropout on, the pooling and the heads of
    training, whatever encoder the views go through there. The draws differ between the views and are the same in every
    call. With `training` off they are what evaluation compares, and two views without augmenters are one.

    Shapes: n sentences → (n, D) for each view.

    Source: IFCL (Xiao et al. 2023, equation 10 and Table 4: lower is presented as better).
    Doubtful: N, τ, pooling and dropout are not given (methods/ifcl.md A21). N = 64, the batch size, is excluded: 4.58
    is printed, and log 64 = 4.16. Here N = 128 (`mi_n`), τ = 0.05 (`temperature`), training's pooling and dropout
    (`training`). Which sentences of EnData is open too: the first `limit`, in order.

    Args:
        first: The view that gives h.
        second: The view that gives h*.
        dataset: Name in the data catalogue, with the columns that the views read; or give `file`.
        file: Text of your own instead: a .txt, a sentence a line, or a .tsv or .csv with a header, plain or .gz. A
            relative path counts from the current folder, then from $CSE_DATA.
        split: Split of the data set. Of a file, what it counts as: only "dev", "train" and the like may select.
        limit: Rows read.
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
        catalogue.require_one("mutual_information", dataset, file)
        if first == second:
            raise CseError(
                f"mutual_information: first and second are both the view '{first}', whose draws are the same every "
                "time: a vector would be compared with itself",
                "name two views of the recipe; they may differ by their dropout masks alone",
            )
        self.first, self.second = first, second
        self.name = f"{dataset or file}/{split}"
        self.dataset, self.file, self.split, self.limit = dataset, file, split, limit
        if file is not None:
            self._source  # noqa: B018 - a file that cannot be read is reported before training, not after

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return the mutual information and its bound."""
        rows = list(islice(self._source.rows(), self.limit))
        columns = {name: [row[place] for row in rows] for place, name in enumerate(self._source.columns)}
        with errors_at(f"mutual_information, {self.name}"):
            views = self.first, self.second
            one, other = (encode.encode_view(view, columns, training=self.training) for view in views)
            return mutual_information(one, other, self.mi_n, self.temperature)

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split", or "file/split", → content digest of all rows."""
        return {self.name: ROWS + self._source.digest}

    @cached_property
    def _source(self) -> Source:
        if self.dataset is not None:
            return catalogue.locate(self.dataset, self.split)
        action = "a relative path counts from the current folder, then from $CSE_DATA"
        return own_source(require_own_file(self.file or "", "text for mutual_information", action))


def mutual_information(first: Tensor, second: Tensor, size: int, temperature: float) -> dict[str, float]:
    """Return "mutual_information" in nats, averaged over chunks of `size` rows in order, and its "bound", log `size`.

    Each chunk: log N + (1/N) Σᵢ log( e^{cos(hᵢ,h*ᵢ)/τ} / Σⱼ e^{cos(hᵢ,h*ⱼ)/τ} ), in double precision. An incomplete
    last chunk is left out, for its bound would be another.

    Args:
        first: (n, D) h; what is not finite is 0.
        second: (n, D) h*, row i the counterpart of row i.
        size: N.
        temperature: τ.

    Raises:
        CseError: There are fewer rows than `size`.
    """
    if len(first) < size:
        raise CseError(f"{len(first)} rows, which is less than one chunk of {size}", f"set mi_n = {len(first)} or less")
    one, other = (unit(finite(side)) for side in (first, second))
    chunks = len(first) // size
    total = 0.0
    for start in range(0, chunks * size, size):
        logits = one[start : start + size] @ other[start : start + size].T / temperature
        total += float(torch.log_softmax(logits, dim=1).diagonal().mean())
    return {"mutual_information": math.log(size) + total / chunks, "bound": math.log(size)}


@contextmanager
def errors_at(where: str) -> Iterator[None]:
    """Put `where` before the message of an error in the block."""
    try:
        yield
    except CseError as error:
        raise type(error)(f"{where}: {error.message}", error.next_action) from error

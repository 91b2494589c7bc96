"""How much two views of a sentence tell of each other: IFCL's equation 10."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from registry import EVALUATORS
from registry.errors import CseError
from registry.evaluators.information import mutual_information
from registry.evaluators.text_source import TextSource
from registry.types import Encode, Evaluator, ViewName


@EVALUATORS.register("mutual_information")
class MutualInformation(Evaluator):
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
        mi_n: N, rows a chunk.
        temperature: τ.
        training: Compare what losses compare, instead of what evaluation does.
    """

    metric: ClassVar[str] = "mutual_information"
    metrics: ClassVar[tuple[str, ...]] = ("mutual_information", "bound")

    def __init__(
        self,
        first: ViewName,
        second: ViewName,
        dataset: str | None = None,
        file: str | None = None,
        split: str = "train",
        limit: Annotated[int, Field(ge=2)] = 6400,
        mi_n: Annotated[int, Field(ge=2)] = 128,
        temperature: Annotated[float, Field(gt=0)] = 0.05,
        training: bool = True,
    ) -> None:
        if first == second:
            raise CseError(
                f"mutual_information: first and second are both the view '{first}', whose draws are the same every "
                "time: a vector would be compared with itself",
                "name two views of the recipe; they may differ by their dropout masks alone",
            )
        self.first, self.second = first, second
        self.text = TextSource("mutual_information", dataset, file, split, limit)
        self.mi_n = mi_n
        self.temperature = temperature
        self.training = training

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return the mutual information and its bound."""
        columns = self.text.columns()
        try:
            one, other = (encode.through(view, columns, training=self.training) for view in (self.first, self.second))
            return mutual_information(one, other, self.mi_n, self.temperature)
        except CseError as error:
            where = f"mutual_information, {self.text.name}"
            raise type(error)(f"{where}: {error.message}", error.next_action) from error

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split", or "file/split", → content digest."""
        return self.text.fingerprints()

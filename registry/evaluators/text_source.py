"""Rows of training text, for evaluators that look through views. Registers nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from registry import catalogue
from registry.catalogue import Source, own_source
from registry.catalogue.find import own_file
from registry.catalogue.pairs import ROWS
from registry.errors import MissingError


@dataclass(frozen=True)
class TextSource:
    """The first rows of a data set, or of a file of the user's own.

    Args:
        owner: The evaluator, for messages.
        dataset: Name in the data catalogue; or
        file: a `.txt`, a sentence a line, or a `.tsv` or `.csv` with a header, plain or `.gz`; a relative path counts
            from the current folder, then from $CSE_DATA.
        split: Split of the data set.
        limit: Rows read.

    Raises:
        CseError: Not exactly one of `dataset` and `file` is given, or the file is of another format.
        MissingError: There is no such file.
    """

    owner: str
    dataset: str | None
    file: str | None
    split: str
    limit: int

    def __post_init__(self) -> None:
        catalogue.demand_one(self.owner, self.dataset, self.file)
        if self.file is not None:
            self._source  # noqa: B018 - what is wrong with the file is told before training, not after

    def columns(self) -> dict[str, list[str]]:
        """Return column → cells."""
        source = self._source
        rows = list(islice(source.rows(), self.limit))
        return {name: [row[place] for row in rows] for place, name in enumerate(source.columns)}

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split", or "file/split", → content digest of all rows."""
        return {self.name: ROWS + self._source.digest}

    @property
    def name(self) -> str:
        """What to call it: "dataset/split", or "file/split"."""
        return f"{self.dataset or self.file}/{self.split}"

    @cached_property
    def _source(self) -> Source:
        if self.dataset is not None:
            return catalogue.locate(self.dataset, self.split)
        assert self.file is not None
        path = own_file(self.file)
        if path is None:
            raise MissingError(
                f"{self.owner}: no file {self.file}", "a relative path counts from the current folder, then $CSE_DATA"
            )
        return own_source(path)

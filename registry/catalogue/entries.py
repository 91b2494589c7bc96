"""What the catalogue says of each data set: one TOML file under `registry/datasets/` an entry."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from registry.errors import CseError, RegistrationError, UnknownNameError, suggestion

FOLDER = Path(__file__).parent.parent / "datasets"
PAIR_COLUMNS = ("subset", "score", "sentence1", "sentence2")
ALL = "all"

Kind = Literal["text", "pairs", "labelled"]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Split(_Table):
    """One part of a data set.

    Args:
        rows: Rows it must have, header left out.
        path: File below `$CSE_DATA`; empty where the split is only generated or only joined from others.
        hub: File names or patterns in the hub repository; their rows are joined in name order.
        columns: Columns of this split where they differ from the entry's.
    """

    rows: int = Field(gt=0)
    path: str = ""
    hub: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


class Layout(_Table):
    """How the columns stand in a file.

    Args:
        header: Whether the first line names the columns; without one, columns stand in the entry's order.
        source: Our column → the file's column, where the names differ; an empty name means the file has no such column
            and every row gets an empty value.
    """

    header: bool = True
    source: dict[str, str] = Field(default_factory=dict)


class Hub(Layout):
    """A data set repository of the Hugging Face hub.

    Args:
        id: Repository, "owner/name".
        revision: Commit, or the name of a branch where no commit could be looked up.
    """

    id: str
    revision: str = "main"

    @property
    def pinned(self) -> bool:
        """Whether the revision is a commit, so that the content cannot change."""
        return len(self.revision) == 40 and all(c in "0123456789abcdef" for c in self.revision)


class Generated(_Table):
    """A registered generator and its parameters."""

    name: str
    params: dict[str, Any] = Field(default_factory=dict)

    @property
    def sources(self) -> tuple[tuple[str, str], ...]:
        """Name and split of the data sets it is made from, which its parameter `sources` lists."""
        return tuple(map(dataset_and_split, self.params.get("sources", ())))


class DatasetEntry(_Table):
    """A named data set.

    Args:
        kind: "text" to train on, "pairs" with a gold score, "labelled" for classification.
        language: ISO 639-3 or two-letter code; "en-de" for parallel text.
        columns: Column names as the rest of the code knows them.
        note: What a reader must know before using it.
        local: Layout of the files below `$CSE_DATA`.
    """

    name: str
    title: str
    kind: Kind
    language: str
    licence: str
    citation: str
    url: str = ""
    columns: tuple[str, ...]
    note: str = ""
    local: Layout = Layout()
    hub: Hub | None = None
    generator: Generated | None = None
    splits: dict[str, Split]

    def split(self, name: str) -> Split:
        """Return one split; "all" joins the others where the entry has none of that name.

        Raises:
            UnknownNameError: There is no such split.
        """
        if name in self.splits:
            return self.splits[name]
        if name == ALL and self.joinable:
            return Split(rows=sum(split.rows for split in self.splits.values()))
        known = [*self.splits, ALL] if self.joinable else list(self.splits)
        raise UnknownNameError(
            f"dataset '{self.name}' has no split '{name}'.{suggestion(name, known)}",
            f"its splits are {', '.join(dict.fromkeys(known))}",
        )

    @property
    def joinable(self) -> bool:
        """Whether all splits have the same columns, so that "all" means something."""
        return not any(split.columns for split in self.splits.values())

    @property
    def parts(self) -> tuple[str, ...]:
        """The splits that "all" joins, in order."""
        return tuple(name for name in self.splits if name != ALL)

    def columns_of(self, split: str) -> tuple[str, ...]:
        """Return the columns of one split."""
        return self.split(split).columns or self.columns


def dataset_and_split(written: str) -> tuple[str, str]:
    """Return the two parts of "name/split"; "name" alone means all of its splits."""
    name, _, split = written.partition("/")
    return name, split or ALL


def names() -> list[str]:
    """Return the names of all entries, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


@cache
def entry(name: str) -> DatasetEntry:
    """Return the entry called `name`.

    Raises:
        UnknownNameError: There is none; the message suggests the nearest.
    """
    path = FOLDER / f"{name}.toml"
    if name not in names():
        raise UnknownNameError(
            f"unknown dataset '{name}'.{suggestion(name, names())}", "`cse data list` shows all of them"
        )
    try:
        return DatasetEntry(name=name, **tomllib.loads(path.read_text(encoding="utf-8")))
    except (ValidationError, tomllib.TOMLDecodeError, CseError) as error:
        raise RegistrationError(f"{path}: {error}") from error

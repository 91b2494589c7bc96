"""Entries of the catalog: one TOML file in `registry/datasets/` for each data set."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from registry import plugins
from registry.errors import CseError, RegistrationError, UnknownNameError, suggestion
from registry.validation import describe

FOLDER = Path(__file__).parent.parent.parent / "datasets"
PAIR_COLUMNS = ("subset", "score", "sentence1", "sentence2")
ALL = "all"

Kind = Literal["text", "pairs", "labeled"]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Part(_Table):
    """One or several files of a split at a source. Their rows follow those of the previous part.

    Args:
        file: File name or pattern with `*`. In an archive: the end of a member's path.
        constants: Column → value of this column in every row.
        column: Column that contains one cell per line. The n-th lines of all such parts form row n.
    """

    file: str
    constants: dict[str, str] = Field(default_factory=dict)
    column: str = ""


def _part(written: Any) -> Any:
    return {"file": written} if isinstance(written, str) else written


Parts = tuple[Annotated[Part, BeforeValidator(_part)], ...]


class Layout(_Table):
    r"""Format of the rows in a file.

    Args:
        header: Whether the first line of a `.tsv` names the columns. Without it, columns have the order of the entry.
        columns: Column of the entry → column of the file, if they differ. An empty name means that the file has no such
            column, and every row gets an empty cell.
        pattern: Regular expression for a line. Its named groups are the columns, and white space in them is reduced to
            single blanks, as in SentEval's readers.
        skip: Number of lines before the first row. Requires `pattern`.
        encoding: Encoding of the text.
        remove: Characters that are removed everywhere, such as "\u200b".
        longer: Whether the files have more rows than the split, which is their beginning.
    """

    header: bool = True
    columns: dict[str, str] = Field(default_factory=dict)
    pattern: str = ""
    skip: int = 0
    encoding: str = "utf-8"
    remove: str = ""
    longer: bool = False


class Remote(Layout):
    """Source of files: a data set repository of the Hugging Face Hub, or an address.

    Args:
        hub: Repository "owner/name".
        revision: Commit of the repository.
        url: Address before the file names. It contains a commit, so the content cannot change.
        archive: Archive (.tar or .zip) that contains the files of the splits.
    """

    hub: str = ""
    revision: str = ""
    url: str = ""
    archive: str = ""

    @model_validator(mode="after")
    def _one_place(self) -> Remote:
        if bool(self.hub) == bool(self.url) or bool(self.hub) != bool(self.revision):
            raise ValueError("give either `hub` and `revision`, or `url`")
        return self

    @property
    def where(self) -> str:
        """Name for messages: "hf:owner/name@commit", or the address."""
        return f"hf:{self.hub}@{self.revision[:12]}" if self.hub else self.url


class Split(_Table):
    """One part of a data set.

    Args:
        rows: Number of rows, without the header.
        sha256: Digest of the rows, if they were available when the entry was written. See `Source.digest`.
        path: File in `$CSE_DATA`. Empty if the split is only generated or downloaded.
        shipped: File of this package in `registry/texts/`, or of a plug-in next to its entry. Takes precedence over all
            others.
        files: Source → files in order. Files that match a pattern are in name order.
        bytes: Source → approximate download size.
        columns: Columns of this split, if they differ from those of the entry.
    """

    rows: int = Field(gt=0)
    sha256: str = Field(default="", pattern="^([0-9a-f]{64})?$")
    path: str = ""
    shipped: str = ""
    files: dict[str, Parts] = Field(default_factory=dict)
    bytes: dict[str, int] = Field(default_factory=dict)
    columns: tuple[str, ...] = ()


class Generated(_Table):
    """A registered generator and its parameters."""

    name: str
    params: dict[str, Any] = Field(default_factory=dict)

    @property
    def sources(self) -> tuple[tuple[str, str], ...]:
        """Name and split of the data sets in its parameter `sources`."""
        return tuple(map(dataset_and_split, self.params.get("sources", ())))


class DatasetEntry(_Table):
    """A named data set.

    Args:
        kind: "text" for training, "pairs" with a gold score, "labeled" for classification.
        language: ISO 639-3 or two-letter code. "en-de" for parallel text.
        columns: Names of the columns in this project.
        note: Information that users need before they use it.
        instead: Data set of this package, or with an address, to use if this one is not available.
        local: Layout of the files in `$CSE_DATA`.
        sources: Name → source, in the order of the attempts.
    """

    name: str
    title: str
    kind: Kind
    language: str
    license: str
    citation: str
    url: str = ""
    columns: tuple[str, ...]
    note: str = ""
    instead: str = ""
    local: Layout = Layout()
    sources: dict[str, Remote] = Field(default_factory=dict)
    generator: Generated | None = None
    splits: dict[str, Split]

    @model_validator(mode="after")
    def _known_sources(self) -> DatasetEntry:
        for name, split in self.splits.items():
            if unknown := (split.files.keys() | split.bytes.keys()) - self.sources.keys():
                raise ValueError(f"split '{name}' uses undefined sources: {', '.join(sorted(unknown))}")
        return self

    def split(self, name: str) -> Split:
        """Return one split. "all" joins the others, unless the entry defines it.

        Raises:
            UnknownNameError: If the split does not exist.
        """
        if name in self.splits:
            return self.splits[name]
        if name == ALL and self.joinable:
            return Split(rows=sum(split.rows for split in self.splits.values()))
        known = [*self.splits, ALL] if self.joinable else list(self.splits)
        raise UnknownNameError(
            f"dataset '{self.name}' has no split '{name}'.{suggestion(name, known)}",
            f"use one of its splits: {', '.join(dict.fromkeys(known))}",
            code="data.unknown_split",
        )

    @property
    def joinable(self) -> bool:
        """Whether all splits have the same columns, so that "all" can join them."""
        return not any(split.columns for split in self.splits.values())

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the splits that "all" joins, in order."""
        return tuple(name for name in self.splits if name != ALL)

    def columns_of(self, split: str) -> tuple[str, ...]:
        """Return the columns of one split."""
        return self.split(split).columns or self.columns


def dataset_and_split(written: str) -> tuple[str, str]:
    """Return name and split of "name/split". A name without split means "all"."""
    name, _, split = written.partition("/")
    return name, split or ALL


def names() -> list[str]:
    """Return the names of all entries, sorted."""
    return sorted({path.stem for folder in (FOLDER, *plugins.folders("datasets")) for path in folder.glob("*.toml")})


def file_of(name: str) -> Path:
    """Return the file of an entry, of this package or of a plug-in.

    Raises:
        RegistrationError: If two files have the name.
    """
    files = [path for folder in (FOLDER, *plugins.folders("datasets")) if (path := folder / f"{name}.toml").is_file()]
    if len(files) > 1:
        raise RegistrationError(
            f"two data sets have the name '{name}': {files[0]} and {files[1]}",
            "rename or remove one of them",
            code="data.same_name",
        )
    return files[0]


@cache
def entry(name: str) -> DatasetEntry:
    """Return the entry of a data set.

    Raises:
        UnknownNameError: If it does not exist. The message suggests the closest name.
    """
    if name not in names():
        raise UnknownNameError(
            f"unknown dataset '{name}'.{suggestion(name, names())}",
            "run `cse data list` to see all data sets",
            code="data.unknown_dataset",
        )
    path = file_of(name)
    try:
        return DatasetEntry(name=name, **tomllib.loads(path.read_text(encoding="utf-8")))
    except (ValidationError, tomllib.TOMLDecodeError, CseError) as error:
        why = describe(error) if isinstance(error, ValidationError) else error
        raise RegistrationError(f"{path}: {why}", code="data.invalid_entry") from error

"""What the catalogue says of each data set: one TOML file under `registry/datasets/` an entry."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from registry.errors import CseError, RegistrationError, UnknownNameError, suggestion
from registry.validation import describe

FOLDER = Path(__file__).parent.parent / "datasets"
PAIR_COLUMNS = ("subset", "score", "sentence1", "sentence2")
ALL = "all"

Kind = Literal["text", "pairs", "labelled"]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Part(_Table):
    """One file of a split at a source, or several: its rows follow those of the part before it.

    Args:
        file: Its name there, or a pattern with `*`; in an archive the end of a member's path.
        constants: Column → what every row of it has there.
        column: Each line is a cell of this column. Parts with one stand side by side: their n-th lines are row n.
    """

    file: str
    constants: dict[str, str] = Field(default_factory=dict)
    column: str = ""


def _part(written: Any) -> Any:
    return {"file": written} if isinstance(written, str) else written


Parts = tuple[Annotated[Part, BeforeValidator(_part)], ...]


class Layout(_Table):
    r"""How rows stand in a file.

    Args:
        header: Whether a `.tsv` names its columns in its first line; without one, columns stand in the entry's order.
        columns: Our column → the file's, where the names differ; an empty name means the file has no such column and
            every row gets an empty cell.
        pattern: Regular expression that takes a line apart: its named groups are columns, white space in them is
            reduced to single blanks, as SentEval's readers do it.
        skip: Lines before the first row, where there is a pattern.
        encoding: Of the text.
        remove: Characters taken out wherever they stand, such as "\u200b".
        longer: The files hold more rows than the split, which is the first of them.
    """

    header: bool = True
    columns: dict[str, str] = Field(default_factory=dict)
    pattern: str = ""
    skip: int = 0
    encoding: str = "utf-8"
    remove: str = ""
    longer: bool = False


class Remote(Layout):
    """Where files can be fetched from: a data set repository of the Hugging Face hub, or an address.

    Args:
        hub: Repository, "owner/name".
        revision: Commit of it.
        url: Address that file names are appended to; it names a commit, so that the content cannot change.
        archive: The one file to fetch, a .tar or .zip, where the files named by splits are its members.
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
        """What to call it: "hf:owner/name@commit", or its address."""
        return f"hf:{self.hub}@{self.revision[:12]}" if self.hub else self.url


class Split(_Table):
    """One part of a data set.

    Args:
        rows: Rows it must have, header left out.
        sha256: Digest of the rows, where somebody who wrote this could read them; see `readers.Source.digest`.
        path: File below `$CSE_DATA`; empty where the split is only generated or fetched.
        shipped: File that comes with this package, below `registry/texts/`; it goes before all others.
        files: Source → its files, joined in this order; files that a pattern selects in name order.
        bytes: Source → about how much is downloaded.
        columns: Columns of this split where they differ from the entry's.
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
        """Name and split of the data sets it is made from, which its parameter `sources` lists."""
        return tuple(map(dataset_and_split, self.params.get("sources", ())))


class DatasetEntry(_Table):
    """A named data set.

    Args:
        kind: "text" to train on, "pairs" with a gold score, "labelled" for classification.
        language: ISO 639-3 or two-letter code; "en-de" for parallel text.
        columns: Column names as the rest of the code knows them.
        note: What a reader must know before using it.
        instead: Data set that comes with the package, to use where this one cannot be had.
        local: Layout of the files below `$CSE_DATA`.
        sources: Name → where it can be fetched from, in the order in which they are tried.
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
    instead: str = ""
    local: Layout = Layout()
    sources: dict[str, Remote] = Field(default_factory=dict)
    generator: Generated | None = None
    splits: dict[str, Split]

    @model_validator(mode="after")
    def _known_sources(self) -> DatasetEntry:
        for name, split in self.splits.items():
            if unknown := (split.files.keys() | split.bytes.keys()) - self.sources.keys():
                raise ValueError(f"split '{name}' names sources that are not there: {', '.join(sorted(unknown))}")
        return self

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
        why = describe(error) if isinstance(error, ValidationError) else error
        raise RegistrationError(f"{path}: {why}") from error

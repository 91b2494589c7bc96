"""Data sets of the hub that no entry of the catalogue describes: `hf:owner/name[:config][@revision]`."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from registry import hub
from registry.errors import CseError, MissingError, UnknownNameError, suggestion
from registry.paths import make_folder

_NAME = re.compile(r"hf:(?P<id>[\w.-]+/[\w.-]+)(:(?P<config>[^@\s]+))?(@(?P<revision>[^\s@:]+))?")
_OWN = {"name", "version", "data_dir", "data_files", "description"}
"""Settings of a builder's configuration that are no options of its own."""

_SUFFIXES = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".csv": "csv", ".tsv": "csv", ".txt": "text"}

BUILDERS = ("parquet", "json", "csv", "text")
"""Builders of `datasets` whose rows have text."""


@dataclass(frozen=True)
class HubFiles:
    """The files of one split, and how they are read.

    Args:
        builder: Of `datasets`.
        options: Its settings, as the repository's card has them.
        paths: Local files, or addresses where they are streamed.
        columns: Names of the columns.
    """

    builder: str
    options: Mapping[str, Any]
    paths: tuple[Path | str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class HubState:
    """Whether a split is on this machine.

    Args:
        commit: None if it is not known without the network.
        path: Snapshot that has all its files, or None.
        bytes: What is still to be downloaded; None if that is not known without the network.
    """

    name: str
    split: str
    commit: str | None
    path: Path | None
    bytes: int | None


@dataclass(frozen=True)
class HubSet:
    """A data set repository of the hub, and one of its configurations.

    Args:
        id: "owner/name".
        config: Subset, as its page calls it; None is the only one, or the default.
        revision: Commit, branch or tag.
    """

    id: str
    config: str | None = None
    revision: str = "main"

    @staticmethod
    def parse(name: str) -> HubSet:
        """Return what `hf:owner/name:config@revision` names.

        Raises:
            CseError: It is not of that form.
        """
        found = _NAME.fullmatch(name)
        if found is None:
            raise CseError(f"'{name}' names no data set of the hub", "write hf:owner/name[:config][@revision]")
        return HubSet(found["id"], found["config"], found["revision"] or "main")

    def __str__(self) -> str:
        config = "" if self.config is None else f":{self.config}"
        return f"hf:{self.id}{config}" + ("" if self.revision == "main" else f"@{self.revision}")

    @property
    def repository(self) -> hub.Repository:
        """The repository as `registry.hub` takes it."""
        return hub.Repository("dataset", self.id, self.revision)

    def files(self, split: str, *, remote: bool = False) -> HubFiles:
        """Return the files of a split.

        Args:
            split: Of the configuration.
            remote: Return addresses to stream from instead of downloading what is not here.

        Raises:
            UnknownNameError: No such repository, configuration or split.
            CseError: It has no text.
            MissingError: It is not on this machine and cannot be fetched.
        """
        builder, options, names = self._layout(split)
        repository = hub.resolve(self.repository)
        paths: tuple[Path | str, ...]
        if remote and hub.cached(self.repository, names) is None:
            paths = tuple(f"hf://datasets/{repository.id}@{repository.revision}/{name}" for name in names)
        else:
            folder = hub.fetch(self.repository, names)
            paths = tuple(folder / name for name in names)
        return HubFiles(builder, options, paths, _columns(str(self), builder, tuple(paths[:1]), options))

    def state(self, split: str) -> HubState:
        """Return whether a split is on this machine, without the network."""
        commit = hub.commit_of(self.repository)
        unknown = HubState(str(self), split, commit, None, None)
        if commit is None or not hub.listed(self.repository):
            return unknown
        if hub.missing_files(self.repository, ["README.md"]):  # its card says what belongs to the split
            return unknown
        names = self._layout(split)[2]
        lacking = sum(file.size for file in hub.missing_files(self.repository, names))
        return HubState(str(self), split, commit, hub.cached(self.repository, names), lacking)

    def _layout(self, split: str) -> tuple[str, dict[str, Any], tuple[str, ...]]:
        """Return builder, its options and the names of a split's files."""
        repository = hub.resolve(self.repository)
        names = tuple(file.name for file in hub.remote_files(repository))
        card = ""
        if "README.md" in names:
            card = (hub.fetch(self.repository, ["README.md"]) / "README.md").read_text(encoding="utf-8")
        builder, options, splits = _layout(str(self), names, card, self.config)
        if split not in splits:
            raise UnknownNameError(
                f"data set '{self}' has no split '{split}'.{suggestion(split, splits)}",
                f"its splits are {', '.join(splits)}",
            )
        odd = [
            file for file in splits[split] if _SUFFIXES.get(Path(file.removesuffix(".gz")).suffix, builder) != builder
        ]
        if odd:
            raise CseError(
                f"data set '{self}', split '{split}': `datasets` reads the whole repository as {builder}, "
                f"but {odd[0]} is of another format",
                "download its files, and name them as `file`",
            )
        return builder, options, splits[split]


def open_hub_set(name: str, split: str) -> Any:
    """Return a split as a `datasets.Dataset`, fetched if need be and kept in the cache of `datasets`.

    Args:
        name: `hf:owner/name[:config][@revision]`.
        split: Of the configuration.

    Raises:
        UnknownNameError: No such repository, configuration or split.
        MissingError: It is not on this machine and cannot be fetched.
        CseError: It cannot be read.
    """
    files = HubSet.parse(name).files(split)
    return _load(name, files.builder, files.paths, files.options)


@lru_cache(maxsize=16)
def _layout(
    name: str, files: tuple[str, ...], card: str, config: str | None
) -> tuple[str, dict[str, Any], dict[str, tuple[str, ...]]]:
    """Return builder, options and split → files: the rules of `datasets`, asked over empty files of the same names.

    So only what a split needs is downloaded, and the rules are the library's own.
    """
    datasets = quiet_datasets()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        for file in files:
            place = folder / file
            if folder in place.resolve().parents and place.suffix != ".py":
                make_folder(place.parent)
                place.write_text(card if file == "README.md" else "", encoding="utf-8")
        try:
            known = datasets.get_dataset_config_names(str(folder))
            if config is not None and config not in known:
                raise UnknownNameError(
                    f"data set '{name}' has no configuration '{config}'.{suggestion(config, known)}",
                    f"its configurations are {', '.join(known)}",
                )
            builder = datasets.load_dataset_builder(str(folder), name=config, cache_dir=str(folder / ".cache"))
        except (ValueError, OSError, datasets.exceptions.DatasetsError) as error:
            raise _unclear(name, error, files, folder) from error
        kind = type(builder).__module__.rpartition(".")[2]
        found = builder.config.data_files or {}
        splits = {
            str(split): tuple(Path(path).relative_to(folder).as_posix() for path in paths)
            for split, paths in found.items()
        }
    if kind not in BUILDERS:
        raise CseError(f"data set '{name}' is of the kind '{kind}'", f"text is read from {', '.join(BUILDERS)} files")
    plain = type(builder.config)()
    options = {
        field.name: value
        for field in dataclasses.fields(builder.config)
        if field.name not in _OWN and (value := getattr(builder.config, field.name)) != getattr(plain, field.name)
    }
    return kind, options, splits


def _unclear(name: str, error: Exception, files: tuple[str, ...], folder: Path) -> CseError:
    reason = " ".join(str(error).replace(str(folder), name).split())
    if "Config name is missing" in reason:
        known = re.findall(r"\[(.*?)\]", reason)
        choices = known[0].replace("'", "") if known else "see its page"
        first = choices.split(",")[0]
        return UnknownNameError(
            f"data set '{name}' has several configurations", f"write hf:owner/name:{first}; there are {choices}"
        )
    shown = ", ".join(files[:8]) + (", …" if len(files) > 8 else "")
    return CseError(f"data set '{name}' has no files that can be read: {reason}", f"it has {shown}")


def _columns(name: str, builder: str, paths: tuple[Path | str, ...], options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the columns, from the first file."""
    if builder == "text":
        return ("text",)
    opened = _load(name, builder, paths, options, streaming=True)
    names = opened.column_names
    return tuple(names if names is not None else next(iter(opened), {}))


def _load(name: str, builder: str, paths: tuple[Path | str, ...], options: Mapping[str, Any], **how: Any) -> Any:
    """Return the rows of files, by a builder of `datasets`."""
    import httpx2
    import pyarrow as pa

    datasets = quiet_datasets()
    files = {"train": [str(path) for path in paths]}
    try:
        return datasets.load_dataset(builder, data_files=files, split="train", **how, **options)
    except httpx2.HTTPError as error:  # where it is streamed; no OSError
        raise MissingError(f"data set '{name}': the hub does not give it: {error}", "check the connection") from error
    except (OSError, ValueError, pa.ArrowException, datasets.exceptions.DatasetsError) as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise CseError(
            f"data set '{name}' cannot be read: {reason}", "fetch it again, or choose another one"
        ) from error


def quiet_datasets() -> Any:
    """Import `datasets`: no bars, no log (its exceptions say what fails), no counting of what is opened.

    It counts by a request to the hub whenever files are opened by a builder, local ones too: measured, 4 seconds each
    where no name server answers.
    """
    import datasets

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    return datasets

"""Data sets of the Hub without an entry in the catalog: `hf:owner/name[:config][@revision]`."""

from __future__ import annotations

import dataclasses
import re
import tempfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from registry.errors import CseError, UnknownNameError, suggestion
from registry.paths import is_file, make_folder
from registry.resources import hub
from registry.resources.rows import lines

_NAME = re.compile(r"hf:(?P<id>[\w.-]+/[\w.-]+)(:(?P<config>[^@\s]+))?(@(?P<revision>[^\s@:]+))?")
_OWN = {"name", "version", "data_dir", "data_files", "description"}
"""Settings that all builder configurations of `datasets` have."""

_SUFFIXES = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".csv": "csv", ".tsv": "csv", ".txt": "text"}

BUILDERS = ("parquet", "json", "csv", "text")
"""Builders of `datasets` that read text."""


@dataclass(frozen=True)
class HubFiles:
    """The files of one split and their format."""

    builder: str
    options: Mapping[str, Any]
    paths: tuple[Path, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class HubSet:
    """A data set repository of the Hub and one of its configurations.

    Args:
        id: "owner/name".
        config: Configuration (subset). None is the only one, or the default.
        revision: Commit, branch or tag.
    """

    id: str
    config: str | None = None
    revision: str = "main"

    @staticmethod
    def parse(name: str) -> HubSet:
        """Return the data set named `hf:owner/name:config@revision`."""
        found = _NAME.fullmatch(name)
        if found is None:
            raise CseError(
                f"'{name}' is not a data set of the Hub",
                "write hf:owner/name[:config][@revision]",
                code="data.invalid_hub_name",
            )
        return HubSet(found["id"], found["config"], found["revision"] or "main")

    def __str__(self) -> str:
        config = "" if self.config is None else f":{self.config}"
        return f"hf:{self.id}{config}" + ("" if self.revision == "main" else f"@{self.revision}")

    @property
    def repository(self) -> hub.Repository:
        """Repository for `registry.resources.hub`."""
        return hub.Repository("dataset", self.id, self.revision)

    def files(self, split: str) -> HubFiles:
        """Return the files of a split, downloaded if necessary."""
        builder, options, names = self._layout(split)
        folder = hub.fetch(self.repository, names)
        paths = tuple(folder / name for name in names)
        columns = ["text"]
        if builder != "text":
            opened = _load(str(self), builder, paths[:1], options, streaming=True)
            columns = opened.column_names if opened.column_names is not None else list(next(iter(opened), {}))
        return HubFiles(builder, options, paths, tuple(columns))

    def state(self, split: str) -> tuple[Path | None, int | None]:
        """Return the snapshot with all files of a split, and the remaining download size if known. Sends no request."""
        # Without the listing, or the card that defines the split, its files are unknown.
        if hub.missing_bytes(self.repository, ["README.md"]) != 0:
            return None, None
        names = self._layout(split)[2]
        return hub.cached(self.repository, names), hub.missing_bytes(self.repository, names)

    def _layout(self, split: str) -> tuple[str, dict[str, Any], tuple[str, ...]]:
        """Return builder, its options and the names of a split's files."""
        names = tuple(file.name for file in hub.look_up(self.repository)[1])
        card = ""
        if "README.md" in names:
            card = (hub.fetch(self.repository, ["README.md"]) / "README.md").read_text(encoding="utf-8")
        builder, options, splits = _layout(str(self), names, card, self.config)
        if split not in splits:
            raise UnknownNameError(
                f"data set '{self}' has no split '{split}'.{suggestion(split, splits)}",
                f"use one of its splits: {', '.join(splits)}",
                code="data.unknown_split",
            )
        odd = [
            file for file in splits[split] if _SUFFIXES.get(Path(file.removesuffix(".gz")).suffix, builder) != builder
        ]
        if odd:
            raise CseError(
                f"data set '{self}', split '{split}': `datasets` reads the whole repository as {builder}, "
                f"but {odd[0]} has another format",
                "download its files, and set `file` to their paths",
                code="data.mixed_formats",
            )
        return builder, options, splits[split]


def open_hub_set(name: str, split: str) -> Any:
    """Return a split of `hf:owner/name[:config][@revision]` as a `datasets.Dataset`, downloaded if necessary."""
    files = HubSet.parse(name).files(split)
    return _load(name, files.builder, files.paths, files.options)


@lru_cache(maxsize=16)
def _layout(
    name: str, files: tuple[str, ...], card: str, config: str | None
) -> tuple[str, dict[str, Any], dict[str, tuple[str, ...]]]:
    """Return builder, options and split → files.

    `datasets` derives them from empty files of the same names, so only the files of a split are downloaded.
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
                    f"use one of its configurations: {', '.join(known[:5])}",
                    code="data.unknown_config",
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
        raise CseError(
            f"data set '{name}' has files of kind '{kind}'",
            f"use a data set with {', '.join(BUILDERS)} files",
            code="data.unsupported_format",
        )
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
            f"data set '{name}' has several configurations: {choices}",
            f"add one to the name, for example hf:owner/name:{first}",
            code="data.no_config",
        )
    shown = ", ".join(files[:5]) + (", …" if len(files) > 5 else "")
    return CseError(
        f"data set '{name}' has no files that can be read, only {shown}: {reason}",
        f"use a data set with {', '.join(BUILDERS)} files",
        code="data.unsupported_format",
    )


def _load(name: str, builder: str, paths: tuple[Path, ...], options: Mapping[str, Any], **how: Any) -> Any:
    files = {"train": [str(path) for path in paths]}
    datasets = quiet_datasets()
    return read_guarded(name, lambda: datasets.load_dataset(builder, data_files=files, split="train", **how, **options))


def read_guarded(path: Path | str, act: Callable[[], Any]) -> Any:
    """Return the result of `act`, which reads a file or a data set with `datasets`. None at the end of a file."""
    import pyarrow as pa
    from datasets.exceptions import DatasetsError

    try:
        return act()
    except CseError:
        raise
    except StopIteration:  # raised by the json builder if the file is empty
        return None
    except (OSError, EOFError, ValueError, zlib.error, pa.ArrowException, DatasetsError) as error:
        if isinstance(error, UnicodeDecodeError) and is_file(Path(path)):
            for _ in lines(Path(path)):  # raises an error with the line
                pass
        reason = " ".join(str(error.__cause__ or error).split())
        raise CseError(
            f"cannot read '{path}': {reason}", "create or download the file again", code="data.unreadable_file"
        ) from error


def quiet_datasets() -> Any:
    """Import `datasets` without progress bars, log and download counts.

    For its counts, it sends a request each time a builder opens files. This takes 4 seconds if no name server responds.
    """
    import datasets

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    return datasets

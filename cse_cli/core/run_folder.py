"""The folder of one run: its resolved recipe, from which it can be resumed, and its checkpoints."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cse_cli.core.checksums import with_checksum, without_checksum
from cse_cli.core.formatting import to_toml
from cse_cli.core.paths import runs
from registry.errors import CseError, UnknownNameError, suggestion
from registry.paths import write_atomically

FINISHED = "finished"
"""Name of the file that marks a run as finished."""

LOG = "log.txt"
"""Name of the file that keeps the lines of a run."""

STATUS = "status.json"
"""Name of the file that says how far a run is; there while it is at work, or after its process was killed."""

STOP = "stop"
"""Name of the file by whose presence a run is asked to stop."""

MODEL = "model"
"""Name of the folder of the selected model."""

MODEL_DIGESTS = "model.sha256"
"""Name of the file with the SHA-256 of each of the model's files, as `sha256sum --check` reads it."""

FREE_ON_RESUME = frozenset({"title", "description", "tune", "paper"})
"""Top-level keys that may differ between a run and its resumption: they change no number."""


@dataclass(frozen=True)
class RunFolder:
    """A run's folder below the state directory.

    Args:
        run_id: In the tracking store.
        recipe: Name the recipe was asked for by.
        source: File the recipe was read from.
        resolved: The resolved recipe, the run's own seed in it.
        commits: Repository of the hub → the commit that the run uses, also when it is resumed.
        store: Name of the tracking store that has it (`location.kept`), without a password; empty in older folders.
        base_sha256: `weights_sha256` of the model that training starts from; empty without one, and in older folders.
    """

    run_id: str
    recipe: str
    source: Path
    resolved: dict[str, Any]
    commits: dict[str, str] = field(default_factory=dict)
    store: str = ""
    base_sha256: str = ""

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.resolved["train"]["seed"])

    @property
    def path(self) -> Path:
        """Where checkpoints lie."""
        return runs() / self.run_id

    def create(self) -> None:
        """Write the folder with its `run.json` and the recipe as it was resolved."""
        write_atomically(self.path / "resolved.toml", to_toml(self.resolved))
        document = {
            "schema_version": 1, "run_id": self.run_id, "recipe": self.recipe, "source": str(self.source),
            "commits": self.commits, "store": self.store, "base_sha256": self.base_sha256, "resolved": self.resolved,
        }  # fmt: skip
        write_atomically(self.path / "run.json", json.dumps(with_checksum(document), indent=1))

    def is_made(self) -> bool:
        """Return whether it says what `create` writes: only then can the run be resumed."""
        return (self.path / "run.json").exists()

    def close(self) -> None:
        """Mark the run finished and delete its checkpoints: nothing is left to resume, or to stop."""
        (self.path / FINISHED).touch()
        for file in (*self.path.glob("*.pt"), *self.path.glob("*.partial"), self.path / STATUS, self.path / STOP):
            file.unlink(missing_ok=True)

    def demand_unfinished(self) -> None:
        """Refuse to resume a finished run.

        Raises:
            CseError: It is finished.
        """
        if is_finished(self.run_id):
            raise CseError(f"run {self.run_id[:8]} is finished", f"`cse runs show {self.run_id[:8]}` shows its scores")

    def demand_same(self, resolved: Mapping[str, Any]) -> None:
        """Refuse to resume with other settings.

        Raises:
            CseError: Naming each changed key with both values.
        """
        if changed := self._changes(resolved):
            raise CseError(
                f"run {self.run_id[:8]} cannot go on with changed settings:\n  " + "\n  ".join(changed),
                "put them back, or start a new run without --resume",
            )

    def is_of(self, resolved: Mapping[str, Any]) -> bool:
        """Tell whether the run is of a resolved recipe, its seed included."""
        return not self._changes(resolved)

    def _changes(self, resolved: Mapping[str, Any]) -> list[str]:
        before, after = ({k: v for k, v in r.items() if k not in FREE_ON_RESUME} for r in (self.resolved, resolved))
        return list(differences(before, after))


def differences(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield "dotted.key: old → new" for every leaf that differs."""
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from differences(old, new, f"{prefix}{key}.")
        elif old != new:
            yield f"{prefix}{key}: {old!r} → {new!r}"


def find(run: str) -> RunFolder:
    """Return the folder of the run whose id starts with `run`.

    Raises:
        UnknownNameError: None or several do.
    """
    known = {path.parent.name: path for path in runs().glob("*/run.json")}
    matching = [run_id for run_id in known if run_id.startswith(run)]
    if len(matching) != 1:
        what = "no run" if not matching else f"{len(matching)} runs"
        hint = "" if matching else suggestion(run, {run_id[: len(run)] for run_id in known})
        raise UnknownNameError(
            f"{what} with an id starting with '{run}' in {runs()}.{hint}", "`cse runs ls` shows them"
        )
    return _read(known[matching[0]])


def _read(file: Path) -> RunFolder:
    """Return what a run's `run.json` says.

    Raises:
        CseError: It is damaged, or of another version.
    """
    try:
        content = without_checksum(json.loads(file.read_text(encoding="utf-8")))
        commits = content.get("commits", {})  # older folders have none
        source, store, base = Path(content["source"]), content.get("store", ""), content.get("base_sha256", "")
        return RunFolder(content["run_id"], content["recipe"], source, dict(content["resolved"]), commits, store, base)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CseError(
            f"{file} is damaged, or of another version: {error}",
            f"copy it back from a backup, or start the run again: cse run {file.with_name('resolved.toml')}",
        ) from error


def log_of(run_id: str) -> Path:
    """Return the file that has what a run told, line by line."""
    return runs() / run_id / LOG


def is_finished(run_id: str) -> bool:
    """Tell whether a run of this machine is finished."""
    return (runs() / run_id / FINISHED).exists()


def unfinished_runs(resolved: Mapping[str, Any]) -> list[RunFolder]:
    """Return the unfinished runs of a resolved recipe, the one with the newest file first."""
    found: list[tuple[float, RunFolder]] = []
    for file in runs().glob("*/run.json"):
        with suppress(OSError, CseError):  # another process deletes it, or another version wrote it
            folder = _read(file)
            if not is_finished(folder.run_id) and folder.is_of(resolved):
                found.append((max(path.stat().st_mtime for path in folder.path.iterdir()), folder))
    return [folder for _, folder in sorted(found, key=lambda pair: -pair[0])]


def model_of_run(run: str) -> str | None:
    """Return the folder of the model a finished run saved, or None where `run` is no run id."""
    matching = [path for path in runs().glob(f"{run}*/{MODEL}") if path.is_dir()] if run.isalnum() else []
    return str(matching[0]) if len(matching) == 1 else None


def note_model_digests(folder: Path) -> str:
    """Write the digests of the model that a run has saved in its folder, and return what was written."""
    files = sorted(file for file in (folder / MODEL).rglob("*") if file.is_file() and file.name != "README.md")
    text = "".join(f"{_sha256(file)}  {file.relative_to(folder).as_posix()}\n" for file in files)
    write_atomically(folder / MODEL_DIGESTS, text)
    return text


def checked_model_of_run(run: str) -> str | None:
    """Return the same as `model_of_run`, once its files are found to be those that the run saved.

    It takes a second a GB of one core. `run` may also be the model's folder. A model of a version that noted no digests
    is not looked at.

    Raises:
        CseError: One of them has changed, or is missing.
    """
    found = model_of_run(run)
    notes = Path(found or run).absolute().parent / MODEL_DIGESTS
    if Path(found or run).name == MODEL and notes.is_file():
        with notes.open(encoding="utf-8", errors="replace") as lines:
            for digest, _, name in (line.rstrip("\n").partition("  ") for line in lines):
                file = notes.parent / name
                if not file.is_file() or _sha256(file) != digest:
                    what = "is not what the run saved" if file.is_file() else "is missing"
                    raise CseError(
                        f"{file} {what}: {notes} has another SHA-256",
                        f"copy it back from a backup, or train again: cse run {notes.with_name('resolved.toml')}",
                    )
    return found


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()

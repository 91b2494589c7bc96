"""Saved models of runs, and their digests, which reveal changed files."""

from __future__ import annotations

from pathlib import Path

from cse_cli.core.paths import runs
from cse_cli.runs.record import MODEL, RECIPE, read_about
from registry import plugins
from registry.errors import CseError
from registry.paths import write_atomically
from registry.resources.model_files import sha256_of

MODEL_DIGESTS = "model.sha256"
"""Name of the file with the SHA-256 of each of the model's files, in the format of `sha256sum --check`."""


def model_of_run(run: str) -> str | None:
    """Return the model directory of the run with this ID prefix, or None if the run or model does not exist."""
    matching = [path for path in runs().glob(f"{run}*/{MODEL}") if path.is_dir()] if run.isalnum() else []
    return str(matching[0]) if len(matching) == 1 else None


def note_model_digests(folder: Path) -> str:
    """Write the digests of the model in the directory of a run, and return the contents of the file."""
    files = sorted(file for file in (folder / MODEL).rglob("*") if file.is_file() and file.name != "README.md")
    text = "".join(f"{sha256_of(file)}  {file.relative_to(folder).as_posix()}\n" for file in files)
    write_atomically(folder / MODEL_DIGESTS, text)
    return text


def checked_model_of_run(run: str) -> str | None:
    """Return the same as `model_of_run`, after comparing the files with their digests, if there are any (1 s per GB).

    `run` may also be the directory of a model. Plug-in files of the run are named, because the model may need them.
    """
    found = model_of_run(run)
    if found is not None:
        about = read_about(Path(found).parent.name)
        for plugin in () if about.pulled else about.plugins:
            if Path(plugin).is_file():
                plugins.add(plugin)
    notes = Path(found or run).absolute().parent / MODEL_DIGESTS
    if Path(found or run).name == MODEL and notes.is_file():
        with notes.open(encoding="utf-8", errors="replace") as lines:
            for digest, _, name in (line.rstrip("\n").partition("  ") for line in lines):
                file = notes.parent / name
                if not file.is_file() or sha256_of(file) != digest:
                    problem = f"was changed: its SHA-256 differs from {notes}" if file.is_file() else "is missing"
                    raise CseError(
                        f"{file} {problem}",
                        f"restore it from a backup, or train again: cse run {notes.with_name(RECIPE)}",
                        code="runs.damaged_model",
                    )
    return found

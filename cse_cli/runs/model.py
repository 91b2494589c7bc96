"""Saved models of runs."""

from __future__ import annotations

from pathlib import Path

from cse_cli.core.paths import runs
from cse_cli.runs.record import MODEL, RECIPE, read_about
from registry import plugins
from registry.errors import MissingError


def model_of_run(run: str) -> str | None:
    """Return the model directory of the run with this ID prefix, or None if the run or model does not exist.

    Plug-in files of the run are named, because the model may need them.

    Raises:
        MissingError: If the run exists without its model, for example because only its record was imported.
    """
    for folder in runs().glob(f"{run}*") if len(run) >= 8 and run.isalnum() else ():
        if not (folder / MODEL).is_dir():
            message = f"run {run} has no saved model on this machine"
            raise MissingError(message, f"train it again: cse run {folder / RECIPE} --again", code="runs.no_model")
    matching = [path for path in runs().glob(f"{run}*/{MODEL}") if path.is_dir()] if run.isalnum() else []
    if len(matching) != 1:
        return None
    about = read_about(matching[0].parent.name)
    for plugin in () if about.pulled else about.plugins:
        if Path(plugin).is_file():
            plugins.add(plugin)
    return str(matching[0])

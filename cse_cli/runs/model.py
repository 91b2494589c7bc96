"""Saved models of runs."""

from __future__ import annotations

from pathlib import Path

from cse_cli.core.paths import runs
from cse_cli.runs.record import MODEL, read_about
from registry import plugins


def model_of_run(run: str) -> str | None:
    """Return the model directory of the run with this ID prefix, or None if the run or model does not exist.

    Plug-in files of the run are named, because the model may need them.
    """
    matching = [path for path in runs().glob(f"{run}*/{MODEL}") if path.is_dir()] if run.isalnum() else []
    if len(matching) != 1:
        return None
    about = read_about(matching[0].parent.name)
    for plugin in () if about.pulled else about.plugins:
        if Path(plugin).is_file():
            plugins.add(plugin)
    return str(matching[0])

"""The figures of a recorded run, drawn once, after it has ended. Imports torch and matplotlib only to draw."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from cse_cli.core.results import SERIES_FOLDER, Result, read_series
from cse_cli.runs.record import folder_of


def draw_figures(result: Result) -> Path | None:
    """Draw each figure for which a recorded run has data, unless it has figures, and return their directory, or None.

    A figure that cannot be drawn is a warning.
    """
    folder = folder_of(str(result.run_id))
    directory = folder / "figures"
    if not directory.is_dir() and (folder / SERIES_FOLDER).is_dir():
        try:
            from cse_cli.analysis.figures import draw_run

            series: dict[str, Any] = {name: dict(of) for name, of in read_series(folder / SERIES_FOLDER).items()}
            draw_run(result, series, directory)
        except Exception as error:  # matplotlib is missing or damaged
            sys.stderr.write(f"warning: figures are missing: {type(error).__name__}: {error}\n")
    return directory if directory.is_dir() else None

"""Optuna's figures of a search: history, slices and importances."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from optuna.trial import TrialState
from optuna.visualization.matplotlib import plot_optimization_history, plot_param_importances, plot_slice

from cse_cli.core.plotting import DOTS
from cse_cli.tuning.results import comparable_trials, importances
from cse_cli.tuning.study import Study, metric


def draw(study: Study, directory: Path) -> list[Path]:
    """Write each figure that has data as SVG and PNG, and return the files.

    `history` shows the score of every trial and the best so far, `slice` the score by the value of each parameter, and
    `importance` each parameter's share of the score's variance.
    """
    if not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        return []
    name = metric(study)
    files: list[Path] = []
    style: dict[Any, Any] = {"svg.hashsalt": "cse", "savefig.dpi": DOTS, "savefig.bbox": "tight"}
    with mpl.rc_context(style), warnings.catch_warnings(action="ignore"):
        plt.switch_backend("agg")  # even if a display is available
        files += _save(plot_optimization_history(study, target_name=name), directory / "history")
        panels: Any = plot_slice(study, target_name=name)
        for panel in np.ravel(panels) if np.size(panels) > 1 else ():  # the long names of parts would overlap
            panel.set_xlabel(panel.get_xlabel().replace(".", ".\n"))
            panel.tick_params(axis="x", which="both", labelrotation=90)
        files += _save(panels, directory / "slice")
        if len(importances(study)) > 1:
            files += _save(plot_param_importances(comparable_trials(study), target_name=name), directory / "importance")
    return files


def _save(axes: Any, stem: Path) -> list[Path]:
    """Write the figure of one panel or several, and close it."""
    figure = np.ravel(axes)[0].figure
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_suffix(".svg"), stem.with_suffix(".png")]
    for file in files:
        figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    plt.close(figure)
    return files

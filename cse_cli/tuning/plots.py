"""Figures of a search, as Optuna draws them: how it went, where it looked, and what mattered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from optuna.visualization.matplotlib import plot_optimization_history, plot_param_importances, plot_slice

from cse_cli.core.plotting import DOTS
from cse_cli.tuning.results import comparable_trials, importances
from cse_cli.tuning.study import Study, metric, settled


def draw(study: Study, folder: Path) -> list[Path]:
    """Write each figure that there is data for as SVG and as PNG; return the files.

    `history` has the score of every trial and the best so far, `slice` the score by the value of each parameter,
    `importance` each parameter's share in what makes good trials good.

    Args:
        study: Whose trials.
        folder: Made where it is missing.
    """
    if not any(trial.value is not None for trial in settled(study.get_trials(deepcopy=False))):
        return []
    shown, name = comparable_trials(study), metric(study)
    files: list[Path] = []
    with plt.rc_context({"svg.hashsalt": "cse", "savefig.dpi": DOTS, "savefig.bbox": "tight"}), plt.ioff():
        files += _save(plot_optimization_history(study, target_name=name), folder / "history")
        if shown.get_trials(deepcopy=False):
            files += _save(plot_slice(shown, target_name=name), folder / "slice")
        if len(importances(study)) > 1:
            files += _save(plot_param_importances(shown, target_name=name), folder / "importance")
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

"""The numbers behind a run's scores, pair by pair: kept, so that two runs can be compared on the same pairs later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

FOLDER = "series"
"""Artifact folder: one `<evaluator>.npz` each, an array a name."""

Series = Mapping[str, Sequence[float]]


def write(series: Mapping[str, Series], folder: Path) -> None:
    """Write the series of each evaluator that has any."""
    for evaluator, arrays in series.items():
        if arrays:
            folder.mkdir(parents=True, exist_ok=True)
            columns = {name: np.asarray(values, dtype=np.float64) for name, values in arrays.items()}
            np.savez_compressed(folder / f"{evaluator}.npz", allow_pickle=False, **columns)


def read(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """Return evaluator → name → numbers; nothing where there is no such folder."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as arrays:
            found[path.stem] = dict(arrays)
    return found

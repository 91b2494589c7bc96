"""Run five steps of every setting of every study on the project's small encoders.

    CSE_DATA=../shared/data CSE_MODELS=../shared/models python -m benchmarks.ablations [--steps 5] [--only mocose ...]

Prints a Markdown table with the changes of each setting and the loss after the last step. Runs are neither scored nor
recorded. Five steps do not fill a long queue, so settings that differ only in its length have the same loss. The
settings are those of recipes/studies/mini. tests/test_ablations.py runs those of recipes/studies on random models.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cse_cli.core.devices import choose
from cse_cli.recipe.cells import Cell, cells
from cse_cli.recipe.files import all_studies
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.recipe.study import load_study
from cse_cli.runs.record import RunRecord
from cse_cli.training.build import prepare
from cse_cli.training.trainer import Trainer
from registry.errors import CseError

SMALL = "studies/mini/"


def settings(beginnings: tuple[str, ...]) -> dict[str, Cell]:
    """Return every experiment that trains, once, under the first study and row that contain it."""
    found: dict[str, tuple[str, Cell]] = {}
    for name in all_studies():
        stem = name.removeprefix(SMALL)
        if name.startswith(SMALL) and stem.startswith(beginnings):
            for cell in cells(load_study(name)):
                found.setdefault(cell.hash, (f"{stem} · {cell.label}", cell))
    trained = (one for one in found.values() if _loaded(one[1]).recipe.train.steps != 0)
    return dict(trained)


def _loaded(cell: Cell, *more: str, without: tuple[str, ...] = ()) -> LoadedRecipe:
    return load(cell.recipe, [*cell.overrides, *more], [*cell.unset, *without])


def run(cell: Cell, steps: int, device: str) -> float:
    """Return the loss after `steps` steps.

    Raises:
        CseError: If the run does not start, or a loss is not finite.
    """
    budget = (f"train.steps={steps}", "train.evaluate_every=0", "evaluate.eval_on_start=false")
    loaded = _loaded(cell, *budget, without=("evaluate.metric_for_best_model",))
    last = float("nan")

    def listen(kind: str, data: Mapping[str, Any]) -> None:
        nonlocal last
        if kind == "metrics":
            last = data["values"].get("train/loss", last)

    record = RunRecord("ablation", None, listen)
    with tempfile.TemporaryDirectory() as folder:
        Trainer(
            prepare(loaded.recipe, 0, choose(device, loaded.recipe.train.precision), record), Path(folder), record
        ).run()
    return last


def lines(chosen: dict[str, Cell], steps: int, device: str) -> Iterator[tuple[str, bool]]:
    """Yield a line of the table and whether its run finished."""
    for name, cell in chosen.items():
        changes = " ".join([*(f"--set {one}" for one in cell.overrides), *(f"--unset {one}" for one in cell.unset)])
        began = time.perf_counter()
        try:
            loss, ok = f"{run(cell, steps, device):.6f}", True
        except CseError as error:
            loss, ok = error.message.replace("\n", " "), False
        took = time.perf_counter() - began
        changed = changes.replace("|", "\\|")
        yield f"| {name} | {cell.recipe} | {changed} | {loss} | {took:.1f} | {'yes' if ok else 'NO'} |", ok


def main() -> int:
    """Run the settings, print the table and return 1 if a setting fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument(
        "--only", nargs="*", default=[""], help="Prefixes of the names of studies, such as mocose_queue."
    )
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    chosen = settings(tuple(asked.only))
    print(f"| setting | recipe | changed | loss after {asked.steps} steps | seconds | ok |")
    print("| --- | --- | --- | ---: | ---: | --- |")
    good = 0
    for line, ok in lines(chosen, asked.steps, asked.device):
        print(line, flush=True)
        good += ok
    print(f"\n{good} of {len(chosen)} settings took {asked.steps} steps")
    return 0 if good == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())

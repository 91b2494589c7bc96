"""Every row of the papers' ablation and sweep tables, five steps each, on the project's small encoders.

    CSE_DATA=../shared/data CSE_MODELS=../shared/models python -m benchmarks.ablations [--steps 5] [--only mocose ...]

Prints a Markdown table: what the row changes, and the loss after the last step. Nothing is scored or recorded. Five
steps fill no long queue, so rows that differ in its length alone have the same loss. The rows and their settings are in
tests/ablations.toml; tests/test_ablations.py runs them for the full recipes on random models.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cse_cli.job import Job
from cse_cli.observer import Silent
from cse_cli.recipe.load import load
from cse_cli.running import prepare
from cse_cli.tracking import NullTracker
from cse_cli.training.loop import Trainer
from registry.errors import CseError
from tests.ablations import Setting, settings


class Last(Silent):
    """Keeps the last loss it hears of."""

    loss = float("nan")

    def stepped(self, step: int, loss: float, rate: float) -> None:  # noqa: ARG002 - an observer's form
        """Keep the loss."""
        self.loss = loss


def run(setting: Setting, steps: int, device: str) -> float:
    """Return the loss after `steps` steps.

    Raises:
        CseError: It does not start, or a loss is no number.
    """
    budget = [f"train.steps={steps}", "train.evaluate_every=0", "evaluate.untrained=false"]
    loaded = load(setting.recipe, [*setting.set, *budget], [*setting.unset, "evaluate.select"])
    heard = Last()
    with tempfile.TemporaryDirectory() as folder:
        Trainer(prepare(Job(loaded, 0, device), heard), Path(folder), NullTracker(), heard).run()
    return heard.loss


def lines(chosen: list[Setting], steps: int, device: str) -> Iterator[tuple[str, bool]]:
    """Yield a line of the table and whether its run came to its end."""
    for setting in chosen:
        changes = " ".join([*(f"--set {one}" for one in setting.set), *(f"--unset {one}" for one in setting.unset)])
        began = time.perf_counter()
        try:
            loss, ok = f"{run(setting, steps, device):.6f}", True
        except CseError as error:
            loss, ok = error.message.replace("\n", " "), False
        took = time.perf_counter() - began
        cell = changes.replace("|", "\\|")
        yield f"| {setting.name} | {setting.recipe} | {cell} | {loss} | {took:.1f} | {'yes' if ok else 'NO'} |", ok


def main() -> int:
    """Run and print; return 1 where a row does not run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[""], help="beginnings of table names, such as mocose.queue")
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    chosen = [setting for setting in settings(mini=True) if setting.name.startswith(tuple(asked.only))]
    print(f"| row | recipe | changed | loss after {asked.steps} steps | seconds | ok |")
    print("| --- | --- | --- | ---: | ---: | --- |")
    good = 0
    for line, ok in lines(chosen, asked.steps, asked.device):
        print(line, flush=True)
        good += ok
    print(f"\n{good} of {len(chosen)} rows took {asked.steps} steps")
    return 0 if good == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())

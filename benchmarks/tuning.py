"""Overhead of a search per trial.

    python -m benchmarks.tuning [--trials 40] [--runs 6]

Prints a Markdown table. "driver": trials without training, one after the other, so only the choice of values and the
storage remain. "whole": the same tiny recipe as separate runs and as trials of a search. The difference is the overhead
of the search per run.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cse_cli.jobs.job import Job
from cse_cli.jobs.request import RunRequest
from cse_cli.recipe.load import load
from cse_cli.tuning.search import run_search
from cse_cli.tuning.study import SearchConfig
from cse_cli.tuning.view import TuneScreen
from tests.cse_cli.tuning.fake import config, drive, parameter
from tests.support.running import execute
from tests.support.shrunken import recipe, small

FIRST = 3
"""Trials before the measurement: first use of a storage, a sampler and torch."""


def timed(act: Callable[[], object]) -> tuple[float, float]:
    """Return the wall time and the processor time of a function, in seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    act()
    return time.perf_counter() - wall, time.process_time() - cpu


def driver(asked: SearchConfig, trials: int) -> tuple[float, float]:
    """Return the wall time and the processor time of a trial without training, in seconds."""
    drive(asked.model_copy(update={"trials": FIRST}))
    more = asked.model_copy(update={"trials": FIRST + trials})
    wall, cpu = timed(lambda: drive(more))
    return wall / trials, cpu / trials


def whole(folder: Path, runs: int) -> Iterator[tuple[str, float, float]]:
    """Yield a label and the times of a run, separately and as a trial, in seconds."""
    # Two sentences per step and no limit: a tiny random model would count as collapsed.
    path = recipe(folder, small(folder), steps=20, evaluate_every=5, batch_size=2, collapse_cosine=1.0)
    asked = SearchConfig(
        name="whole", recipe=str(path), parameters=(parameter(),), trials=FIRST, pruner="none", seeds=(3,),
        request=RunRequest(device="cpu"),
    )  # fmt: skip
    rates = [f"train.learning_rate={1e-5 * (2 + number)}" for number in range(FIRST + runs)]

    def each(some: list[str]) -> None:
        for rate in some:
            loaded = load(str(path), [rate])
            execute(Job(loaded, loaded.recipe.train.seed))

    each(rates[:FIRST])
    yield "separate run", *(seconds / runs for seconds in timed(lambda: each(rates[FIRST:])))
    run_search(asked, TuneScreen(quiet=True))
    more = asked.model_copy(update={"trials": FIRST + runs})
    yield "as a trial", *(seconds / runs for seconds in timed(lambda: run_search(more, TuneScreen(quiet=True))))


@contextmanager
def _home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CSE_HOME"] = f"{folder}/home"
        yield Path(folder)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--runs", type=int, default=6)
    asked = parser.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start\n")
    print("| what, per trial | wall s | cpu s |\n| --- | ---: | ---: |", flush=True)
    for sampler in ("tpe", "random", "gp"):
        with _home() as folder:
            wall, cpu = driver(config(folder, sampler=sampler), asked.trials)
        print(f"| driver, {sampler} | {wall:.3f} | {cpu:.3f} |", flush=True)
    with _home() as folder:
        for label, wall, cpu in whole(folder, asked.runs):
            print(f"| whole, {label} | {wall:.3f} | {cpu:.3f} |", flush=True)


if __name__ == "__main__":
    main()

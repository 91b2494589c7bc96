"""Measure the processor time of two steps of `mini/ifcl_en`, once and many times in one command.

`python -m benchmarks.short_runs --runs 100`. A run with few pairs and small batches hardly trains and scores, so its
time is the cost of a run without these. The first of several runs also starts the process, so it is subtracted.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess  # nosec B404
import sys
import tempfile
import time
from collections.abc import Iterator

RECIPE = ("mini/ifcl_en", "--set", "data.dataset=tatoeba_open")
RUN = ("-m", "cse_cli", "run", *RECIPE, "--quiet", "--set", "train.steps=2")
NO_WORK = ("--set", "evaluate.limit=20", "--set", "train.batch_size=4")


def main() -> None:
    """Print a table."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--runs", type=int, default=100, help="Number of runs in one command.")
    options.add_argument("--threads", default="1", help="Threads of torch in a process.")
    chosen = options.parse_args()
    os.environ["OMP_NUM_THREADS"] = chosen.threads
    print("| | cpu s | wall s | cpu s for each further run |\n| --- | ---: | ---: | ---: |")
    for row in measurements(chosen.runs):
        print(f"| {' | '.join(row)} |", flush=True)


def measurements(runs: int) -> Iterator[tuple[str, str, str, str]]:
    """Yield the rows of the table.

    Args:
        runs: Number of runs in one command.
    """
    with tempfile.TemporaryDirectory() as home:
        yield "one run, empty state directory", *_cells(seconds(home)), ""
        yield "one run, second start", *_cells(one := seconds(home, "--seed", "1")), ""
        quick = seconds(home, *NO_WORK)
        yield "one run, hardly any training and scoring", *_cells(quick), ""
        for workers in ("1", "2"):
            several = ("--workers", workers, "--again", "--seeds", str(runs))
            for label, options, first in (("", (), one), (", hardly any training and scoring", NO_WORK, quick)):
                took = seconds(home, *options, *several)
                each = (took[0] - int(workers) * first[0]) / (runs - int(workers))
                yield f"{runs} runs, --workers {workers}{label}", *_cells(took), f"{each:.2f}"


def seconds(home: str, *options: str) -> tuple[float, float]:
    """Return the processor time and the wall time of a command with all its child processes."""
    environment = {**os.environ, "CSE_HOME": home}
    before, began = _used(), time.perf_counter()
    subprocess.run([sys.executable, *RUN, *options], env=environment, check=True, stdout=subprocess.DEVNULL)  # nosec B603
    return _used() - before, time.perf_counter() - began


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _cells(took: tuple[float, float]) -> tuple[str, str]:
    return f"{took[0]:.1f}", f"{took[1]:.1f}"


if __name__ == "__main__":
    main()

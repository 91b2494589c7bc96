"""Memory of a long run and disk space of a finished run: `python -m benchmarks.long_run`.

Reads the private memory (resident, neither shared nor mapped from files), open files and threads of `cse run` from
outside, every 0.25 seconds. Prints the medians for each tenth of the steps.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.training.material import SHAPES, SPREAD, write_model

TEXT = Path(__file__).parents[1] / "README.md"
"""Text for the tokenizer of a random model, if BERT's is not installed."""
TENTHS = 10
SECONDS = 0.25
Sample = tuple[int, float, int, int]
"""Step, MB of private memory, open files, threads."""


def main(given: Sequence[str] | None = None) -> int:
    """Run each recipe, print tables and return 0 or the exit code of the failed run."""
    parser = argparse.ArgumentParser(
        description="Measure the memory of a long run and the disk space of a finished run."
    )
    parser.add_argument("recipes", nargs="*", default=["mini/simcse_en", "mini/ifcl_en"])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--evaluate-every", type=int, default=100)
    parser.add_argument(
        "--set", action="append", default=[], help="Setting of the recipe, as in `cse run`. Repeatable."
    )
    parser.add_argument("--shape", choices=tuple(SHAPES), help="Shape of a random model instead of the recipe's own.")
    asked = parser.parse_args(given)
    settings = [f"train.steps={asked.steps}", f"train.evaluate_every={asked.evaluate_every}", *asked.set]
    for recipe in asked.recipes:
        with tempfile.TemporaryDirectory(prefix="benchmark-") as home:
            os.environ["CSE_HOME"] = home
            if asked.shape is not None:
                model = write_model(asked.shape, Path(home, asked.shape), None, TEXT, 0.1, SPREAD[asked.shape])
                settings.append(f"encoders.online.model={model}")
            command = [sys.executable, "-P", "-m", "cse_cli", "run", recipe]
            with subprocess.Popen([*command, *(word for one in settings for word in ("--set", one))]) as run:
                samples = list(_watch(run))
            if run.returncode:
                return run.returncode
            print(f"\n{recipe} {' '.join(settings)}\n\n{_table(samples, asked.steps)}\n")
            print(f"{_disk(Path(home))}\n", flush=True)
    return 0


def _watch(run: subprocess.Popen[bytes]) -> Iterator[Sample]:
    """Yield samples of a process, starting with the first step of its run."""
    import psutil

    from cse_cli.runs.events import read_history
    from cse_cli.runs.index import all_runs

    process = psutil.Process(run.pid)
    with contextlib.suppress(psutil.Error):  # the process has just ended
        while run.poll() is None:
            memory, files, threads = process.memory_info(), process.num_fds(), process.num_threads()
            if (found := all_runs()) and (step := read_history(found[0].about.path).step):
                yield step, (memory.rss - memory.shared) / 2**20, files, threads
            time.sleep(SECONDS)


def _table(samples: Sequence[Sample], steps: int) -> str:
    lines = ["| up to step | MB | open files | threads |", "| ---: | ---: | ---: | ---: |"]
    for tenth in range(TENTHS):
        low, high = steps * tenth // TENTHS, steps * (tenth + 1) // TENTHS
        if of_tenth := [sample for sample in samples if low < sample[0] <= high]:
            _, memory, files, threads = (median(values) for values in zip(*of_tenth, strict=True))
            lines.append(f"| {high:,} | {memory:,.0f} | {files:.0f} | {threads:.0f} |")
    return "\n".join(lines)


def _disk(home: Path) -> str:
    """Return the size of each directory. A file with several links counts only in the first directory."""
    seen: set[int] = set()
    lines = []
    for name in ("runs", "artifacts", "mlflow.db", "cache"):
        files = [file for file in (home / name, *home.glob(f"{name}/**/*")) if file.is_file()]
        own = {about.st_ino: about.st_blocks * 512 for file in files if (about := file.lstat()).st_ino not in seen}
        seen |= own.keys()
        lines.append(f"{sum(own.values()) / 2**20:8.2f} MB {name}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

"""Training on a busy machine: `python -m benchmarks.busy`.

Trains `mini/ifcl_en` in two processes that take turns: with OpenMP's own waiting, and as `cse run` does. Both use all
cores, next to 0, 1 and 5 processes that never wait. Prints the medians of rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from cse_cli.core.threads import THREAD_VARIABLES, WAITING, WAITING_VARIABLES

DEFAULT_LOOPS = "300000"
"""Loops of an idle thread in GNU's OpenMP if no variable is set."""
BUSY = "while True: pass"


def main(given: Sequence[str] | None = None) -> int:
    """Measure, print the table and return 0."""
    parser = argparse.ArgumentParser(description="Measure training on a busy machine.")
    parser.add_argument("--recipe", default="mini/ifcl_en")
    parser.add_argument("--loads", type=int, nargs="*", default=[0, 1, 5], help="Numbers of busy processes.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="Minimum time of a turn.")
    parser.add_argument("--train", action="store_true", help="Be one of the two processes. Only for the benchmark.")
    asked = parser.parse_args(given)
    if asked.train:
        return train(asked.recipe)
    print("| busy processes | OpenMP's waiting | as `cse run` | ratio | threads |", flush=True)
    print("| ---: | ---: | ---: | ---: | ---: |", flush=True)
    for load in asked.loads:
        with busy(load):
            print(row(load, measured(asked)), flush=True)
    return 0


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep processes busy."""
    running = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def measured(asked: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Return the turns of both processes."""
    ours = {name: value for name, value in os.environ.items() if name not in (*THREAD_VARIABLES, *WAITING_VARIABLES)}
    command = [sys.executable, "-m", "benchmarks.busy", "--train", "--recipe", asked.recipe]
    ways: dict[str, subprocess.Popen[str]] = {}
    for name, waiting in (("before", {"GOMP_SPINCOUNT": DEFAULT_LOOPS}), ("now", WAITING)):
        ways[name] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ours | waiting
        )
        _reply(ways[name])
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for number in range(asked.rounds):
        for name in list(ways)[:: 1 if number % 2 == 0 else -1]:
            print(asked.seconds, file=ways[name].stdin, flush=True)
            turns[name].append(_reply(ways[name]))
    for way in ways.values():
        way.communicate()
    return turns


def _reply(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def train(recipe: str) -> int:
    """Train for the seconds that each line of the input names, and print the rate."""
    import torch

    from cse_cli.core.devices import choose
    from cse_cli.recipe.load import load
    from cse_cli.runs.record import RunRecord
    from cse_cli.training.build import prepare
    from cse_cli.training.trainer import Trainer

    prepared, done = (
        prepare(load(recipe, ["train.steps=1000000"]).recipe, 0, choose("cpu"), RunRecord("unrecorded", None)),
        1,
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(prepared, Path(folder), RunRecord("unrecorded", None))
        trainer.method.train()
        trainer.stepper.take(0)
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            first, began = done, time.perf_counter()
            while time.perf_counter() - began < float(line):
                trainer.stepper.take(done)
                done += 1
            rate = (done - first) * trainer.settings.batch_size / (time.perf_counter() - began)
            print(json.dumps({"rate": rate, "threads": torch.get_num_threads()}), flush=True)
        trainer.stepper.close()
    return 0


def row(load: int, turns: dict[str, list[dict[str, float]]]) -> str:
    """Return the line of the table for one number of busy processes."""
    before, now = (median(turn["rate"] for turn in turns[name]) for name in ("before", "now"))
    return f"| {load} | {before:.0f} | {now:.0f} | {now / before:.2f} | {turns['now'][0]['threads']} |"


if __name__ == "__main__":
    sys.exit(main())

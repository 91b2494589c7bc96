"""Time before the first step: command line, tokenizing, and a second start.

    python benchmarks/start.py [--dataset wiki_en_1m] [--model mini_en] [--repeats 5]

Prints a Markdown table. The tokens go into a new cache, so the first start cannot use an existing one.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time

COMMANDS = (["--help"], ["list"], ["show", "info_nce"], ["show", "ifcl_en", "--resolved"], ["check"])


def command(arguments: list[str], repeats: int) -> tuple[float, float]:
    """Return the median wall and processor seconds of a `cse` command, after one warm-up run."""
    wall, cpu = [], []
    for count in range(repeats + 1):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, "-m", "cse_cli", *arguments], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if count:
            wall.append(time.perf_counter() - began)
            cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(wall), statistics.median(cpu)


def start(dataset: str, model: str) -> tuple[float, int]:
    """Return the seconds from a recipe's `[data]` to the first batch of two views, and the number of rows."""
    from cse_cli.data.batches import Batches, ViewSpec
    from cse_cli.data.sources import open_text
    from cse_cli.recipe.schema import Data
    from registry.vocabulary import HubVocabulary

    vocabulary = HubVocabulary(model)
    vocabulary.ids(["loads the tokenizer before the measurement"], 32)
    began = time.perf_counter()
    text = open_text(Data(dataset=(dataset,)), {"text"})
    specs = {name: ViewSpec("text", vocabulary) for name in ("anchor", "positive")}
    Batches(text, specs, 64, 32, seed=0).batch(0)
    return time.perf_counter() - began, text.rows


def start_in_a_new_process(dataset: str, model: str) -> tuple[float, int, float]:
    """Return the result of `start` in a new process, and its peak memory in MB."""
    done = subprocess.run(
        [sys.executable, __file__, "--inner", "--dataset", dataset, "--model", model],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    seconds, rows, memory = done.stdout.split()
    return float(seconds), int(rows), float(memory)


def peak() -> float:
    """Return the peak memory of this process in MB."""
    import torch

    from cse_cli.training.train_step import peak_memory

    return peak_memory(torch.device("cpu")) / 2**20


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="wiki_en_1m")
    parser.add_argument("--model", default="mini_en")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inner:
        seconds, rows = start(asked.dataset, asked.model)
        print(seconds, rows, peak())
        return
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    print("| command or start | wall s | cpu s | peak MB |\n| --- | ---: | ---: | ---: |")
    for arguments in COMMANDS:
        wall, cpu = command(arguments, asked.repeats)
        print(f"| `cse {' '.join(arguments)}` | {wall:.2f} | {cpu:.2f} | |")
    with tempfile.TemporaryDirectory() as home:
        os.environ["CSE_HOME"] = home
        for label in ("first start", "second start"):
            seconds, rows, memory = start_in_a_new_process(asked.dataset, asked.model)
            print(f"| {label}, {rows:,} sentences of {asked.dataset} | {seconds:.3f} | | {memory:.0f} |")


if __name__ == "__main__":
    main()

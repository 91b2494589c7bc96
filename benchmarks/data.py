"""Cost of training text: reading, tokenization, second start, batches and kills.

    python benchmarks/data.py --rows 1000000 [--model mini_en] [--folder /tmp/cse-bench]
    python benchmarks/data.py --kill --rows 1000000 [--after 60]

The lines are those of `wiki_en_1m` (CSE_DATA), repeated with a running number so that all lines differ. All files are
written below `--folder` and deleted at the end. 20 million lines need 2.7 GB as text, 2.7 GB as Arrow and 2.4 GB as
tokens. Prints Markdown tables.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

BATCH, LENGTH = 64, 32


def lines(rows: int) -> Iterator[str]:
    """Yield sentences of `wiki_en_1m`, repeatedly, each with its number."""
    source = Path(os.environ["CSE_DATA"]) / "train" / "wiki_en_1m.txt.gz"
    number = 0
    while True:
        with gzip.open(source, "rt", encoding="utf-8") as file:
            for line in file:
                if number == rows:
                    return
                number += 1
                yield f"{line.rstrip()} {number}"


def write_text(rows: int, path: Path) -> None:
    """Write a `.txt` file."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines(rows))


def prepare(path: str, model: str) -> dict[str, float]:
    """Prepare the text and make batches. Return seconds and the peak memory in MB."""
    import datasets  # noqa: F401 - its import is not what is measured

    from cse_cli.data.batches import Batches, ViewSpec
    from cse_cli.data.sources import open_text
    from cse_cli.recipe.schema import Data
    from registry.vocabulary import HubVocabulary

    vocabulary = HubVocabulary(model)
    vocabulary.ids(["loads the tokenizer, which is not what is measured"], LENGTH)
    began = time.perf_counter()
    text = open_text(Data(file=path), {"text"})
    read = time.perf_counter()
    batches = Batches(text, {"anchor": ViewSpec("text", vocabulary)}, BATCH, LENGTH, seed=0)
    ready = time.perf_counter()
    batches.batch(0)
    order = time.perf_counter()
    return {
        "read": read - began,
        "tokens": ready - read,
        "first batch": order - ready,
        **batch_times(batches),
        "rows": text.rows,
    }


def batch_times(batches: Any, steps: range = range(1, 401)) -> dict[str, float]:
    """Return the median and the largest milliseconds of a batch."""
    taken = []
    for step in steps:
        began = time.perf_counter()
        batches.batch(step)
        taken.append(1e3 * (time.perf_counter() - began))
    return {"batch ms": statistics.median(taken), "largest ms": max(taken)}


def measured(path: str, model: str, home: Path) -> dict[str, float]:
    """Return the measurements of a fresh process, with its processor seconds and memory."""
    command = [sys.executable, __file__, "--inner", "--path", path, "--model", model]
    environment = os.environ | {"CSE_HOME": str(home)}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    with peak_of(child.pid) as peak:
        out, _ = child.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if child.returncode:
        raise SystemExit(child.returncode)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**json.loads(out.splitlines()[-1]), "wall": time.perf_counter() - began, "cpu": cpu, "peak MB": peak[0]}


@contextmanager
def peak_of(pid: int) -> Iterator[list[float]]:
    """Measure the peak memory of a process and its children in MB, without pages of mapped files."""
    found, ended = [0.0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            held = 0
            try:
                for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
                    memory = process.memory_info()
                    held += memory.rss - memory.shared
            except psutil.Error:
                continue
            found[0] = max(found[0], held / 2**20)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def table(rows: list[tuple[str, dict[str, float]]]) -> None:
    """Print a Markdown table."""
    names = list(dict.fromkeys(name for _, values in rows for name in values))
    print(f"| | {' | '.join(names)} |\n|---|{'---:|' * len(names)}")
    for label, values in rows:
        print(f"| {label} | {' | '.join(f'{values[n]:,.2f}' if n in values else '' for n in names)} |")


def killed(path: str, model: str, home: Path, after: float) -> None:
    """Kill a process while it tokenizes, and print the files that remain."""
    command = [sys.executable, __file__, "--inner", "--path", path, "--model", model]
    environment = os.environ | {"CSE_HOME": str(home)}
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    time.sleep(after)
    child.send_signal(signal.SIGKILL)
    child.wait()
    time.sleep(2)
    kept = sorted((home / "cache" / "tokens").rglob("0*.arrow"))
    left = list((home / "cache" / "tokens").rglob("tmp*"))
    print(f"killed after {after:.0f} s: kept {len(kept)} shards of 262,144 rows, {len(left)} unfinished files\n")
    table([("the next start", measured(path, model, home))])
    print(f"\nunfinished files afterwards: {len(list((home / 'cache' / 'tokens').rglob('tmp*')))}")


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--model", default="mini_en")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--after", type=float, default=60)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inner:
        print(json.dumps(prepare(asked.path, asked.model)))
        return
    Path(asked.folder).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="cse-bench-", dir=asked.folder))
    try:
        path = folder / "text.txt"
        write_text(asked.rows, path)
        if asked.kill:
            killed(str(path), asked.model, folder / "home", asked.after)
            return
        home, starts = folder / "home", ("first", "second")
        rows = [(f"{asked.rows:,} rows, {start} start", measured(str(path), asked.model, home)) for start in starts]
        kept = sum(file.stat().st_size for file in (home / "cache" / "tokens").rglob("*.arrow"))
        rows[-1][1]["bytes per row"] = kept / asked.rows
        table(rows)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

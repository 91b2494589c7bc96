"""Compare the encoding of the seven English STS test sets by `cse`, sentence-transformers, ONNX Runtime and OpenVINO.

    python -m benchmarks.encoding_peers MODEL [--peers PYTHON] [--threads 1] [--rounds 6] [--every 1]

Each way has its own process, which stays. The distinct sentences of all sets are divided into one part per round. In a
round, one way after the other encodes the part, so that other programs on the machine slow all of them. `--peers` is a
Python with sentence-transformers and the libraries that it can use. Prints sentences per CPU second (the median of the
rounds), sentences per second, and the average STS score of each way, and why a way is not available.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from cse_cli.core.results import STS_TASKS
from registry.resources import catalog
from registry.resources.catalog import Pair
from registry.statistics import aggregates

WAYS = (
    "cse fp32", "cse bf16", "torch fp32", "torch bf16", "onnx fp32", "onnx int8", "openvino fp32", "openvino bf16",
    "openvino int8",
)  # fmt: skip
WORKER = Path(__file__).with_name("encoding_worker.py")
EXAMPLES = 300
"""Number of other sentences, for warm-up and static quantization: sentence-transformers' default."""


@dataclass
class Worker:
    """A process that encodes in one way.

    Args:
        way: Library and precision.
        process: Process of `encoding_worker.py`.
        folder: Its working directory, with the embeddings.
    """

    way: str
    process: subprocess.Popen[str]
    folder: Path
    versions: Sequence[str] = ()
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    def answer(self) -> list[float] | list[str] | None:
        """Return the next line of the process, or None if it ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def encode(self, part: int) -> None:
        """Encode a part and add its times."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{part}\n")
        self.process.stdin.flush()
        seconds, cpu_seconds = self.answer() or ()
        self.seconds.append(float(seconds))
        self.cpu_seconds.append(float(cpu_seconds))

    def embeddings(self) -> np.ndarray:
        """Return the embeddings of all parts, in their order."""
        return np.concatenate([np.load(self.folder / f"{part}.npy") for part in range(len(self.seconds))])

    def error(self) -> str:
        """Return the last line on stderr."""
        lines = (self.folder / "stderr").read_text(encoding="utf-8").strip().splitlines()
        return lines[-1] if lines else "no message"


def start(way: str, python: str, model: str, shared: Path, threads: int) -> Worker:
    """Start a process and wait until its model is loaded."""
    folder = shared / way.replace(" ", "_")
    folder.mkdir()
    own = {"OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    root = {"PYTHONPATH": str(WORKER.parent.parent)} if way.startswith("cse") else {"PYTHONPATH": ""}
    with (folder / "stderr").open("w") as errors:
        process = subprocess.Popen(
            [python, str(WORKER), way, model, str(shared), str(threads)],
            cwd=folder, env={**os.environ, **own, **root}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=errors, text=True,
        )  # fmt: skip
    worker = Worker(way, process, folder)
    worker.versions = [str(name) for name in worker.answer() or ()]
    return worker


def average(tasks: dict[str, list[Pair]], sentences: Sequence[str], embeddings: np.ndarray) -> float:
    """Return the mean Spearman correlation × 100 of the sets, over all pairs of each."""
    place = {sentence: number for number, sentence in enumerate(sentences)}
    vectors = torch.from_numpy(embeddings)
    scores = []
    for pairs in tasks.values():
        left, right = (vectors[[place[getattr(pair, side)] for pair in pairs]] for side in ("first", "second"))
        cosines = torch.cosine_similarity(left, right).tolist()
        found = aggregates([pair.subset for pair in pairs], [pair.score for pair in pairs], cosines)
        scores.append(found["spearman_all"])
    return statistics.mean(scores)


def write_texts(shared: Path, sentences: Sequence[str], rounds: int) -> list[str]:
    """Write the parts and the other texts, and return the sentences in the order of the parts."""
    parts = [sentences[number::rounds] for number in range(rounds)]
    texts = [row["text"] for row in catalog.open_text("tatoeba_open")]
    others = texts[:: len(texts) // EXAMPLES][:EXAMPLES]
    (shared / "texts.json").write_text(json.dumps({"others": others, "parts": parts}), encoding="utf-8")
    (shared / "calibration").mkdir()
    pd.DataFrame({"sentence": others}).to_csv(shared / "calibration" / "train.csv", index=False)
    return [sentence for part in parts for sentence in part]


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--peers", default=sys.executable, help="Python with the other libraries. Default: this one.")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--every", type=int, default=1, help="Use every Nth pair of a set. Default: all.")
    asked = parser.parse_args()
    tasks = {name: catalog.read_pairs(name, "test")[:: asked.every] for name in STS_TASKS}
    sides = (side for pairs in tasks.values() for pair in pairs for side in (pair.first, pair.second))
    distinct = list(dict.fromkeys(sides))
    with tempfile.TemporaryDirectory() as folder:
        sentences = write_texts(Path(folder), distinct, asked.rounds)
        workers = [
            start(way, sys.executable if way.startswith("cse") else asked.peers, str(asked.model.resolve()),
                  Path(folder), asked.threads)
            for way in WAYS
        ]  # fmt: skip
        ready = [worker for worker in workers if worker.versions]
        for part in range(asked.rounds):
            for worker in ready[part % len(ready) :] + ready[: part % len(ready)]:
                worker.encode(part)
        report(workers, tasks, sentences)
        for worker in ready:
            worker.process.communicate()


def report(workers: Sequence[Worker], tasks: dict[str, list[Pair]], sentences: Sequence[str]) -> None:
    """Print a row per way."""
    print(f"{len(sentences):,} sentences\n")
    print("| way | sentences per CPU second | slowest and fastest round | sentences per second | STS average |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for worker in workers:
        if not worker.versions:
            print(f"| {worker.way} | not available: {worker.error()[:160]} | | | |")
            continue
        rounds = len(worker.seconds)
        sizes = [len(sentences[number::rounds]) for number in range(rounds)]
        speeds = [size / seconds for size, seconds in zip(sizes, worker.cpu_seconds, strict=True)]
        score = average(tasks, sentences, worker.embeddings())
        print(
            f"| {worker.way} | {statistics.median(speeds):.0f} | {min(speeds):.0f} to {max(speeds):.0f} | "
            f"{len(sentences) / sum(worker.seconds):.0f} | {score:.2f} |"
        )
    print("\n" + "\n".join(dict.fromkeys(f"{worker.way}: {', '.join(worker.versions)}" for worker in workers)))


if __name__ == "__main__":
    main()

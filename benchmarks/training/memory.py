"""Peak memory of each way, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.start import peak
from benchmarks.training.material import Setting
from benchmarks.training.ours import Ours
from benchmarks.training.plain import Plain
from benchmarks.training.sbert import Sbert

STEPS = 4
WAYS = ("ours", "plain", "sbert")


def of(way: str, setting: Setting) -> dict[str, float]:
    """Return the MB a way needs, measured in a new process that builds it and takes `STEPS` steps.

    "process" is the most the process ever held, imports included, "before" what it held when its model was built; on a
    GPU "device" is the most that tensors took there.
    """
    plain = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(setting).items()}
    command = [sys.executable, "-m", "benchmarks.training.memory", way, json.dumps(plain)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(way: str, setting: Setting) -> dict[str, float]:
    """Return the same of this process."""
    ours = Ours(setting)
    if way == "ours":
        one: Ours | Plain | Sbert = ours
    else:
        batches = ours.batches
        del ours
        one = Plain(setting, batches) if way == "plain" else Sbert(setting, batches)
    before = peak()
    one.steps(STEPS)
    found = {"before": before, "process": peak()}
    if torch.cuda.is_available() and setting.device != "cpu":
        found["device"] = torch.cuda.max_memory_allocated() / 2**20
    return found


def main(arguments: Sequence[str]) -> None:
    """Measure one way in this process and print JSON."""
    given = json.loads(arguments[1])
    paths = {key: Path(given[key]) for key in ("model", "text", "parallel")}
    setting = Setting(**{**given, **paths, "options": tuple(given["options"])})
    print(json.dumps(measure(arguments[0], setting)))


if __name__ == "__main__":
    main(sys.argv[1:])

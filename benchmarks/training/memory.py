"""Peak memory of each implementation, in a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.start import peak
from benchmarks.training.cse_steps import CseSteps
from benchmarks.training.material import Setting
from benchmarks.training.plain import Plain
from benchmarks.training.sbert import Sbert

STEPS = 4
WAYS = ("cse", "plain", "sbert")


def of(way: str, setting: Setting) -> dict[str, float]:
    """Return the memory of an implementation in MB, measured over `STEPS` steps in a new process.

    "process" is the peak of the process, imports included. "before" is the peak after the model was built. On a GPU,
    "device" is the peak of the tensors on the device.
    """
    plain = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(setting).items()}
    command = [sys.executable, "-m", "benchmarks.training.memory", way, json.dumps(plain)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(way: str, setting: Setting) -> dict[str, float]:
    """Return the memory of an implementation in MB, measured in this process."""
    own = CseSteps(setting)
    if way == "cse":
        one: CseSteps | Plain | Sbert = own
    else:
        batches = own.batches
        del own
        one = Plain(setting, batches) if way == "plain" else Sbert(setting, batches)
    before = peak()
    one.steps(STEPS)
    found = {"before": before, "process": peak()}
    if torch.cuda.is_available() and setting.device != "cpu":
        found["device"] = torch.cuda.max_memory_allocated() / 2**20
    return found


def main(arguments: Sequence[str]) -> None:
    """Measure one implementation in this process and print JSON."""
    given = json.loads(arguments[1])
    paths = {key: Path(given[key]) for key in ("model", "text", "parallel")}
    setting = Setting(**{**given, **paths, "options": tuple(given["options"])})
    print(json.dumps(measure(arguments[0], setting)))


if __name__ == "__main__":
    main(sys.argv[1:])

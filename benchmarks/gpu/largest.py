"""Largest batch that fits, and memory of smaller batches, without and with gradient caching.

    python -m benchmarks.gpu.largest [--device cuda] [--mini-batch-size 256] [--most 65536] [--seconds 60] [--json FILE]

The batch size doubles until a batch does not fit, or the time limit or `--most` is reached. On a CPU, the memory is the
peak memory of the process.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import torch

from benchmarks.gpu.document import write
from benchmarks.gpu.material import parser, setting
from benchmarks.start import peak
from benchmarks.training.cse_steps import CseSteps
from benchmarks.training.material import Setting
from registry.errors import CseError


def one(common: Setting, batch: int) -> dict[str, float]:
    """Return the memory in MB, and the seconds of the second of two steps."""
    on_gpu = common.device != "cpu"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    training = CseSteps(replace(common, batch=batch), "simcse_en")
    training.steps(1)
    began = time.perf_counter()
    training.steps(1)
    seconds = time.perf_counter() - began
    training.close()
    return {"batch": batch, "mb": torch.cuda.max_memory_allocated() / 2**20 if on_gpu else peak(), "seconds": seconds}


def climb(common: Setting, asked: argparse.Namespace, until: float) -> dict[str, Any]:
    """Return the memory and time of each batch, and the reason of the end."""
    taken: list[dict[str, float]] = []
    batch, why = asked.batch, "largest batch size reached"
    while batch <= asked.most:
        if time.perf_counter() > until:
            why = "time limit reached"
            break
        try:
            taken.append(one(common, batch))
        except torch.OutOfMemoryError:
            why = f"{batch} does not fit"
            break
        except CseError as error:
            why = error.message
            break
        batch *= 2
    return {"batches": taken, "ended": why}


def main() -> None:
    """Measure without and with gradient caching and write the result."""
    made = parser(__doc__)
    made.add_argument("--mini-batch-size", type=int, default=256)
    made.add_argument("--most", type=int, default=65_536)
    made.add_argument("--seconds", type=float, default=60.0)
    asked = made.parse_args()
    found: dict[str, Any] = {}
    lines = ["| setting | batch | MB | s per step |", "| --- | ---: | ---: | ---: |"]
    cached = f"train.mini_batch_size={asked.mini_batch_size}"
    with setting(asked, asked.most) as common:
        for name, options in (("at once", ()), (cached, (cached,))):
            changed = replace(common, options=(*common.options, *options))
            found[name] = climb(changed, asked, time.perf_counter() + asked.seconds / 2)
            for row in found[name]["batches"]:
                lines.append(f"| {name} | {row['batch']:.0f} | {row['mb']:,.0f} | {row['seconds']:.3f} |")
            lines.append(f"| {name} | ended: {found[name]['ended']} | | |")
    write(asked.json, found, lines)


if __name__ == "__main__":
    main()

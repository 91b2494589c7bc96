"""Estimated time of a pass over a million sentences with SimCSE, from steady steps.

    python -m benchmarks.gpu.epoch [--device cuda] [--shape bert-base] [--seconds 60] [--json FILE]

The estimate excludes tokenizing and scoring.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.gpu.document import write
from benchmarks.gpu.material import parser, setting
from benchmarks.training.cse_steps import CseSteps
from benchmarks.training.material import Setting

SENTENCES = 1_000_000
CHUNK = 10
"""Steps between two reads of the clock. Each read waits for the device, as a run does when it logs."""


def main() -> None:
    """Measure steps and write the estimate for a million sentences."""
    made = parser(__doc__)
    made.add_argument("--seconds", type=float, default=60.0)
    made.add_argument(
        "--rows", type=int, default=200_000, help="Number of sentences. They are tokenized before the measurement."
    )
    asked = made.parse_args()
    with setting(asked, asked.rows) as common:
        found = measure(common, asked.seconds)
    write(asked.json, {**found, "shape": asked.shape}, page(found, asked.shape))


def measure(common: Setting, seconds: float) -> dict[str, Any]:
    """Run steps for at least `seconds` and return their times."""
    one = CseSteps(common, "simcse_en")
    one.steps(CHUNK)
    watch = one.trainer.stepper.watch
    watch.recent()
    before = watch.clock.read()
    began, steps = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < seconds:
        one.steps(CHUNK)
        steps += CHUNK
    parts = {part: value - before[part] for part, value in watch.clock.read().items()}
    lately = watch.recent()
    one.close()
    return {
        "epoch_seconds": took / steps * SENTENCES / common.batch,
        "seconds_a_step": took / steps,
        "steps": steps,
        "measured_seconds": took,
        "parts": parts,
        "tokens_per_second": lately["speed/tokens_per_second"],
        "peak_memory_gb": lately["speed/peak_memory_gb"],
        "text": common.text.stem,
        "batch": common.batch,
        "precision": common.precision,
    }


def page(found: dict[str, Any], shape: str) -> list[str]:
    """Return the measurements as text."""
    step, spent = found["seconds_a_step"], sum(found["parts"].values())
    shares = ", ".join(f"{part} {value / spent:.0%}" for part, value in found["parts"].items() if value > 0.001 * spent)
    return [
        f"A million sentences of {found['text']} with {shape}, batch {found['batch']}, {found['precision']}: "
        f"**{found['epoch_seconds']:.0f} s**, from {found['steps']} steps in {found['measured_seconds']:.0f} s "
        f"({1000 * step:.2f} ms per step, {found['batch'] / step:,.0f} sentences/s).",
        f"Shares of a step: {shares}. {found['tokens_per_second']:,.0f} tokens/s, "
        f"peak memory {found['peak_memory_gb']:.2f} GB.",
    ]


if __name__ == "__main__":
    main()

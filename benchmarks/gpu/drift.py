"""Difference between the losses of bf16 and fp32 training, without dropout.

    python -m benchmarks.gpu.drift [--device cuda] [--shape bert-base] [--steps 50] [--json FILE]

The weights and the batches are the same for both.
"""

from __future__ import annotations

import statistics
from dataclasses import replace

from benchmarks.gpu.document import write
from benchmarks.gpu.material import parser, setting
from benchmarks.training.cse_steps import CseSteps

RECIPES = ("simcse_en", "ifcl_en")


def main() -> None:
    """Train with both precisions and write the curves."""
    made = parser(__doc__)
    made.add_argument("--steps", type=int, default=50)
    made.add_argument("--recipes", nargs="*", default=RECIPES)
    asked = made.parse_args()
    found: dict[str, object] = {}
    lines = ["| recipe | fp32, first and last loss | bf16, first and last loss | mean difference | largest |"]
    lines.append("| --- | ---: | ---: | ---: | ---: |")
    with setting(asked, max(2000, 2 * asked.batch), dropout=0.0) as common:
        for recipe in asked.recipes:
            curves = {}
            for precision in ("fp32", "bf16"):
                one = CseSteps(replace(common, precision=precision), recipe, total=asked.steps)
                curves[precision] = one.steps(asked.steps)
                one.close()
            apart = [abs(a - b) / max(abs(a), 0.1) for a, b in zip(*curves.values(), strict=True)]
            found[recipe] = {**curves, "mean": statistics.fmean(apart), "largest": max(apart)}
            ends = " | ".join(f"{curve[0]:.4f}, {curve[-1]:.4f}" for curve in curves.values())
            lines.append(f"| {recipe} | {ends} | {statistics.fmean(apart):.1e} | {max(apart):.1e} |")
    lines.append(f"\n{asked.steps} steps of {asked.shape}, relative to the loss, or to 0.1 if the loss is smaller.")
    write(asked.json, {"recipes": found, "steps": asked.steps}, lines)


if __name__ == "__main__":
    main()

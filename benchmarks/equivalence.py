"""Test whether recipes score the same in two precisions: two one-sided t-tests over the same seeds.

    python -m benchmarks.equivalence quickstart mini/ifcl_en [--seeds 5] [--margin 0.5] [--json FILE]

Runs every recipe in fp32 and in bf16 with the same seeds. For each score (the best dev score, and the average of the
tests) prints the mean difference with its 90 % interval. Two precisions are equivalent if the interval is within the
margin, and different if it does not contain 0. Otherwise the seeds do not decide, and "seeds" is the number with which
an interval of this width would fit. The last lines are means over all recipes. Finished runs are not repeated.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from scipy.stats import t as student

from cse_cli.core.results import Result

PRECISIONS = ("fp32", "bf16")
LEVEL = 0.05
MOST_SEEDS = 1000


def run(names: Sequence[str], precision: str, seeds: int, workers: int) -> list[Result]:
    """Run recipes in a precision and return the results."""
    command = [sys.executable, "-m", "cse_cli", "run", *names, "--seeds", str(seeds), "--workers", str(workers)]
    options = ["--precision", precision, "--json", "--quiet"]
    done = subprocess.run([*command, *options], stdout=subprocess.PIPE, text=True, check=True)
    return [Result.model_validate(result) for result in json.loads(done.stdout)["results"]]


def scores(result: Result) -> dict[str, float]:
    """Return the best dev score and the average of the tests."""
    found = {"dev": max(value for step, value in result.curve.items() if step)} if result.curve else {}
    average = result.average()
    return found if average is None else {**found, "test": average}


def half_width(differences: Sequence[float], seeds: int) -> float:
    """Return half of the width of the 90 % interval with this many seeds and the spread of the differences."""
    width: float = student.ppf(1 - LEVEL, seeds - 1) * stdev(differences) / seeds**0.5
    return width


def verdict(differences: Sequence[float], margin: float) -> tuple[str, int | None]:
    """Return the verdict, and the number of seeds for which the interval would fit into the margin, or None."""
    mean, width = fmean(differences), half_width(differences, len(differences))
    needed = (n for n in range(2, MOST_SEEDS) if abs(mean) + half_width(differences, n) < margin)
    if abs(mean) + width < margin:
        return "equivalent", len(differences)
    return ("different" if abs(mean) > width else "not decided"), next(needed, None)


def row(name: str, pairs: Sequence[tuple[float, float]], margin: float) -> str:
    """Return one line of the table for the scores of each seed in both precisions."""
    differences = [second - first for first, second in pairs]
    said, seeds = verdict(differences, margin)
    means = [f"{fmean(values):.2f} ± {stdev(values):.2f}" for values in zip(*pairs, strict=True)]
    interval = f"{fmean(differences):+.2f} ± {half_width(differences, len(differences)):.2f}"
    return f"| {name} | {means[0]} | {means[1]} | {interval} | {said} | {seeds or f'over {MOST_SEEDS}'} |"


def main() -> None:
    """Run the recipes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--margin", type=float, default=0.5, help="Largest difference that does not matter, in points.")
    parser.add_argument("--json", type=Path, help="Output file for the scores of every run.")
    asked = parser.parse_args()
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for precision in PRECISIONS:
        for result in run(asked.recipes, precision, asked.seeds, asked.workers):
            for score, value in scores(result).items():
                found.setdefault((result.recipe, score), {}).setdefault(result.seed, []).append(value)
    print(f"| recipe, score | {PRECISIONS[0]} | {PRECISIONS[1]} | difference, 90 % | verdict | seeds |")
    print("| --- | ---: | ---: | ---: | --- | ---: |")
    for (name, score), seeds in found.items():
        print(row(f"{name}, {score}", [(first, second) for first, second in seeds.values()], asked.margin))
    for score in ("dev", "test"):
        own = [seeds for (_, kind), seeds in found.items() if kind == score]
        means = [tuple(fmean(of) for of in zip(*seeds.values(), strict=True)) for seeds in own]
        print(row(f"mean of {len(own)} recipes, {score}", [(first, second) for first, second in means], asked.margin))
    if asked.json:
        table = {f"{name}, {score}": seeds for (name, score), seeds in found.items()}
        asked.json.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

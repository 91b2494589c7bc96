"""Compare `cse plan` with the real time of `cse run`, for each recipe in an empty state directory.

    python -m benchmarks.plan_vs_real quickstart mini/simcse_en mini/ifcl_en --set train.steps=200

The real time is that of the whole command, from the start of the process to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ALLOWED = 0.25
"""Largest allowed difference between predicted and real time."""


def main() -> None:
    """Print predicted and real seconds and their ratio for each recipe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    parser.add_argument("--device", default="auto")
    chosen = parser.parse_args()
    options = [word for text in chosen.overrides for word in ("--set", text)] + ["--device", chosen.device]
    print(f"{'recipe':<24} {'plan':>8} {'real':>8} {'ratio':>6}   stages of the plan")
    good = True
    for recipe in chosen.recipes:
        with tempfile.TemporaryDirectory() as home:
            good &= compare(recipe, options, Path(home))
    sys.exit(0 if good else 1)


def compare(recipe: str, options: Sequence[str], home: Path) -> bool:
    """Print the line of a recipe, and return whether plan and real time differ by at most `ALLOWED`."""
    plan = planned(recipe, options, home)
    began = time.perf_counter()
    cse(["run", recipe, *options, "--seed", "0", "--quiet"], home)
    real = time.perf_counter() - began
    ratio = plan["seconds"] / real
    stages = ", ".join(f"{name} {seconds:.0f}" for name, seconds in plan["stages"].items())
    line = f"{recipe:<24} {plan['seconds']:>8.0f} {real:>8.0f} {ratio:>6.2f}   {stages}"
    print(line, flush=True)
    return abs(ratio - 1) <= ALLOWED


def planned(recipe: str, options: Sequence[str], home: Path) -> dict[str, Any]:
    """Return the plan of a recipe."""
    document = json.loads(cse(["plan", recipe, *options, "--json"], home))
    found: dict[str, Any] = document["plans"][0]
    return found


def cse(words: Sequence[str], home: Path) -> str:
    """Run a command, and return what it prints on stdout."""
    environment = {**os.environ, "CSE_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-m", "cse_cli", *words], env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout


if __name__ == "__main__":
    main()

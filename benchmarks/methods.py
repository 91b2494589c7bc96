"""Every method on the project's small encoder, the same budget for all: does it run, learn, collapse, and how fast?

    CSE_DATA=../shared/data CSE_MODELS=../shared/models python benchmarks/methods.py [--steps 300] [--only simcse ...]

Runs each recipe under `recipes/mini/` that trains, one seed, on one text, scoring STS-B dev alone; prints a Markdown
table. IFCL's recipes keep their own text, because they need a second language beside each sentence, and
DeCLUTR's, which needs longer texts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import load
from cse_cli.recipe.schema import Recipe
from registry import AUGMENTERS

TEXT = "wiki_en"


def recipes(only: list[str]) -> list[str]:
    """Return the English recipes under mini/ that train."""
    found = [name for name in all_recipes() if name.startswith("mini/") and any(part in name for part in only or [""])]
    return [name for name in found if (r := load(name).recipe).train.steps != 0 and r.language == "en"]


def options(recipe: Recipe, steps: int, text: str) -> list[str]:
    """Return the arguments that give every recipe the same budget and text."""
    select = (recipe.evaluate.select or "").partition(".")[0]
    given = [f"train.steps={steps}", f"train.evaluate_every={steps // 6}", "evaluate.untrained=false"]
    if not keeps_its_text(recipe):
        given.append(f'data.dataset="{text}"')
    dropped = [f"evaluators.{name}" for name in recipe.evaluators if name != select]
    return [a for g in given for a in ("--set", g)] + [a for d in dropped for a in ("--unset", d)]


def keeps_its_text(recipe: Recipe) -> bool:
    """Tell whether an augmenter reads a column that plain text does not have, or chooses from whole documents."""
    parts = [part for view in recipe.views.values() for part in view.augment]
    return any("column" in part.params or AUGMENTERS[part.name].cls.reads_whole_text for part in parts)


def run(name: str, steps: int, text: str) -> dict[str, Any]:
    """Return the result document of one run, and what the command said."""
    command = [sys.executable, "-m", "cse_cli", "run", name, "--seed", "0", "--json"]
    began = time.perf_counter()
    done = subprocess.run(
        [*command, *options(load(name).recipe, steps, text)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {"failed": done.stderr.strip().rpartition("\n")[2] or f"exit {done.returncode}"}
    collapse = next((line.strip() for line in done.stderr.split("\n") if "collapse" in line), "")
    return {**json.loads(done.stdout)["results"][0], "collapse": collapse, "wall": time.perf_counter() - began}


def row(name: str, found: dict[str, Any], steps: int, text: str) -> str:
    """Return one line of the table."""
    if "failed" in found:
        return f"| {name} | failed: {found['failed']} |"
    curve = {int(step): value for step, value in found["curve"].items()}
    best = max(step for step in curve if step and curve[step] == max(v for s, v in curve.items() if s))
    return (
        f"| {name} | {text} | {curve[0]:.2f} | {curve[best]:.2f} ({best}) | {curve[steps]:.2f} | "
        f"{found['sentences_per_second']:.0f} | {found['collapse'] or 'no'} |"
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--only", nargs="*", default=[])
    asked = parser.parse_args()
    sys.stdout.write(f"{os.cpu_count()} cores, {asked.steps} steps, seed 0\n\n")
    sys.stdout.write("| recipe | text | dev before | best (step) | dev after | sentences/s | collapse |\n")
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    for name in recipes(asked.only):
        recipe = load(name).recipe
        text = ", ".join(recipe.data.dataset) if keeps_its_text(recipe) else asked.text
        sys.stdout.write(row(name, run(name, asked.steps, asked.text), asked.steps, text) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

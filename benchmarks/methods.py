"""Run every method on the project's small encoder with the same budget.

    python benchmarks/methods.py [--steps 60] [--only simcse ...]

Runs each recipe in `recipes/mini/` that trains, with several seeds, on one text, and evaluates only on dev pairs.
After each seed, prints a Markdown table with score, gain, speed and collapse alarms. IFCL's recipes keep their text,
because they need a second language for each sentence. DeCLUTR's recipe also does, because it needs longer texts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, stdev

from cse_cli.core.results import Result
from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.load import load
from cse_cli.recipe.schema import Recipe
from cse_cli.runs.events import read_history
from cse_cli.runs.record import folder_of
from registry import AUGMENTERS

TEXT = "tatoeba_en_de"


def recipes(only: list[str]) -> list[str]:
    """Return the recipes under mini/ that train, without the crossings of methods."""
    found = [name for name in all_recipes() if name.startswith("mini/") and any(part in name for part in only or [""])]
    found = [name for name in found if not name.startswith("mini/cross/")]
    return [name for name in found if load(name).recipe.train.steps != 0]


def options(recipe: Recipe, steps: int, text: str) -> list[str]:
    """Return the arguments that give every recipe the same budget and text."""
    select = (recipe.evaluate.metric_for_best_model or "").partition(".")[0]
    given = [f"train.steps={steps}", f"train.evaluate_every={max(1, steps // 3)}", "evaluate.eval_on_start=false"]
    if not keeps_its_text(recipe):
        given.append(f'data.dataset="{text}"')
    dropped = [f"evaluators.{name}" for name in recipe.evaluators if name != select]
    return [a for g in given for a in ("--set", g)] + [a for d in dropped for a in ("--unset", d)]


def keeps_its_text(recipe: Recipe) -> bool:
    """Return whether an augmenter reads a column that plain text does not have, or selects from whole documents."""
    parts = [part for view in recipe.views.values() for part in view.augment]
    return any("column" in part.params or AUGMENTERS[part.name].cls.reads_whole_text for part in parts)


def run(names: Sequence[str], options: Sequence[str], seed: int, workers: int) -> list[Result]:
    """Return the results of recipes with the same options, without failed runs."""
    command = [sys.executable, "-m", "cse_cli", "run", *names, "--seed", str(seed), "--workers", str(workers)]
    done = subprocess.run([*command, *options, "--json", "--yes"], stdout=subprocess.PIPE, text=True, check=False)
    results = json.loads(done.stdout)["results"] if done.stdout else []
    return [Result.model_validate(result) for result in results]


def raised_alarm(result: Result) -> bool:
    """Return whether the collapse alarm of a run was triggered."""
    return "health/collapse_alarm" in read_history(folder_of(str(result.run_id))).metrics


def row(name: str, text: str, found: Sequence[Result]) -> str:
    """Return one line of the table, with means over the seeds."""
    curves = [result.curve for result in found]
    best = [max((score, -step) for step, score in curve.items() if step) for curve in curves]
    gains = [score - curve[0] for (score, _), curve in zip(best, curves, strict=True)]
    cells = (
        f"{fmean(curve[0] for curve in curves):.2f}",
        f"{fmean(score for score, _ in best):.2f} ({', '.join(str(-step) for _, step in best)})",
        f"{fmean(gains):+.2f}" + (f" ± {stdev(gains):.2f}" if len(gains) > 1 else ""),
        f"{fmean(curve[max(curve)] for curve in curves):.2f}",
        f"{fmean(result.sentences_per_second or 0 for result in found):.0f}",
        f"{sum(map(raised_alarm, found))} of {len(found)}",
    )
    return f"| {name} | {text} | {' | '.join(cells)} |"


def main() -> None:
    """Run the recipes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--workers",
        type=int,
        default=os.cpu_count() or 1,
        help="Number of runs to execute in parallel, with one thread each.",
    )
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--only", nargs="*", default=[])
    asked = parser.parse_args()
    loaded = {name: load(name).recipe for name in recipes(asked.only)}
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, recipe in loaded.items():
        alike[tuple(options(recipe, asked.steps, asked.text))].append(name)
    found: dict[str, list[Result]] = defaultdict(list)
    for seed in range(asked.seeds):
        for given, names in alike.items():
            for result in run(names, given, seed, asked.workers):
                found[result.recipe].append(result)
        sys.stdout.write(f"\n{os.cpu_count()} cores, {asked.steps} steps, {seed + 1} seeds\n\n")
        sys.stdout.write("| recipe | text | dev before | best (steps) | gain | dev after | sentences/s | alarms |\n")
        sys.stdout.write("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
        for name, recipe in loaded.items():
            text = ", ".join(recipe.data.dataset) if keeps_its_text(recipe) else asked.text
            sys.stdout.write((row(name, text, found[name]) if found[name] else f"| {name} | failed |") + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

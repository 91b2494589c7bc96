"""Cost of a step by batch, length, queue and views: `python -m benchmarks.growth`.

One shape, random weights, Wikipedia text. The settings alternate. The results are medians of rounds, in wall and
processor seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

BATCHES = (16, 32, 64, 128, 256)
LENGTHS = (16, 32, 64, 128)
QUEUES = (64, 416, 4096, 65536)
VIEWS = (2, 3, 4)
ROWS = 4096
"""Number of sentences: enough for a few steps of the largest batch."""


def main(given: Sequence[str] | None = None) -> int:
    """Measure, print the tables and return 0."""
    parser = argparse.ArgumentParser(description="Measure the cost of a step by batch, length, queue and views.")
    parser.add_argument("--shape", default="minilm")
    parser.add_argument("--text", default="wiki_en_1m")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="Measured steps per round, after one warm-up step.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(given)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        os.environ["CSE_HOME"] = f"{folder}/home"
        found = measured(asked, Path(folder))
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print("\n\n".join(_table(name, rows) for name, rows in found["growth"].items()))
    return 0


def measured(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the seconds and tokens of a step for each value of batch, length, queue and views."""
    from benchmarks.training import machine, material, measure
    from benchmarks.training.cse_steps import CseSteps
    from registry.resources.models import quiet_transformers

    quiet_transformers()
    text, parallel = material.write_text(asked.text, folder, ROWS)
    model = material.write_model(asked.shape, folder / "model", None, text, 0.1)
    setting = material.Setting(model, text, parallel, precision=asked.precision, device=asked.device)
    series = {
        "batch": {n: CseSteps(replace(setting, batch=n), name=str(n)) for n in BATCHES},
        "length": {n: CseSteps(replace(setting, length=n), name=str(n)) for n in LENGTHS},
        "queue": {
            n: CseSteps(
                replace(setting, options=(f"queue.length={n}", 'queue.initial="random"')), "ifcl_en", name=str(n)
            )
            for n in QUEUES
        },
        "views": {n: CseSteps(replace(setting, options=tuple(_more(n))), name=str(n)) for n in VIEWS},
    }
    found = {name: _timed(ways, asked, measure.tokens, setting) for name, ways in series.items()}
    return {"machine": machine.describe(), "shape": asked.shape, "growth": found, "load_at_end": machine.load()}


def _more(views: int) -> Iterator[str]:
    """Yield the settings that add views to the recipe, each a positive of the anchor."""
    for number in range(2, views):
        yield f'views.more{number}.column="text"'
        yield f'losses.more{number}={{name = "info_nce", views = {{positive = "more{number}"}}}}'


def _timed(ways: dict[int, Any], asked: argparse.Namespace, tokens: Any, setting: Any) -> list[dict[str, Any]]:
    from benchmarks.training.timing import alternate

    timed = alternate(list(ways.values()), asked.rounds, asked.steps, 1, next(iter(ways.values())).device)
    steps = asked.rounds * (asked.steps + 1)
    rows = []
    for (value, way), one in zip(ways.items(), timed, strict=True):
        settings = way.trainer.settings
        length = way.trainer.experiment.recipe.data.max_length
        real = tokens(replace(setting, length=length, batch=settings.batch_size), way.batches, steps)["real"]
        views = len(way.trainer.method.views)  # `tokens` counts two views
        rows.append({"value": value, "wall": one.seconds, "cpu": one.cpu_seconds, "tokens": real * views / 2})
        way.close()
    return rows


def _table(name: str, rows: Sequence[dict[str, Any]]) -> str:
    first = rows[0]
    lines = [f"| {name} | wall s | cpu s | relative | µs per token |", "| ---: | ---: | ---: | ---: | ---: |"]
    for row in rows:
        per = 1e6 * row["wall"] / row["tokens"]
        relative = row["wall"] / first["wall"]
        lines.append(f"| {row['value']:,} | {row['wall']:.3f} | {row['cpu']:.3f} | {relative:.2f} | {per:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

"""A small study with recorded runs, for tests that compare its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from cse_cli.core.identity import Plan
from cse_cli.core.results import STS_TASKS
from tests.cse_cli.analysis.recorded import record

RECIPE, STUDY = "mini/simcse_en", "mine.toml"
MADE = datetime(2026, 11, 21, tzinfo=UTC)
KEY = "losses.info_nce.temperature"
SEEDS = (1, 2, 3, 4, 5)
VALUES = {"plain": 0.05, "hot [red]one": 0.1, "warm": 0.2, "cold": 0.02, "colder": 0.01}
"""Row → temperature."""
ROWS = list(VALUES)
SCORES = {"plain": 60.0, "hot [red]one": 58.0, "warm": 60.1, "cold": 64.0, "colder": 61.0}
"""Row → mean score."""
SHIFTS = {
    "plain": (0.0, 0.3, -0.2, 0.1, -0.2),
    "warm": (0.3, -0.2, 0.2, -0.4, 0.1),
    "cold": (0.2, 0.1, -0.1, 0.1, -0.3),
}
"""Row → what each seed adds. Rows without a list have `OTHERS`."""
OTHERS = (0.1, 0.2, -0.3, 0.2, -0.2)


def write_study(rows: Iterable[str] = VALUES, more: str = "", tables: str = "", row: str = "") -> None:
    """Write a study into the working directory.

    Args:
        rows: Names of its rows.
        more: Further keys of the study.
        tables: Further tables of the study.
        row: Further keys of each row.
    """
    lines = ["[study]", 'title = "Mine"', f'recipe = "{RECIPE}"', f"seeds = {list(SEEDS)}", 'score = "avg"', more]
    for name in rows:
        lines += ["[[study.rows]]", f'row = "{name}"', f'set = ["{KEY}={VALUES[name]}"]', row]
    Path(STUDY).write_text("\n".join([*lines, tables, ""]))


def record_row(
    name: str,
    seeds: Sequence[int] = SEEDS,
    plan: Sequence[int] | None = SEEDS,
    overrides: Sequence[str] = (),
    shift: float = 0.0,
    **changes: object,
) -> list[str]:
    """Record the runs of a row without sentence pairs and return their IDs."""
    added: Mapping[int, float] = dict(zip(SEEDS, SHIFTS.get(name, OTHERS), strict=True))
    ids = []
    for seed in seeds:
        score = SCORES[name] + added.get(seed, 0.0) + shift
        scores = {task: {"spearman": score + place / 10} for place, task in enumerate(("stsb_dev", *STS_TASKS, "test"))}
        changes["plan"] = None if plan is None else Plan(seeds=tuple(plan), made=MADE)
        settings = overrides or [f"{KEY}={VALUES[name]}"]
        ids.append(record(RECIPE, seed, overrides=settings, scores=scores, keep=False, started=MADE, **changes))
    return ids


def record_rows(rows: Iterable[str] = VALUES) -> None:
    """Record five planned seeds of each row."""
    for name in rows:
        record_row(name)

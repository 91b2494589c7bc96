"""Studies that run in seconds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from cse_cli.tracking.store import Store

TEMPERATURES = "[0.05, 0.1, 0.2]"


def grid(folder: Path, values: str = TEMPERATURES, seeds: str = "1", more: str = "") -> str:
    """Write a study of `small.toml` over temperatures; return its name for the command line."""
    text = f'[study]\ntitle = "Tiny [red]one"\nrecipe = "small.toml"\nseeds = {seeds}\n{more}\n'
    (folder / "tiny.toml").write_text(f'{text}[study.grid]\n"losses.info_nce.temperature" = {values}\n')
    return "tiny.toml"


def runs(store: Store) -> list[tuple[str, str, str, str]]:
    """Return hash, seed, status and study of every run, oldest first."""
    found = store.client.search_runs(list(store.experiments()), order_by=["attribute.start_time ASC"])
    names = ("cse.recipe_hash", "cse.seed")
    return [
        (*(run.data.tags[name] for name in names), run.info.status, run.data.tags.get("cse.study", "")) for run in found
    ]


def times(store: Store) -> Counter[tuple[str, str]]:
    """Return how many runs each hash and seed has, whatever became of them."""
    return Counter((run[0], run[1]) for run in runs(store))

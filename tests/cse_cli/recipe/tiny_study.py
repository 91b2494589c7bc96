"""Studies that run in seconds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from cse_cli.runs.index import all_runs

TEMPERATURES = "[0.05, 0.1, 0.2]"


def grid(folder: Path, values: str = TEMPERATURES, seeds: str = "1", more: str = "") -> str:
    """Write a study of `small.toml` over temperatures; return its name for the command line."""
    text = f'[study]\ntitle = "Tiny [red]one"\nrecipe = "small.toml"\nseeds = {seeds}\n{more}\n'
    (folder / "tiny.toml").write_text(f'{text}[study.grid]\n"losses.info_nce.temperature" = {values}\n')
    return "tiny.toml"


def runs() -> list[tuple[str, int | None, str, str]]:
    """Return hash, seed, state and study of every run, oldest first."""
    abouts = [(run.about, run.state) for run in reversed(all_runs())]
    return [
        (about.identity.settings if about.identity else "", about.seed, state, about.study) for about, state in abouts
    ]


def times() -> Counter[tuple[str, int | None]]:
    """Return how many runs each hash and seed has, whatever became of them."""
    return Counter((run[0], run[1]) for run in runs())

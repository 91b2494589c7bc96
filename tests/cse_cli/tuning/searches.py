"""Example searches."""

from __future__ import annotations

from typing import Any

from cse_cli.core.stats import compare_paired
from cse_cli.tuning.parameters import Parameter
from cse_cli.tuning.results import Search, Trial, Verification
from cse_cli.tuning.study import SearchConfig

NAME = "quickstart-queue_length-1a2b"
LENGTH = Parameter(name="queue_length", paths=("queue.length",), low=64, high=512, step=32, whole=True, default=128)
RATE = Parameter(
    name="train.learning_rate", paths=("train.learning_rate",), low=1e-4, high=1e-2, log=True, default=1e-3
)
POOLING = Parameter(name="pooling", paths=("encoders.online.pooling",), choices=("cls", "mean"), default="mean")


def search(**changes: Any) -> Search:
    """Return a search of three complete trials, one pruned, one failed: trial 2 is the best."""
    trials = (
        Trial(number=0, state="complete", score=59.5, values={"queue_length": 128}, own=True, seconds=30.0),
        Trial(number=1, state="complete", score=59.25, values={"queue_length": 64}, seconds=31.0),
        Trial(number=2, state="complete", score=59.75, values={"queue_length": 256}, seconds=29.0),
        Trial(number=3, state="pruned", score=57.0, values={"queue_length": 96}, seconds=9.0),
        Trial(number=4, state="failed", values={"queue_length": 512}, reason="the loss is nan at step 3", seconds=2.0),
    )
    settings: dict[str, Any] = {"recipe": "quickstart", "trials": 5, "seeds": (0,), "parameters": (LENGTH,)}
    for key in changes.keys() & {"recipe", "seeds", "parameters"}:
        settings[key] = changes.pop(key)
    plain: dict[str, Any] = {
        "name": NAME, "config": SearchConfig(name=NAME, **settings), "recipe_hash": "0" * 16, "metric": "dev.spearman",
        "storage": "/home/tuning/x.db", "trials": trials, "updated": "2026-11-21T12:00:00+00:00",
    }  # fmt: skip
    return Search(**{**plain, **changes})


def verification(own: tuple[float, ...], found: tuple[float, ...], **values: Any) -> Verification:
    """Return a confirmation with seeds 1, 2, …"""
    seeds = range(1, len(own) + 1)
    over = compare_paired(seeds, own, found)
    return Verification(
        trial=2, values=values or {"queue_length": 256}, main="dev.spearman", paired={"dev.spearman": over}
    )

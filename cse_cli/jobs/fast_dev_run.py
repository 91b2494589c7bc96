"""`cse run --fast-dev-run`: the whole way of a recipe in about a minute, before hours are spent.

Only settings change, so every part of a run works as in the real one. The scores do not count as results, because
`evaluate.limit` is set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cse_cli.recipe.cells import Cell
from cse_cli.recipe.overrides import Override, parse_overrides
from cse_cli.recipe.schema import Recipe

TAGS = {"fast_dev_run": "true"}
"""Tags of the runs."""

SENTENCES = 2000
"""Rows of the training text."""
STEPS = 20
EVALUATE_EVERY = 10
PAIRS = 256
"""Pairs or rows of each evaluator. `mutual_information` needs 128."""


def reductions(recipe: Recipe, given: Sequence[str | Override] = ()) -> list[Override]:
    """Return the settings that make a recipe short, except those that `given` sets."""
    data, train, evaluate = recipe.data, recipe.train, recipe.evaluate
    short: dict[str, int] = {"evaluate.limit": min(PAIRS, evaluate.limit or PAIRS)}
    if train.steps != 0:
        short["train.steps"] = min(STEPS, train.steps or STEPS)
        if train.evaluate_every:
            short["train.evaluate_every"] = min(EVALUATE_EVERY, train.evaluate_every)
        sentences = max(SENTENCES, train.batch_size)
        short["data.limit"] = min(sentences, data.limit or sentences)
    chosen = {override.path for override in parse_overrides(given)}
    return [Override.of(path, value) for path, value in short.items() if path not in chosen]


def reduced(cell: Cell, given: Sequence[str | Override] = ()) -> Cell:
    """Return the cell of a study with a short recipe."""
    assert cell.resolved is not None
    short = replace(cell, overrides=(*cell.overrides, *reductions(cell.resolved, given)))
    recipe = short.load(cell.resolved.train.seed).recipe
    return replace(short, hash=recipe.hash(), resolved=recipe)

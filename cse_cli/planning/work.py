"""Amount of work of a recipe, from its settings and the sizes of its files."""

from __future__ import annotations

from cse_cli.data.requirements import Availability, availabilities
from cse_cli.recipe.schema import Recipe

SHORT = 1e14
"""Floating-point operations of a few minutes on two cores. The quickstart has 3e13, BERT base takes 40 steps."""
EVALUATED = 10_000
"""Sentences of an evaluator."""
LENGTH = 20
"""Tokens of a sentence of an evaluator."""
SENTENCE = 30
"""Bytes of a sentence of a training text in a compressed file."""


def is_short(recipe: Recipe, runs: int) -> bool:
    """Return whether that many runs of a recipe evidently take a few minutes."""
    return runs * operations(recipe) < SHORT


def operations(recipe: Recipe) -> float:
    """Return the approximate floating-point operations of a run: 6 per weight and trained token, 2 per scored token.

    The models count by the size of their files, and texts as long as possible, so it is rather too large.
    """
    found = availabilities([recipe])
    weights = sum(_bytes(one) for one in found if one.requirement.kind == "model") / 4
    train = recipe.train
    steps = train.steps
    if steps is None:
        texts = [one for one in found if one.requirement.wanted_by[:1] in (("data.dataset",), ("data.file",))]
        steps = train.epochs * sum(map(_bytes, texts)) // (SENTENCE * train.batch_size)
    trained = steps * train.batch_size * max(1, len(recipe.views)) * recipe.data.max_length
    scored = len(recipe.evaluators) * min(EVALUATED, 2 * (recipe.evaluate.limit or EVALUATED)) * LENGTH
    return 6 * weights * trained + 2 * weights * scored


def _bytes(one: Availability) -> int:
    """Return the size of the files of a requirement."""
    files = [file for path in one.paths for file in ([path] if path.is_file() else path.rglob("*"))]
    return sum(file.stat().st_size for file in files if file.is_file())

"""What is maximised: the dev metric that chooses a state, and nothing that looks at test data."""

from __future__ import annotations

from cse_cli.recipe.rules import is_test_split
from cse_cli.recipe.schema import Recipe
from registry.errors import CseError
from registry.kinds import EVALUATORS


def objective(recipe: Recipe) -> str:
    """Return the "evaluator.metric" that tuning maximises.

    Raises:
        CseError: The recipe names none, or one of test data.
    """
    select = recipe.evaluate.select
    dev = _dev_metrics(recipe)
    action = f"--metric {dev[0]}" if dev else "add an evaluator with a dev split to the recipe"
    if select is None:
        raise CseError("the recipe says no dev metric to maximise: evaluate.select is not set", action)
    name = select.rpartition(".")[0]
    if is_test_split(recipe.evaluators[name].params):
        split = recipe.evaluators[name].params.get("split", "test")
        raise CseError(
            f"'{select}' scores split '{split}': tuning takes dev metrics only, as the best of many trials on test "
            "data says nothing of other data",
            action,
        )
    return select


def _dev_metrics(recipe: Recipe) -> list[str]:
    """Return the main metric of every evaluator whose split may choose."""
    return [
        f"{name}.{EVALUATORS[part.name].cls.metric}"
        for name, part in recipe.evaluators.items()
        if not is_test_split(part.params)
    ]

"""What makes two searches the same search: checked whenever a worker joins a study."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.recipe.schema import Recipe, data_identity
from cse_cli.run_folder import differences
from cse_cli.tuning.metric import objective
from cse_cli.tuning.plan import Plan
from cse_cli.tuning.space import Knob
from registry.errors import CseError

DIRECTION: Final = "maximize"
_TABLE = re.compile(r"\{.*\}(?= → None$)|(?<=: None → )\{.*\}$")
_PROSE = {"title", "description", "paper", "tune"}


def base(plan: Plan) -> LoadedRecipe:
    """Return the recipe that a plan starts from, with what all trials have in common laid over it.

    Raises:
        CseError: It is not valid, or has no dev metric to tune by.
    """
    loaded = load(plan.recipe, common(plan), plan.unset)
    objective(loaded.recipe)
    return loaded


def common(plan: Plan) -> list[str]:
    """Return the `--set` texts of every trial."""
    return [*plan.overrides, *([] if plan.steps is None else [f"train.steps={plan.steps}"])]


def seeds(plan: Plan, recipe: Recipe) -> tuple[int, ...]:
    """Return the seeds that a trial's score is the mean of."""
    return plan.seeds or (recipe.train.seed,)


def identity(recipe: Recipe, knobs: Sequence[Knob], seeds: Sequence[int], steps: int | None) -> dict[str, Any]:
    """Return what all workers of a study must agree on, JSON-ready.

    Args:
        recipe: As `base` returns it.
        knobs: The space.
        seeds: Of every trial.
        steps: Of training, where they are not the recipe's.
    """
    settings = {key: value for key, value in recipe.resolved().items() if key not in _PROSE}
    settings["train"] = {key: value for key, value in settings["train"].items() if key != "seed"}
    settings["data"] = data_identity(settings["data"])
    return {
        "recipe": recipe.hash(),
        "direction": DIRECTION,
        "metric": recipe.evaluate.select,
        "seeds": list(seeds),
        "steps": steps,
        "space": {knob.name: knob.identity() for knob in knobs},
        "settings": settings,
    }


def demand_same(name: str, known: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Refuse to work on a study that asks another question.

    Raises:
        CseError: Naming everything that differs.
    """
    changed = list(differences(_essence(known), _essence(ours)))
    if known["recipe"] != ours["recipe"]:
        told = [line for line in differences(known["settings"], ours["settings"]) if not line.startswith("train.steps")]
        changed += told or ([] if changed else [f"recipe: {known['recipe']} → {ours['recipe']}"])
    if changed:
        raise CseError(
            f"study '{name}' asks another question:\n  " + "\n  ".join(map(_folded, changed)),
            f"put that back to go on with '{name}', or give this search another --name",
        )


def _folded(line: str) -> str:
    """Return a difference without the contents of a table that one side lacks: its name says enough."""
    return _TABLE.sub("{…}", line)


def _essence(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {key: identity[key] for key in ("direction", "metric", "seeds", "steps", "space")}

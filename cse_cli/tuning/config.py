"""Settings of a search."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from cse_cli.core.formatting import seed_list
from cse_cli.jobs.request import RunRequest
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.validate import is_test_split
from cse_cli.tuning.parameter import Parameter
from registry import EVALUATORS, plugins
from registry.errors import CseError

TRIALS = 20
"""Default number of trials of a new search."""


class SearchConfig(BaseModel):
    """Settings of a search.

    Args:
        recipe: File or name of the recipe.
        parameters: Search space.
        overrides: `--set` strings of every trial.
        unset: `--unset` keys of every trial.
        plugins: Plug-in files of the components.
        trials: Total number of trials. None keeps the budget of an existing search.
        sampler: One of `samplers.SAMPLERS`.
        pruner: One of `samplers.PRUNERS`.
        seeds: Seeds of every trial, whose score is their mean. Empty for the recipe's seed.
        steps: Training steps of every trial instead of the recipe's.
        tags: Tags of the search and of its trials.
        timeout: Seconds after which this command starts no new trial.
        request: Options that decide where runs are executed and what is printed.
        save_best: File for a recipe with the best values.
        verify_seeds: Number of new seeds for a verification.
        resume: Whether the search must exist.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = ""
    recipe: str = ""
    parameters: tuple[Parameter, ...] = ()
    overrides: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    trials: int | None = None
    sampler: str = "tpe"
    pruner: str = "auto"
    seeds: tuple[int, ...] = ()
    steps: int | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    # Settings of one command, which the study does not keep.
    timeout: float | None = Field(None, exclude=True)
    request: RunRequest = Field(RunRequest(), exclude=True)
    save_best: Path | None = Field(None, exclude=True)
    verify_seeds: int | None = Field(None, exclude=True)
    resume: bool = Field(False, exclude=True)

    @property
    def trial_overrides(self) -> list[str]:
        """`--set` strings of every trial, with `steps`."""
        return [*self.overrides, *([] if self.steps is None else [f"train.steps={self.steps}"])]

    @property
    def scored_by(self) -> str:
        """Seeds of the score of a trial: "seed 3", or "mean of seeds 0–2"."""
        return seed_list(self.seeds) if len(self.seeds) == 1 else f"mean of {seed_list(self.seeds)}"

    def load_base(self) -> LoadedRecipe:
        """Return the recipe with the settings that all trials share."""
        for file in self.plugins:
            plugins.add(file)
        loaded = load(self.recipe, self.trial_overrides, self.unset)
        dev_metric(loaded.recipe)
        return loaded

    def seeds_of(self, recipe: Recipe) -> tuple[int, ...]:
        """Return the seeds of every trial."""
        return self.seeds or (recipe.train.seed,)


def dev_metric(recipe: Recipe) -> str:
    """Return the "evaluator.metric" that a search maximizes: the metric that selects the best model."""
    dev = []
    for name, part in recipe.evaluators.items():
        if not is_test_split(part.params):
            dev.append(f"{name}.{EVALUATORS[part.name].cls.metric}")
    action = f"use --metric {dev[0]}" if dev else "add an evaluator with a dev split to the recipe"
    metric = recipe.evaluate.metric_for_best_model
    if metric is None:
        raise CseError("evaluate.metric_for_best_model is not set", action, code="tune.no_metric")
    params = recipe.evaluators[metric.rpartition(".")[0]].params
    if is_test_split(params):
        message = f"metric '{metric}' uses split '{params.get('split', 'test')}', but a search needs a dev split"
        raise CseError(message, action, code="tune.test_metric")
    return metric

"""The resolved settings of a search, as the study keeps them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from cse_cli.jobs.executor import PATIENCE_SECONDS
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.recipe.schema import Recipe
from cse_cli.recipe.validate import is_test_split
from cse_cli.tuning.parameter import Parameter
from registry import EVALUATORS
from registry.errors import CseError

TRIALS = 20
"""Trials of a new study by default."""
ELSEWHERE = {"storage", "device", "workers", "on", "patience", "timeout", "join", "accept_changed"}
"""Settings of a command, which the study does not keep."""


class SearchConfig(BaseModel):
    """A search for better values of a recipe's parameters.

    Args:
        name: Of the study.
        recipe: File or name, as `cse run` takes it.
        parameters: What is varied.
        overrides: `--set` texts of every trial.
        unset: `--unset` keys of every trial.
        trials: Of the study in all; None keeps the study's budget, or takes `TRIALS` for a new one.
        timeout: Seconds after which this command begins no trial.
        sampler: tpe, gp, random, grid or qmc.
        pruner: auto, median, percentile, halving, hyperband, wilcoxon or none.
        seeds: A trial's score is the mean over them; empty is the recipe's own.
        steps: Of training, instead of the recipe's.
        storage: Address of a database; None is a file in the state directory.
        device: As `cse_cli.core.devices.choose` takes it.
        workers: Trials at once; None is one a CUDA device.
        on: A Ray cluster, as `cse run` takes it.
        patience: Seconds without a word after which a run's process is killed.
        join: The study must exist.
        accept_changed: Whether trials that other code made are kept.
        tags: Of the search's run and of its trials'.
        experiment: Group in which they are recorded, the experiment in MLflow; None is the search's own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    recipe: str
    parameters: tuple[Parameter, ...]
    overrides: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    trials: int | None = None
    timeout: float | None = None
    sampler: str = "tpe"
    pruner: str = "auto"
    seeds: tuple[int, ...] = ()
    steps: int | None = None
    storage: str | None = None
    device: str = "auto"
    workers: int | None = None
    on: str | None = None
    patience: float = PATIENCE_SECONDS
    join: bool = False
    accept_changed: bool = False
    tags: dict[str, str] = Field(default_factory=dict)
    experiment: str | None = None

    @property
    def trial_overrides(self) -> list[str]:
        """The `--set` texts of every trial, `steps` included."""
        return [*self.overrides, *([] if self.steps is None else [f"train.steps={self.steps}"])]

    def load_base(self) -> LoadedRecipe:
        """Return the recipe with what all trials have in common.

        Raises:
            CseError: It is not valid, or has no dev metric to tune by.
        """
        loaded = load(self.recipe, self.trial_overrides, self.unset)
        dev_metric(loaded.recipe)
        return loaded

    def seeds_of(self, recipe: Recipe) -> tuple[int, ...]:
        """Return the seeds that a trial's score is the mean of."""
        return self.seeds or (recipe.train.seed,)


def dev_metric(recipe: Recipe) -> str:
    """Return the "evaluator.metric" that tuning maximises: the one that selects a state, on dev data.

    Raises:
        CseError: The recipe names none, or one of test data.
    """
    dev = [
        f"{name}.{EVALUATORS[part.name].cls.metric}"
        for name, part in recipe.evaluators.items()
        if not is_test_split(part.params)
    ]
    action = f"--metric {dev[0]}" if dev else "add an evaluator with a dev split to the recipe"
    select = recipe.evaluate.select
    if select is None:
        raise CseError("the recipe names no dev metric to maximise: evaluate.select is not set", action)
    params = recipe.evaluators[select.rpartition(".")[0]].params
    if is_test_split(params):
        raise CseError(
            f"'{select}' scores split '{params.get('split', 'test')}': tuning takes dev metrics only, as the best of "
            "many trials on test data says nothing of other data",
            action,
        )
    return select

"""How much each parameter of a search matters."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from cse_cli.tuning import trials as words

FEWEST = 4
"""Complete trials before an importance says anything."""


def importances(study: optuna.Study) -> dict[str, float]:
    """Return parameter → share of what makes good trials good; nothing where there are too few, or one parameter."""
    shown = _comparable(study)
    values = {trial.value for trial in shown.trials if trial.state == TrialState.COMPLETE}
    names = shown.trials[0].params if shown.trials else {}
    if len(values) < FEWEST or len(names) < 2:
        return {}
    return {name: float(share) for name, share in optuna.importance.get_param_importances(shown).items()}


def _comparable(study: optuna.Study) -> optuna.Study:
    """Return a copy without the trials that nothing can be said of: lost, copied, or beside the space."""
    whole = max((len(trial.params) for trial in study.get_trials(deepcopy=False)), default=0)
    copy = optuna.create_study(direction=study.direction)
    copy.add_trials([trial for trial in study.get_trials() if _says_something(trial, whole)])
    return copy


def _says_something(trial: FrozenTrial, parameters: int) -> bool:
    counts = words.state(trial) in ("complete", "pruned") and len(trial.params) == parameters
    return counts and all(_holds(trial.distributions[name], value) for name, value in trial.params.items())


def _holds(distribution: BaseDistribution, value: Any) -> bool:
    """Tell whether a value is a point of the space; the recipe's own may lie beside it."""
    return bool(distribution._contains(distribution.to_internal_repr(value)))

"""What has become of a study's trials, told from the storage alone: every worker on every machine counts alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import optuna
from optuna.trial import FrozenTrial, TrialState

from cse_cli.tuning.plan import Ended, State

OWN: Final = "own"
"""User attribute of the trial that has the recipe's own values."""
REASON: Final = "reason"
"""Why it failed, by itself: it counts, and is not repeated."""
RETRY_OF: Final = "retry_of"
"""Number of the lost trial that this one repeats."""
LOSSES: Final = "losses"
"""How often its process was gone before."""
INTERRUPTED: Final = "interrupted"
"""It was stopped on purpose, which is no loss."""
SAME_AS: Final = "same_as"
"""Number of the trial that had the same values already: it was not run."""
RUNS: Final = "runs"
"""Seed → run in the tracking store."""
SCORES: Final = "scores"
"""Seed → score."""
RUN: Final = "run"
"""The trial's own run in the tracking store."""

MOST_LOSSES = 3
GONE = f"its process was ended {MOST_LOSSES} times"
_STATES: Mapping[TrialState, State] = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned"}


def state(trial: FrozenTrial) -> State | None:
    """Return what came of a trial, or None: waiting, running, lost, or not run because another had the same values."""
    if trial.state != TrialState.FAIL:
        return _STATES.get(trial.state)
    return "failed" if SAME_AS not in trial.user_attrs and reason(trial) is not None else None


def reason(trial: FrozenTrial) -> str | None:
    """Return why a trial failed; None where it did not, or is to be repeated."""
    if trial.state != TrialState.FAIL:
        return None
    told = trial.user_attrs.get(REASON)
    return str(told) if told is not None else (GONE if losses(trial) >= MOST_LOSSES else None)


def losses(trial: FrozenTrial) -> int:
    """Return how often the processes of a failed trial, and of those it repeats, were gone."""
    this = INTERRUPTED not in trial.user_attrs and REASON not in trial.user_attrs
    return int(trial.user_attrs.get(LOSSES, 0)) + (1 if this else 0)


def settled(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that count: complete, pruned, or failed by themselves."""
    return [trial for trial in trials if state(trial) is not None]


def taken(trials: Sequence[FrozenTrial], number: int) -> list[FrozenTrial]:
    """Return the trials, other than `number`, whose values need no second one: those that count, and those at work."""
    at_work = [trial for trial in trials if trial.state == TrialState.RUNNING and trial.number != number]
    return [*settled(trials), *at_work]


def lost(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the failed trials that are to be repeated and are not repeated yet."""
    repeated = {trial.user_attrs.get(RETRY_OF) for trial in trials}
    return [
        trial
        for trial in trials
        if trial.state == TrialState.FAIL
        and SAME_AS not in trial.user_attrs
        and reason(trial) is None
        and trial.number not in repeated
    ]


def outcomes(study: optuna.Study) -> list[Ended]:
    """Return every trial that counts, in order."""
    trials = study.get_trials(deepcopy=False)
    return [ended(trial, trials) for trial in settled(trials)]


def ended(trial: FrozenTrial, trials: Sequence[FrozenTrial]) -> Ended:
    """Return what came of one trial that counts.

    Args:
        trial: The trial.
        trials: All of its study.
    """
    became = state(trial)
    if became is None:
        raise ValueError(f"trial {trial.number} has no outcome")
    score = reached(trial)
    earlier = [t.value for t in trials if t.state == TrialState.COMPLETE and _before(t, trial) and t.value is not None]
    return Ended(
        number=trial.number,
        values=dict(trial.params),
        state=became,
        score=score,
        reason=reason(trial),
        best=became == "complete" and score is not None and all(score > value for value in earlier),
        seconds=trial.duration.total_seconds() if trial.duration is not None else 0.0,
        own=bool(trial.user_attrs.get(OWN)),
        run_id=trial.user_attrs.get(RUN),
    )


def reached(trial: FrozenTrial) -> float | None:
    """Return a complete trial's score, or the last that another one reported."""
    value: float | None = trial.value if trial.state == TrialState.COMPLETE else None
    if value is None and trial.last_step is not None:
        value = trial.intermediate_values[trial.last_step]
    return value


def counts(trials: Sequence[FrozenTrial]) -> dict[State, int]:
    """Return how many trials came to which end."""
    found: dict[State, int] = {"complete": 0, "pruned": 0, "failed": 0}
    for trial in trials:
        if (became := state(trial)) is not None:
            found[became] += 1
    return found


def fixed(trial: FrozenTrial) -> dict[str, Any]:
    """Return the values a trial has, or is to have where it was lost before it took them."""
    return {**trial.system_attrs.get("fixed_params", {}), **trial.params}


def _before(one: FrozenTrial, other: FrozenTrial) -> bool:
    if one.datetime_complete is None or other.datetime_complete is None:
        return False
    return (one.datetime_complete, one.number) < (other.datetime_complete, other.number)

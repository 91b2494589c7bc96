"""An Optuna study → what it found, as plain data."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

import optuna
from optuna.trial import FrozenTrial, TrialState

from cse_cli.tuning import storage as storages
from cse_cli.tuning.found import Confirmation, Parameter, Search, Trial
from cse_cli.tuning.importance import importances
from cse_cli.tuning.plan import Ended
from cse_cli.tuning.study import budget, load_study, metric, recipe_hash, run_of, stored_plan
from cse_cli.tuning.trials import outcomes
from registry.errors import CseError, UnknownNameError, suggestion

_CONFIRMATION: Final = "cse:confirmation"


def summary(study: optuna.Study, storage: str | None = None) -> Search:
    """Return what a study has found so far.

    Args:
        study: As `cse_cli.tuning.study` opens it.
        storage: Its address as given; the password is left out of what is returned.
    """
    plan = stored_plan(study)
    trials = study.get_trials(deepcopy=False)
    kept = study.user_attrs.get(_CONFIRMATION)
    ended = [trial.datetime_complete for trial in trials if trial.datetime_complete is not None]
    return Search(
        study=study.study_name,
        recipe=plan.recipe,
        recipe_hash=recipe_hash(study),
        metric=metric(study),
        storage=storages.address(storage, study.study_name).shown,
        budget=budget(study),
        seeds=plan.seeds,
        steps=plan.steps,
        overrides=plan.overrides,
        unset=plan.unset,
        parameters=tuple(Parameter(**asdict(knob)) for knob in plan.knobs),
        trials=tuple(sorted([*map(_done, outcomes(study)), *_running(trials)], key=lambda trial: trial.number)),
        importance=importances(study),
        run_id=run_of(study),
        updated=max(ended).astimezone().isoformat(timespec="seconds") if ended else None,
        confirmation=None if kept is None else Confirmation.model_validate_json(kept),
    )


def _done(ended: Ended) -> Trial:
    return Trial(
        number=ended.number,
        state=ended.state,
        score=ended.score,
        values=dict(ended.values),
        own=ended.own,
        seconds=ended.seconds,
        reason=ended.reason,
        run_id=ended.run_id,
    )


def _running(trials: Sequence[FrozenTrial]) -> list[Trial]:
    running = (trial for trial in trials if trial.state == TrialState.RUNNING)
    return [Trial(number=trial.number, state="running", values=dict(trial.params)) for trial in running]


def keep(study: optuna.Study, confirmation: Confirmation) -> None:
    """Remember a confirmation with its study."""
    study.set_user_attr(_CONFIRMATION, confirmation.model_dump_json())


def find(name: str, storage: str | None) -> optuna.Study:
    """Return the study of a name or of its unique beginning.

    Raises:
        UnknownNameError: None or several begin so.
    """
    known = storages.names(storage)
    matching = [name] if name in known else [one for one in known if one.startswith(name)]
    if len(matching) == 1:
        return load_study(storage, matching[0])
    if matching:
        raise UnknownNameError(
            f"'{name}' may be {len(matching)} studies: {', '.join(matching[:6])}", "write more of it"
        )
    near = suggestion(name, known) or (f" Known: {', '.join(known[:6])}." if known else "")
    raise UnknownNameError(f"no study '{name}' in {_place(storage)}.{near}", "`cse tune ls` lists studies")


def every(storage: str | None) -> list[Search]:
    """Return all studies of a storage, the one that worked last first; says on stderr which cannot be read."""
    found: list[Search] = []
    for name in storages.names(storage):
        try:
            found.append(summary(load_study(storage, name), storage))
        except (CseError, ValueError, KeyError) as error:
            sys.stderr.write(f"warning: study '{name}' is left out: {str(error).partition(chr(10))[0]}\n")
    return sorted(found, key=lambda search: search.updated or "", reverse=True)


def _place(storage: str | None) -> str:
    return str(storages.folder()) if storage is None else storages.address(storage, "").shown

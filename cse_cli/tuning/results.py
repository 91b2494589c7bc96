"""What a search found, as plain data: for tables, figures, files and JSON.

An Optuna study → what it found, as plain data.

What may be said of a gain that a search found.

How much each parameter of a search matters.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, Literal

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState
from pydantic import BaseModel, ConfigDict, Field

from cse_cli.analysis.evidence import p_text, seeds_text
from cse_cli.core.stats import LEVEL, Paired
from cse_cli.tuning import storage as storages
from cse_cli.tuning import study as words
from cse_cli.tuning.config import Ended
from cse_cli.tuning.study import budget, load_study, metric, outcomes, recipe_hash, run_of, stored_plan
from registry.errors import CseError, UnknownNameError, suggestion

Value = str | int | float | bool
State = Literal["complete", "pruned", "failed", "running"]


class Plain(BaseModel):
    """Data that does not change."""

    model_config = ConfigDict(frozen=True)


class Trial(Plain):
    """One point that was tried.

    Args:
        number: In the study, from 0.
        score: Of a complete trial; of a pruned one, what it had reached.
        values: Parameter → value, None for one left unset; nothing where the recipe's own is no point of the space.
        own: Whether it has the recipe's own values.
        reason: Why it failed.
        run_id: In the tracking store.
    """

    number: int
    state: State
    score: float | None = None
    values: dict[str, Value | None] = Field(default_factory=dict)
    own: bool = False
    seconds: float | None = None
    reason: str | None = None
    run_id: str | None = None


class Parameter(Plain):
    """One parameter that was searched; the fields are those of `cse_cli.tuning.space.Knob`."""

    name: str
    paths: tuple[str, ...]
    low: float | None = None
    high: float | None = None
    log: bool = False
    step: float | None = None
    whole: bool = False
    choices: tuple[Value, ...] | None = None
    default: Value | None = None
    source: str = ""


class Confirmation(Plain):
    """The values found against the recipe's own, with seeds that the search has not seen.

    Args:
        trial: Whose values.
        values: Parameter → value.
        main: Metric the search maximised; of the others in `paired`, nothing was maximised.
        paired: "evaluator.metric" → the recipe's own (first) and the found values (second), seed by seed.
    """

    trial: int
    values: dict[str, Value | None]
    main: str
    paired: dict[str, Paired]

    @property
    def confirmed(self) -> bool:
        """Whether the gain is larger than the seeds' spread explains."""
        over = self.paired[self.main]
        return over.difference > 0 and ((over.p is not None and over.p < LEVEL) or over.constant)


class Search(Plain):
    """A study: what was asked, what was tried, what came of it.

    Args:
        study: Its name.
        recipe: File or name of the recipe.
        recipe_hash: Of the recipe as it was, with what all trials have in common.
        metric: "evaluator.metric" that was maximised, the mean over `seeds`.
        storage: Its address, without a password.
        budget: Trials it may have.
        seeds: Of every trial.
        steps: Of training, where not the recipe's.
        overrides: `--set` texts of every trial.
        unset: `--unset` keys of every trial.
        importance: Parameter → its share in what sets good trials apart; nothing where that cannot be said.
        run_id: Of the study in the tracking store.
        updated: When its last trial ended, in ISO form.
    """

    schema_version: Literal[1] = 1
    study: str
    recipe: str
    recipe_hash: str
    metric: str
    storage: str
    budget: int
    seeds: tuple[int, ...] = ()
    steps: int | None = None
    overrides: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...]
    trials: tuple[Trial, ...]
    importance: dict[str, float] = Field(default_factory=dict)
    run_id: str | None = None
    updated: str | None = None
    confirmation: Confirmation | None = None

    @property
    def complete(self) -> list[Trial]:
        """Trials that ran to their end, best first; of equal ones the earlier."""
        done = [trial for trial in self.trials if trial.state == "complete" and trial.score is not None]
        return sorted(done, key=lambda trial: (-(trial.score or 0.0), trial.number))

    @property
    def best(self) -> Trial | None:
        """The best of them; None where none ran to its end."""
        return next(iter(self.complete), None)

    @property
    def own(self) -> Trial | None:
        """The first complete trial of the recipe's own values."""
        return next((trial for trial in self.trials if trial.own and trial.state == "complete"), None)

    def count(self, state: State) -> int:
        """Return how many trials are in a state."""
        return sum(trial.state == state for trial in self.trials)


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


def verdict(search: Search) -> str:
    """Return what is known of the best trial's gain beyond the search itself."""
    best, known = search.best, search.confirmation
    if best is None:
        return "no trial ran to its end"
    if best.own:
        return "nothing that was tried is better than the recipe's own values"
    if known is not None and known.values == best.values:
        return told(known)
    return (
        f"not confirmed yet: the best of {len(search.complete)} trials is optimistic, with the seeds it was chosen by"
    )


def told(confirmation: Confirmation) -> str:
    """Return in one sentence whether the gain is more than the seeds explain."""
    over = confirmation.paired[confirmation.main]
    seeds = f"{len(over.seeds)} fresh seed{'' if len(over.seeds) == 1 else 's'}"
    gain = f"{over.difference:+.2f} {confirmation.main} with {seeds}".replace("-", "−", 1 if over.difference < 0 else 0)
    if confirmation.confirmed:
        return f"confirmed: {gain} ({'the same with each' if over.p is None else p_text(over.p)})"
    if over.difference <= 0:
        return f"not confirmed: {gain}, so no gain at all"
    if over.p is None:
        return f"not confirmed: {gain}, which has no spread to test with"
    more = (
        ""
        if over.seeds_needed is None
        else f"; to tell a gain of this size takes {seeds_text(over.seeds_needed)} seeds"
    )
    return f"not confirmed: {gain} may be chance ({p_text(over.p)}){more}"


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

"""What a search found, as plain data for tables, figures, files and JSON; and what may be said of its gain."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, Literal

import optuna
from optuna.trial import FrozenTrial, TrialState
from pydantic import BaseModel, ConfigDict, Field

from cse_cli.analysis.evidence import p_text, seeds_text
from cse_cli.core.identity import Mode
from cse_cli.core.multiple import Corrected, correct_named, judge_together
from cse_cli.core.stats import LEVEL, Paired
from cse_cli.tuning.owner import owned
from cse_cli.tuning.parameter import Parameter
from cse_cli.tuning.ranges import Value
from cse_cli.tuning.storage import address, study_names
from cse_cli.tuning.study import (
    BEGUN,
    OWN,
    RUN,
    State,
    Study,
    accepted,
    budget,
    load_study,
    metric,
    reason,
    recipe_hash,
    run_of,
    state,
    stored_config,
)
from registry.errors import CseError, RunFailedError

_CONFIRMATION: Final = "cse:confirmation"
"""User attribute of a study."""
FEWEST = 4
"""Complete trials before an importance says anything."""


class Trial(BaseModel):
    """One point that was tried.

    Args:
        number: In the study, from 0.
        score: Of a complete trial; of a pruned one, what it had reached.
        values: Parameter → value, None for one left unset; nothing where no trial can have the recipe's own, or where
            the trial's parts have no such parameter.
        own: Whether it has the recipe's own values.
        reason: Why it failed, or why its parts do not fit together.
        run_id: ID of its run, or with several seeds of the record that summarizes them.
    """

    model_config = ConfigDict(frozen=True)

    number: int
    state: State
    score: float | None = None
    values: dict[str, Value | None] = Field(default_factory=dict)
    own: bool = False
    seconds: float | None = None
    reason: str | None = None
    run_id: str | None = None


class Confirmation(BaseModel):
    """The values found against the recipe's own, with seeds that the search has not used.

    Args:
        trial: Whose values.
        values: Parameter → value.
        main: Metric the search maximised; of the others in `paired`, nothing was maximised.
        paired: "evaluator.metric" → the recipe's own (first) and the found values (second), seed by seed.
        looks: Numbers of seeds at which these values have been compared, this one included.
        mode: "planned" if the seeds of both sides are exactly those of a plan that was recorded before the first of
            them started; otherwise the test holds however often seeds were added.
    """

    model_config = ConfigDict(frozen=True)

    trial: int
    values: dict[str, Value | None]
    main: str
    paired: dict[str, Paired]
    looks: tuple[int, ...] = ()
    mode: Mode = "anytime"

    @property
    def p_values(self) -> dict[str, float | None]:
        """Metric → p of the mode. The other metrics are tested if the main one differs."""
        return correct_named({name: over.p_in(self.mode) for name, over in self.paired.items()}, self.main)

    @property
    def confirmed(self) -> bool:
        """Whether the gain is larger than the seeds' spread explains."""
        over, p = self.paired[self.main], self.p_values[self.main]
        return over.difference > 0 and ((p is not None and p < LEVEL) or over.constant)

    def after(self, earlier: Confirmation | None) -> Confirmation:
        """Return it with the looks of an earlier confirmation of the same values, and its own."""
        known = set() if earlier is None else {*earlier.looks, len(earlier.paired[earlier.main].seeds)}
        looks = sorted(known | {len(self.paired[self.main].seeds)})
        names = sorted(self.paired, key=lambda name: name != self.main)
        (corrected,) = judge_together([[self.paired[name].p_in(self.mode) for name in names]])
        tests = dict(zip(names, corrected, strict=True))
        paired = {name: _judged(over, tests[name], self.mode) for name, over in self.paired.items()}
        return self.model_copy(update={"looks": tuple(looks), "paired": paired})


def _judged(over: Paired, test: Corrected | None, mode: Mode) -> Paired:
    """Return a metric's comparison with its corrected p-value, and with the interval that belongs to it."""
    if test is None:
        return over
    return over.judged(mode, test.p, test.level if test.tested else 0.0, test.level)


class Search(BaseModel):
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
        importance: Parameter that all trials have → its share in what sets good trials apart; nothing where that
            cannot be said.
        run_id: ID of the record of the search.
        accepted: Code that changed during the search, such as "code of losses.info_nce", with `--accept-changed`.
        updated: When its last trial ended, in ISO form.
    """

    model_config = ConfigDict(frozen=True)

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
    accepted: tuple[str, ...] = ()
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

    @property
    def gain(self) -> float | None:
        """Score of the best trial less that of the recipe's own values."""
        return None if self.best is None or self.own is None else (self.best.score or 0.0) - (self.own.score or 0.0)

    @property
    def best_confirmation(self) -> Confirmation | None:
        """The confirmation, where it is of the best trial's values."""
        known, best = self.confirmation, self.best
        return known if known is not None and best is not None and known.values == best.values else None

    def demand_best(self) -> Trial:
        """Return the best trial.

        Raises:
            RunFailedError: None ran to its end.
        """
        if self.best is not None:
            return self.best
        reasons = [trial.reason for trial in self.trials if trial.reason]
        last = f"; the last one that failed: {reasons[-1]}" if reasons else ""
        raise RunFailedError(f"no trial of study '{self.study}' ran to its end{last}", "`cse tune --best` shows it")

    def count(self, state: State) -> int:
        """Return how many trials are in a state."""
        return sum(trial.state == state for trial in self.trials)


def read_search(study: Study, storage: str | None = None) -> Search:
    """Return what a study has found so far.

    Args:
        study: As `cse_cli.tuning.study` opens it.
        storage: Its address as given; the password is left out of what is returned.
    """
    config, place = stored_config(study), address(storage, study.study_name)
    kept = study.user_attrs.get(_CONFIRMATION)
    ended = [trial.datetime_complete for trial in study.get_trials(deepcopy=False) if trial.datetime_complete]
    return Search(
        study=study.study_name,
        recipe=config.recipe,
        recipe_hash=recipe_hash(study),
        metric=metric(study),
        storage=place.shown,
        budget=budget(study),
        seeds=config.seeds,
        steps=config.steps,
        overrides=config.overrides,
        unset=config.unset,
        parameters=config.parameters,
        trials=tuple(read_trials(study, storage)),
        importance=importances(study),
        run_id=run_of(study),
        accepted=tuple(accepted(study)),
        updated=max(ended).astimezone().isoformat(timespec="seconds") if ended else None,
        confirmation=None if kept is None else Confirmation.model_validate_json(kept),
    )


def list_searches(storage: str | None) -> list[Search]:
    """Return all studies of a storage, the one that worked last first; on stderr, which cannot be read."""
    found: list[Search] = []
    for name in study_names(storage):
        try:
            found.append(read_search(load_study(storage, name), storage))
        except (CseError, ValueError, KeyError) as error:
            sys.stderr.write(f"warning: study '{name}' is left out: {str(error).partition(chr(10))[0]}\n")
    return sorted(found, key=lambda search: search.updated or "", reverse=True)


def read_trials(study: Study, storage: str | None = None) -> list[Trial]:
    """Return every trial that counts, runs, or was interrupted, in order.

    Args:
        study: The study.
        storage: Its address as given.
    """
    place = address(storage, study.study_name)
    return [
        read_trial(trial, "interrupted" if owned(trial, place, study.study_name) == "left" else "running")
        for trial in study.get_trials(deepcopy=False)
        if trial.state == TrialState.RUNNING or state(trial) is not None
    ]


def read_trial(trial: FrozenTrial, unsettled: State = "running") -> Trial:
    """Return a trial as plain data; `unsettled` is what one is that has begun and not ended."""
    if (became := state(trial)) is None:
        return Trial(number=trial.number, state=unsettled, values=dict(trial.params))
    score = trial.value if trial.state == TrialState.COMPLETE else None
    if score is None and trial.last_step is not None:
        score = trial.intermediate_values[trial.last_step]
    return Trial(
        number=trial.number,
        values=dict(trial.params),
        state=became,
        score=score,
        reason=reason(trial),
        seconds=_seconds(trial),
        own=bool(trial.user_attrs.get(OWN)),
        run_id=trial.user_attrs.get(RUN),
    )


def _seconds(trial: FrozenTrial) -> float:
    """Return how long a trial took since it was last resumed."""
    if trial.datetime_complete is None or trial.datetime_start is None:
        return 0.0
    begun: float = trial.user_attrs.get(BEGUN, trial.datetime_start.timestamp())
    return float(trial.datetime_complete.timestamp()) - begun


def is_best_so_far(trial: FrozenTrial, trials: Sequence[FrozenTrial]) -> bool:
    """Return whether a trial is complete, and none that was complete before it was as good."""
    if trial.value is None or trial.state != TrialState.COMPLETE:
        return False
    others = (one for one in trials if one.state == TrialState.COMPLETE and one.number != trial.number)
    earlier = (one.value for one in others if _end(one) < _end(trial))
    return all(value is None or trial.value > value for value in earlier)


def _end(trial: FrozenTrial) -> tuple[float, int]:
    return (trial.datetime_complete.timestamp() if trial.datetime_complete else float("inf")), trial.number


def keep_confirmation(study: Study, confirmation: Confirmation) -> None:
    """Remember a confirmation with its study."""
    study.set_user_attr(_CONFIRMATION, confirmation.model_dump_json())


def importances(study: Study) -> dict[str, float]:
    """Return parameter → share of what makes good trials good; nothing where there are too few, or one parameter."""
    shown = comparable_trials(study)
    complete = [trial for trial in shown.get_trials(deepcopy=False) if trial.state == TrialState.COMPLETE]
    if len({trial.value for trial in complete}) < FEWEST or len(complete[0].params) < 2:
        return {}
    return {name: float(share) for name, share in optuna.importance.get_param_importances(shown).items()}


def comparable_trials(study: Study) -> Study:
    """Return a copy in memory of the complete and pruned trials with a value of the space for every parameter.

    Parameters that only some trials have, those of chosen parts, are left out.
    """
    always = {parameter.name for parameter in stored_config(study).parameters if parameter.when is None}
    copy = optuna.create_study(direction=study.direction)
    for trial in study.get_trials():
        if state(trial) in ("complete", "pruned") and always <= trial.params.keys():
            trial.params = {name: value for name, value in trial.params.items() if name in always}
            trial.distributions = {name: one for name, one in trial.distributions.items() if name in always}
            try:
                copy.add_trial(trial)
            except ValueError:  # the recipe's own values lie outside the range
                continue
    return copy


def verdict(search: Search) -> str:
    """Return what is known of the best trial's gain beyond the search itself."""
    best = search.best
    if best is None:
        return "no trial ran to its end"
    if best.own:
        return "nothing that was tried is better than the recipe's own values"
    if search.best_confirmation is not None:
        return confirmation_sentence(search.best_confirmation)
    return (
        f"not confirmed yet: the best of {len(search.complete)} trials is optimistic, with the seeds it was chosen by"
    )


def confirmation_sentence(confirmation: Confirmation) -> str:
    """Return in one sentence whether the gain is more than the seeds explain."""
    over = confirmation.paired[confirmation.main]
    seeds = f"{len(over.seeds)} fresh seed{'' if len(over.seeds) == 1 else 's'}"
    gain = f"{over.difference:+.2f} {confirmation.main} with {seeds}".replace("-", "−", 1 if over.difference < 0 else 0)
    p = confirmation.p_values[confirmation.main]
    looked = f"{', planned' if confirmation.mode == 'planned' else ''}{_looked(confirmation.looks)}"
    if confirmation.confirmed:
        return f"confirmed: {gain} ({'the same with each' if p is None else p_text(p)}{looked})"
    if over.difference <= 0:
        return f"not confirmed: {gain}, so no gain at all"
    if p is None:
        return f"not confirmed: {gain}, which has no spread to test with"
    needed = over.seeds_needed
    more = "" if needed is None else f"; a gain of this size takes {seeds_text(needed)} seeds"
    return f"not confirmed: {gain} may be chance ({p_text(p)}{looked}){more}"


def _looked(looks: Sequence[int]) -> str:
    """Return with how many seeds was looked; nothing where that was not recorded."""
    if not looks:
        return ""
    times = "one look" if len(looks) == 1 else f"{len(looks)} looks, with {', '.join(map(str, looks))} seeds"
    return f", {times}"

"""Results of a search as plain data, and the verdict on its gain."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Final, Literal

import optuna
from optuna.trial import FrozenTrial, TrialState
from pydantic import BaseModel, ConfigDict, Field

from cse_cli.core.formatting import signed
from cse_cli.core.identity import Mode
from cse_cli.core.stats import LEVEL, Paired, judge_together, p_text, seeds_text
from cse_cli.tuning.parameters import Value
from cse_cli.tuning.study import (
    IDENTITY,
    OWN,
    REASON,
    RECORD,
    RUN,
    SearchConfig,
    State,
    Study,
    is_driven,
    journal,
    load_study,
    search_names,
    state,
    stored_config,
)
from registry.errors import CseError, RunFailedError

VERIFICATION: Final = "cse:verification"
"""User attribute of a study."""
FEWEST = 4
"""Complete trials that an importance needs."""


class Trial(BaseModel):
    """One point of the space. `own`: it has the recipe's values.

    `score` is the dev score, or the last one of a pruned trial. `values` lack the parameters that the trial does not
    have. `seconds` count from when it was last resumed. `run_id` is that of its run, or with several seeds of their
    summary.
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


class Verification(BaseModel):
    """Comparison of the best values with the recipe's values on seeds that the search has not used.

    `paired` has the scores of the recipe's values (first) and of the best values (second) by seed for each metric,
    `main` is the metric that the search maximized. `looks` are the numbers of seeds at which these values have been
    compared. `mode` is "planned" if the seeds of both sides are exactly those of a plan that was recorded before the
    first of them started. Otherwise the test holds however often seeds are added.
    """

    model_config = ConfigDict(frozen=True)

    trial: int
    values: dict[str, Value | None]
    main: str
    paired: dict[str, Paired]
    looks: tuple[int, ...] = ()
    mode: Mode = "anytime"

    @property
    def confirmed(self) -> bool:
        """Whether the gain is statistically significant, or the same with every seed."""
        over = self.paired[self.main]
        return over.difference > 0 and (over.constant or (over.p_adjusted is not None and over.p_adjusted < LEVEL))

    @property
    def sentence(self) -> str:
        """Whether the gain is statistically significant, in one sentence."""
        over = self.paired[self.main]
        p = over.p_adjusted
        gain = f"{signed(over.difference)} {self.main} with {len(over.seeds)} new seeds"
        if over.difference <= 0:
            return f"not confirmed: {gain}, which is not a gain"
        if p is None and not self.confirmed:
            return f"not confirmed: {gain}, too few seeds for a test"
        test = ["equal with each seed" if p is None else p_text(p)]
        test += ["planned"] if self.mode == "planned" else []
        if len(self.looks) == 1:
            test.append("one look")
        elif self.looks:
            test.append(f"{len(self.looks)} looks, with {', '.join(map(str, self.looks))} seeds")
        if self.confirmed:
            return f"confirmed: {gain} ({', '.join(test)})"
        needed = over.seeds_needed
        more = "" if needed is None else f"; a gain of this size needs {seeds_text(needed)} seeds"
        return f"not confirmed: {gain} may be chance ({', '.join(test)}){more}"

    def after(self, earlier: Verification | None) -> Verification:
        """Return a copy with corrected tests, its own look, and those of an earlier one with the same values.

        The other metrics are tested only if the main one differs.
        """
        known = set() if earlier is None else {*earlier.looks, len(earlier.paired[earlier.main].seeds)}
        names = sorted(self.paired, key=lambda name: name != self.main)
        (tests,) = judge_together([[self.paired[name].p_in(self.mode) for name in names]])
        paired = dict(self.paired)
        for name, test in zip(names, tests, strict=True):
            if test is not None:
                level = test.level if test.tested else 0.0
                paired[name] = paired[name].judged(self.mode, test.p, level, test.level)
        looks = sorted(known | {len(self.paired[self.main].seeds)})
        return self.model_copy(update={"looks": tuple(looks), "paired": paired})


class Search(BaseModel):
    """A search: settings, trials and findings. `recipe_hash` includes the settings that all trials share.

    `importance` is each parameter's share of the score's variance, empty with too few trials.
    """

    model_config = ConfigDict(frozen=True)

    schema_version: Literal[1] = 1
    name: str
    config: SearchConfig
    recipe_hash: str
    metric: str
    storage: str
    trials: tuple[Trial, ...]
    importance: dict[str, float] = Field(default_factory=dict)
    run_id: str | None = None
    updated: str | None = None
    verification: Verification | None = None

    @property
    def complete(self) -> list[Trial]:
        """Complete trials, best first. Equal ones are in order of their numbers."""
        done = [trial for trial in self.trials if trial.state == "complete" and trial.score is not None]
        return sorted(done, key=lambda trial: (-(trial.score or 0.0), trial.number))

    @property
    def best(self) -> Trial | None:
        """Best complete trial."""
        return next(iter(self.complete), None)

    @property
    def own(self) -> Trial | None:
        """First complete trial with the recipe's values."""
        return next((trial for trial in self.trials if trial.own and trial.state == "complete"), None)

    @property
    def gain(self) -> float | None:
        """Score of the best trial minus that of the recipe's values."""
        return None if self.best is None or self.own is None else (self.best.score or 0.0) - (self.own.score or 0.0)

    @property
    def best_verification(self) -> Verification | None:
        """Verification of the best trial's values."""
        known, best = self.verification, self.best
        return known if known is not None and best is not None and known.values == best.values else None

    @property
    def verdict(self) -> str:
        """One sentence on the best trial's gain."""
        if self.best is None:
            return "no trial is complete"
        if self.best.own:
            return "no trial is better than the recipe's values"
        if self.best_verification is not None:
            return self.best_verification.sentence
        return f"not verified: the best of {len(self.complete)} trials is optimistic on the seeds that selected it"

    def require_best(self) -> Trial:
        """Return the best trial, or raise an error if none is complete."""
        if self.best is not None:
            return self.best
        reasons = [trial.reason for trial in self.trials if trial.reason]
        last = f": {reasons[-1]}" if reasons else ""
        message = f"search '{self.name}' has no complete trial{last}"
        raise RunFailedError(message, f"see cse tune --best {self.name}", code="tune.no_complete_trial")

    def count(self, state: State) -> int:
        """Return the number of trials in a state."""
        return sum(trial.state == state for trial in self.trials)


def read_search(study: Study) -> Search:
    """Return the results of a search so far."""
    attributes = study.user_attrs
    kept = attributes.get(VERIFICATION)
    ended = [trial.datetime_complete for trial in study.get_trials(deepcopy=False) if trial.datetime_complete]
    return Search(
        name=study.study_name,
        config=stored_config(study),
        recipe_hash=attributes[IDENTITY]["experiment"]["settings"],
        metric=attributes[IDENTITY]["metric"],
        storage=str(journal(study.study_name)),
        trials=tuple(read_trials(study)),
        importance=importances(study),
        run_id=attributes.get(RECORD),
        updated=max(ended).astimezone().isoformat(timespec="seconds") if ended else None,
        verification=None if kept is None else Verification.model_validate_json(kept),
    )


def read_searches() -> list[Search]:
    """Return all searches, the last updated first. Warn about those that cannot be read."""
    found: list[Search] = []
    for name in search_names():
        try:
            found.append(read_search(load_study(name)))
        except (CseError, ValueError, KeyError) as error:
            why = str(error).strip().partition("\n")[0]
            sys.stderr.write(f"warning: search '{name}' is omitted: {why}\n")
    return sorted(found, key=lambda search: search.updated or "", reverse=True)


def read_trials(study: Study) -> list[Trial]:
    """Return the trials in order of their numbers, without those that wait, were left or repeat another one."""
    unfinished: State = "running" if is_driven(study.study_name) else "interrupted"
    trials = study.get_trials(deepcopy=False)
    shown = [trial for trial in trials if trial.state == TrialState.RUNNING or state(trial) is not None]
    return [read_trial(trial, unfinished) for trial in shown]


def read_trial(trial: FrozenTrial, unfinished: State = "running") -> Trial:
    """Return a trial as plain data. `unfinished` is the state of one that has not ended."""
    became, values, known = state(trial), dict(trial.params), trial.user_attrs
    if became is None:
        return Trial(number=trial.number, state=unfinished, values=values)
    score = trial.value if became == "complete" else None
    if score is None and trial.last_step is not None:
        score = trial.intermediate_values[trial.last_step]
    seconds = 0.0 if trial.duration is None else trial.duration.total_seconds()
    about = {"reason": known.get(REASON), "own": bool(known.get(OWN)), "run_id": known.get(RUN)}
    return Trial(number=trial.number, values=values, state=became, score=score, seconds=seconds, **about)


def importances(study: Study) -> dict[str, float]:
    """Return parameter → share of the score's variance, for the parameters that every trial has.

    Empty with one such parameter, or with fewer than `FEWEST` different scores. Trials without a value of the space for
    a parameter do not count.
    """
    always = {parameter.name for parameter in stored_config(study).parameters if parameter.when is None}
    shown = optuna.create_study(direction=study.direction)
    for trial in study.get_trials():
        if state(trial) in ("complete", "pruned") and always <= trial.params.keys():
            trial.params = {name: value for name, value in trial.params.items() if name in always}
            trial.distributions = {name: one for name, one in trial.distributions.items() if name in always}
            with suppress(ValueError):  # the recipe's values are outside the range
                shown.add_trial(trial)
    scores = {trial.value for trial in shown.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))}
    if len(scores) < FEWEST or len(always) < 2:
        return {}
    return {name: float(share) for name, share in optuna.importance.get_param_importances(shown).items()}

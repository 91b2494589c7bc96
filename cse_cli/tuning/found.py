"""What a search found, as plain data: for tables, figures, files and JSON."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from cse_cli.compare.seeds import LEVEL, Paired

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

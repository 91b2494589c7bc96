"""The lines of `cse runs ls`: which recorded runs, in which order, and what is said of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from cse_cli.core.formatting import parse_duration
from cse_cli.core.results import Result
from cse_cli.tracking.reader import RecordedRun, list_runs
from cse_cli.tracking.tags import CONFIRMS, FOR_PEOPLE, PRUNED, RECIPE, SEED, SET, TRIAL, TUNE
from registry.errors import CseError, UnknownNameError, suggestion

Order = Literal["started", "avg", "gain", "dev", "seconds", "recipe", "name", "status"]
STATUSES = ("FINISHED", "RUNNING", "FAILED", "KILLED", "GONE", "SCHEDULED")
_HIGHEST_FIRST = ("started", "avg", "gain", "dev", "seconds")


@dataclass(frozen=True)
class Summary:
    """A run as `cse runs ls` shows it.

    Args:
        dev: The selecting metric at the selected state.
        test: `Result.average`: the mean over the test sets.
        gain: How much that is more than before training.
        started: When.
        seconds: Training time of a finished run, else how long the record was open.
        note: What a reader of the numbers must know.
        changed: What `--set` and `--unset` changed of the recipe, such as "train.steps=10" or "no queue".
        tags: Those given with `--tag`.
    """

    run_id: str
    recipe: str
    seed: str
    status: str
    dev: float | None
    test: float | None
    gain: float | None
    started: datetime
    seconds: float | None
    note: str
    name: str
    experiment: str
    changed: tuple[str, ...]
    tags: dict[str, str]


@dataclass(frozen=True)
class RunQuery:
    """The options of `cse runs ls`.

    Args:
        recipe: Name, or a pattern with `*`.
        status: One of `STATUSES`, in any letters.
        tags: `key=value`, or a key alone; all must fit.
        experiment: Name, or a pattern with `*`.
        since: A date or a time, or how long ago: "2d", "3h".
        sort: Highest first where it is a number.
        limit: How many are shown.
    """

    recipe: str | None = None
    status: str | None = None
    tags: Sequence[str] = ()
    experiment: str | None = None
    since: str | None = None
    sort: Order = "started"
    limit: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether every run fits."""
        return not (self.recipe or self.status or self.tags or self.experiment or self.since)

    def lines(self) -> list[Summary]:
        """Read the runs that fit, in order.

        Raises:
            CseError: An option has no meaning.
        """
        newest = self.limit if self.sort == "started" else None
        found = [summary(run) for run in list_runs(limit=newest, wanted=self._condition())]
        return sorted(found, key=_key(self.sort))[: self.limit]

    def _condition(self) -> Callable[[RecordedRun], bool]:
        status = None if self.status is None else self.status.upper()
        if status is not None and status not in STATUSES:
            known = ", ".join(STATUSES).lower()
            raise UnknownNameError(f"--status: no '{self.status}'.{suggestion(status, STATUSES)}", f"use {known}")
        since = None if self.since is None else parse_since(self.since)
        pairs = [tag.partition("=") for tag in self.tags]

        def fits(run: RecordedRun) -> bool:
            return (
                (self.recipe is None or fnmatchcase(run.tags.get(RECIPE, ""), self.recipe))
                and (status is None or run.status == status)
                and (self.experiment is None or fnmatchcase(run.experiment, self.experiment))
                and (since is None or run.started >= since)
                and all(key in run.tags and (not is_ or run.tags[key] == value) for key, is_, value in pairs)
            )

        return fits


def check_order(name: str) -> Order:
    """Return what `--sort` means.

    Raises:
        UnknownNameError: Nothing.
    """
    for order in get_args(Order):
        if name == order:
            return order  # type: ignore[no-any-return]
    raise UnknownNameError(
        f"--sort: no '{name}'.{suggestion(name, get_args(Order))}", f"use {', '.join(get_args(Order))}"
    )


def parse_since(text: str) -> datetime:
    """Return the moment that "2026-11-21", "2026-11-21 14:00", or "2d" and "3h" ago mean.

    Raises:
        CseError: It means none.
    """
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        pass
    try:
        return datetime.now(UTC) - timedelta(seconds=parse_duration("--since", text))
    except (CseError, OverflowError):
        raise CseError(
            f"--since: '{text}' is no time", "use a date such as 2026-11-21, or 3h, 2d for so long ago"
        ) from None


def _key(order: Order) -> Callable[[Summary], Any]:
    """Return what sorts runs: highest or first in the alphabet first, then the newest; those without a value last."""
    down = -1 if order in _HIGHEST_FIRST else 1

    def key(run: Summary) -> Any:
        value: Any = {"avg": run.test, "started": run.started.timestamp()}.get(order, getattr(run, order, None))
        place = 0 if value is None else value if isinstance(value, str) else down * value
        return value is None, place, -run.started.timestamp()

    return key


def summary(run: RecordedRun) -> Summary:
    """Return the line of a run."""
    result = run.result
    open_for = (run.ended - run.started).total_seconds() if run.ended else None
    recipe = result.recipe if result else run.tags.get(RECIPE, run.name)
    seed = str(result.seed) if result else run.tags.get(SEED, "")
    return Summary(
        run_id=run.run_id,
        recipe=recipe,
        seed=seed,
        status=run.status,
        dev=_dev(result) if result else None,
        test=result.average() if result else None,
        gain=result.gain if result else None,
        started=run.started,
        seconds=result.seconds if result else open_for,
        note=run.unreadable or ", ".join(_notes(run)),
        name=run.name,
        experiment=run.experiment,
        changed=tuple(filter(None, run.tags.get(SET, "").split("; "))),
        tags=own_tags(run),
    )


def own_tags(run: RecordedRun) -> dict[str, str]:
    """Return the tags of a run that are neither of `cse` nor of MLflow."""
    known = ("cse.", "mlflow.")
    return {key: value for key, value in run.tags.items() if not key.startswith(known) and key not in FOR_PEOPLE}


def _dev(result: Result) -> float | None:
    return None if result.selected_step is None else result.curve.get(result.selected_step)


def _notes(run: RecordedRun) -> Iterator[str]:
    recipe = run.tags.get(RECIPE)
    if TUNE in run.tags:
        trial = run.tags.get(TRIAL)
        yield f"search {run.tags[TUNE]}" if trial is None else f"trial {trial}"
    elif run.name not in (recipe, f"{recipe} seed {run.tags.get(SEED)}"):
        yield f"'{run.name}'"
    yield from (f"{key}={value}" if value else key for key, value in sorted(own_tags(run).items()))
    if CONFIRMS in run.tags:
        yield f"confirms {run.tags[CONFIRMS]}"
    if PRUNED in run.tags:
        yield "pruned"
    if run.result is not None and run.result.test_selected:
        yield "chosen on test data"

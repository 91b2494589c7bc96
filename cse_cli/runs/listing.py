"""The lines of `cse runs ls`: which recorded runs, in which order, and what each line contains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from cse_cli.core.formatting import counted, parse_duration
from cse_cli.core.results import Result
from cse_cli.runs.index import STATES, RecordedRun, all_runs
from registry.errors import CseError, UnknownNameError, suggestion

Order = Literal["started", "avg", "gain", "dev", "seconds", "recipe", "name", "status"]
_HIGHEST_FIRST = ("started", "avg", "gain", "dev", "seconds")


@dataclass(frozen=True)
class Summary:
    """A run as `cse runs ls` shows it.

    Args:
        run_id: ID of the run.
        recipe: Name or path by which the recipe was requested.
        seed: Seed of the run. Empty for the record of a search.
        status: State of the run.
        dev: Score of the selected state by the metric that selected it.
        test: `Result.average`: mean over the test sets.
        gain: Difference between `test` and the same mean before training.
        started: Time at which the run was created.
        seconds: Training time of a finished run, otherwise time between start and end.
        note: What you have to know to read the numbers.
        name: Display name of the run.
        group: Group of related runs: the experiment in MLflow.
        experiment: ID of the experiment. Empty for a record without a run of its own.
        changed: What `--set` and `--unset` changed in the recipe, such as "train.steps=10" or "no queue".
        tags: Tags given with `--tag`.
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
    group: str
    experiment: str
    changed: tuple[str, ...]
    tags: dict[str, str]


@dataclass(frozen=True)
class RunQuery:
    """The options of `cse runs ls`.

    Args:
        recipe: Name of the recipe, or a pattern with `*`.
        status: One of `STATES`, in upper or lower case.
        tags: "key=value", or only a key. A run must have all of them.
        experiment: Group of the runs, a pattern with `*`, or the ID of an experiment.
        since: A date or a time, or how long ago: "2d", "3h".
        sort: Order of the runs. Numbers are sorted from high to low.
        limit: Maximum number of runs.
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
        """Whether every run matches."""
        return not (self.recipe or self.status or self.tags or self.experiment or self.since)

    def lines(self) -> list[Summary]:
        """Return the runs that match, in order.

        Raises:
            CseError: If the value of an option is invalid.
        """
        matches = self._condition()
        found = [run for run in all_runs() if matches(run)]
        if self.sort == "started":
            found = found[: self.limit]  # to read the results of these is enough
        return sorted(map(summary, found), key=_key(self.sort))[: self.limit]

    def _condition(self) -> Callable[[RecordedRun], bool]:
        status = None if self.status is None else self.status.upper()
        if status is not None and status not in STATES:
            known = ", ".join(STATES).lower()
            raise UnknownNameError(f"--status: no '{self.status}'.{suggestion(status, STATES)}", f"use {known}")
        since = None if self.since is None else parse_since(self.since)
        pairs = [tag.partition("=") for tag in self.tags]

        def matches(run: RecordedRun) -> bool:
            about = run.about
            return (
                (self.recipe is None or fnmatchcase(about.recipe, self.recipe))
                and (self.experiment is None or self.experiment == about.experiment or self._is_group(about.group))
                and (since is None or about.created >= since)
                and all(key in about.tags and (not equals or about.tags[key] == value) for key, equals, value in pairs)
                and (status is None or run.state == status)
            )

        return matches

    def _is_group(self, group: str) -> bool:
        return self.experiment is not None and fnmatchcase(group, self.experiment)


def check_order(name: str) -> Order:
    """Return the order that `--sort` names.

    Raises:
        UnknownNameError: If there is no such order.
    """
    for order in get_args(Order):
        if name == order:
            return order  # type: ignore[no-any-return]
    raise UnknownNameError(
        f"--sort: no '{name}'.{suggestion(name, get_args(Order))}", f"use {', '.join(get_args(Order))}"
    )


def parse_since(text: str) -> datetime:
    """Return the time that "2026-11-21", "2026-11-21 14:00", or "2d" and "3h" (ago) mean.

    Raises:
        CseError: If the text is neither.
    """
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        pass
    try:
        return datetime.now(UTC) - timedelta(seconds=parse_duration("--since", text))
    except (CseError, OverflowError):
        raise CseError(
            f"--since: '{text}' is not a time", "use a date such as 2026-11-21, or a time span such as 3h or 2d"
        ) from None


def _key(order: Order) -> Callable[[Summary], Any]:
    """Return the sort key: high numbers or early letters first, then the newest; runs without a value are last."""
    down = -1 if order in _HIGHEST_FIRST else 1

    def key(run: Summary) -> Any:
        value: Any = {"avg": run.test, "started": run.started.timestamp()}.get(order, getattr(run, order, None))
        place = 0 if value is None else value if isinstance(value, str) else down * value
        return value is None, place, -run.started.timestamp()

    return key


def summary(run: RecordedRun) -> Summary:
    """Return the line of a run."""
    about, result = run.about, run.result
    took = (run.ended - run.started).total_seconds() if run.started and run.ended else None
    return Summary(
        run_id=run.run_id,
        recipe=about.recipe or run.name,
        seed="" if about.seed is None else str(about.seed),
        status=run.state,
        dev=_dev(result) if result else None,
        test=result.average() if result else None,
        gain=result.gain if result else None,
        started=about.created,
        seconds=result.seconds if result else took,
        note=", ".join(_notes(run)),
        name=run.name,
        group=about.group,
        experiment=about.experiment,
        changed=about.changes,
        tags=about.tags,
    )


def _dev(result: Result) -> float | None:
    return None if result.selected_step is None else result.curve.get(result.selected_step)


def _notes(run: RecordedRun) -> Iterator[str]:
    about = run.about
    if about.search:
        yield f"search {about.search}" if about.trial is None else f"trial {about.trial}"
    elif run.name not in (about.recipe, f"{about.recipe} seed {about.seed}"):
        yield f"'{run.name}'"
    yield from (f"{key}={value}" if value else key for key, value in sorted(about.tags.items()))
    if about.confirms:
        yield f"confirms {about.confirms}"
    if about.test_selected:
        yield "selected on test data"
    if about.pulled:
        yield f"from {about.pulled}"
    yield from _problems(run)


def _problems(run: RecordedRun) -> Iterator[str]:
    if run.end == "failed" and run.reason:
        yield run.reason
    if run.unreadable:
        yield run.unreadable
    if run.damaged:
        yield f"{counted(run.damaged, 'damaged line')} in events.jsonl"

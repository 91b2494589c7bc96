"""What one line says of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean

from cse_cli.results import STS_TASKS, Result
from cse_cli.tracking import tags as names
from cse_cli.tracking.reader import RecordedRun


@dataclass(frozen=True)
class Summary:
    """A run as `cse runs ls` shows it.

    Args:
        dev: The selecting metric at the selected state.
        test: Mean over the test evaluators that report the same metric, each rounded as papers print it.
        seconds: Training time of a finished run, else how long the record was open.
        note: What a reader of the numbers must know.
    """

    run_id: str
    recipe: str
    seed: str
    status: str
    dev: float | None
    test: float | None
    started: datetime
    seconds: float | None
    note: str


def summary(run: RecordedRun) -> Summary:
    """Return the line of a run."""
    result = run.result
    open_for = (run.ended - run.started).total_seconds() if run.ended else None
    return Summary(
        run_id=run.run_id,
        recipe=result.recipe if result else run.tags.get(names.RECIPE, run.name),
        seed=str(result.seed) if result else run.tags.get(names.SEED, ""),
        status=run.status,
        dev=_dev(result) if result else None,
        test=_test(result) if result else None,
        started=run.started,
        seconds=result.seconds if result else open_for,
        note=run.unreadable or ", ".join(_notes(run)),
    )


def _notes(run: RecordedRun) -> Iterator[str]:
    if names.TUNE in run.tags:
        yield f"trial {run.tags[names.TRIAL]}" if names.TRIAL in run.tags else f"search {run.tags[names.TUNE]}"
    if names.CONFIRMS in run.tags:
        yield f"confirms {run.tags[names.CONFIRMS]}"
    if names.PRUNED in run.tags:
        yield "pruned"
    if run.result is not None and run.result.test_selected:
        yield "chosen on test data"


def _dev(result: Result) -> float | None:
    return None if result.selected_step is None else result.curve.get(result.selected_step)


def _test(result: Result) -> float | None:
    selecting, _, metric = (result.select or ".spearman").rpartition(".")
    others = [name for name in result.scores if name != selecting and not name.endswith("dev")]
    wanted = list(STS_TASKS) if set(STS_TASKS) <= set(others) else others
    values = [round(result.scores[name][metric], 2) for name in wanted if metric in result.scores[name]]
    return fmean(values) if values else None

"""Claims: the decision whether a run is done, busy, resumed or new.

The process that starts a run claims it: it locks the file `claim` in the run's directory until the run has ended. So
several processes, on all machines that share the state directory, can execute one study: each claims the next free run.
The process that executes the run locks another file there, so a run is also busy while its worker outlives the claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cse_cli.core.identity import Plan
from cse_cli.core.paths import home
from cse_cli.runs.events import Listener
from cse_cli.runs.index import RecordedRun, all_runs, read_run
from cse_cli.runs.lock import FileLock
from cse_cli.runs.plans import plan_of_run, record_plan
from cse_cli.runs.record import MODEL, RECIPE, About, RunRecord, claim_of, is_busy, lock_of, read_about
from registry.errors import CseError


@dataclass(frozen=True)
class Done:
    """The run is finished."""

    run: RecordedRun


@dataclass(frozen=True)
class Busy:
    """Another process executes the run."""

    run: RecordedRun


@dataclass(frozen=True)
class Claimed:
    """This process starts the run, and holds its claim until it releases `lock`. `is_new`: this claim created it."""

    run_id: str
    lock: FileLock
    is_new: bool


Claim = Done | Busy | Claimed

_DONE = ("finished", "pruned")
"""Ends of runs that are not resumed."""


def claim(
    about: About, resolved: Mapping[str, Any] | None = None, *, seeds: Sequence[int] = (), again: bool = False
) -> Claim:
    """Claim the run of an experiment with a seed, or a new run with `again`.

    Recorded runs with the same identity, seed and search are the same run. `seeds` are those that the command starts
    together: several are recorded as a plan.
    """
    with FileLock(home() / "claims.lock"):
        recorded = all_runs()
        experiment = [run for run in recorded if about.identity is not None and run.about.identity == about.identity]
        key = about.seed, about.search, ""
        same = [run for run in experiment if (run.about.seed, run.about.search, run.about.summary) == key]
        if not again and (taken := _taken(same)):
            return taken
        plan = None
        if len(seeds) > 1:  # made now: a process that waited for the lock has the plan of the one before it
            about = about.model_copy(update={"created": datetime.now(UTC)})
            plan = Plan(seeds=tuple(sorted(seeds)), made=about.created)
        if not again and about.is_result and (trained := _trained_before(about, recorded)) is not None:
            about, plan = about.model_copy(update={"scores_again": trained.run_id}), plan_of_run(trained.about)
        if plan is not None:
            record_plan(about.experiment, plan)
        about.write(resolved)
        (lock := FileLock(claim_of(about.run_id))).acquire()
    return Claimed(about.run_id, lock, is_new=True)


def claim_run(run_id: str) -> Claim:
    """Claim one run by its ID, to resume it. An imported run or an unreadable result is an error."""
    with FileLock(home() / "claims.lock"):
        run = read_run(run_id)
        if taken := _taken([run]):
            return taken
    short = run.about.short
    raise CseError(
        f"cannot resume run {short}: {run.unreadable or f'it comes from {run.about.pulled}'}",
        f"run its recipe again: cse run {run.about.path / RECIPE}",
        code="runs.not_resumable",
    )


def open_run(run_id: str, listener: Listener | None = None) -> RunRecord:
    """Return the record of a claimed run for writing.

    Raises:
        BusyError: If another process, which its driver has left, still executes the run.
    """
    is_trial, lock = read_about(run_id).trial is not None, FileLock(lock_of(run_id))
    if not lock.acquire():
        raise BusyError(read_run(run_id))
    return RunRecord(run_id, lock, listener, is_trial=is_trial)


def _trained_before(about: About, recorded: list[RecordedRun]) -> RecordedRun | None:
    """Return the finished run that differs only in data that did not select its state, and has a model, or None."""
    for run in recorded:
        if (
            about.identity is None
            or run.about.identity is None
            or (run.about.seed, run.end) != (about.seed, "finished")
        ):
            continue
        changed = about.identity.differences(run.about.identity)
        if any(one.part != "scored" for one in changed) or not (run.is_result and run.result and run.result.scored_on):
            continue
        selected_by = run.result.scored_on.get((run.result.metric_for_best_model or "").rpartition(".")[0], {})
        if (
            run.result.steps
            and not {one.name for one in changed} & {*selected_by}
            and (run.about.path / MODEL).is_dir()
        ):
            return run
    return None


def _taken(found: list[RecordedRun]) -> Claim | None:
    """Claim a recorded run. Return None if all its records are unusable."""
    if done := [run for run in found if run.end in _DONE and not run.unreadable]:
        return Done(max(done, key=lambda run: run.about.created))
    free = [run for run in found if run.end not in _DONE and not run.about.pulled]
    for run in free:
        lock = FileLock(claim_of(run.run_id))
        if run.state == "RUNNING" or is_busy(run.run_id) or not lock.acquire():
            return Busy(run)
        now = read_run(run.run_id)
        if now.end not in _DONE:
            return Claimed(run.run_id, lock, is_new=False)
        lock.release()
        if not now.unreadable:  # it ended in the meantime
            return Done(now)
    return None


class BusyError(CseError):
    """Another process executes the run."""

    def __init__(self, run: RecordedRun) -> None:
        short = run.about.short
        super().__init__(
            f"run {short} ({run.name}) is already running: {run.host or 'another process'}",
            f"wait for it, or stop it: cse runs stop {short}",
            code="runs.busy",
        )
        self.run = run

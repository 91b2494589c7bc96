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
from cse_cli.runs.lock import CLAIM, LOCK, FileLock
from cse_cli.runs.plans import plan_of_run, record_plan
from cse_cli.runs.record import MODEL, RECIPE, About, RunRecord, folder_of, is_busy, read_about
from registry.errors import CseError


@dataclass(frozen=True)
class Claimed:
    """This process starts the run, and holds its claim until it releases `lock`. `is_new`: this claim created it."""

    run_id: str
    lock: FileLock
    is_new: bool


_DONE = ("finished", "pruned")
"""Ends of runs that are not resumed."""


def claim(
    about: About, resolved: Mapping[str, Any] | None = None, *, seeds: Sequence[int] = (), again: bool = False
) -> Claimed | RecordedRun:
    """Claim the run of an experiment with a seed, or a new run with `again`, or return the finished run.

    Recorded runs with the same identity, seed and search are the same run. `seeds` are those that the command starts
    together: several are recorded as a plan. If another process executes the run, this raises `BusyError`.
    """
    with FileLock(home() / "claims.lock"):
        recorded = all_runs()
        key = about.identity, about.seed, about.search, ""
        found = ((run, run.about) for run in recorded if run.about.identity is not None)
        same = [run for run, of in found if (of.identity, of.seed, of.search, of.summary) == key]
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
        (lock := FileLock(about.path / CLAIM)).acquire()
    return Claimed(about.run_id, lock, is_new=True)


def claim_run(run_id: str) -> Claimed | RecordedRun:
    """Claim one run by its ID to resume it, or return it if it is finished. An imported run is an error."""
    with FileLock(home() / "claims.lock"):
        run = read_run(run_id)
        if taken := _taken([run]):
            return taken
    message = f"cannot resume run {run.about.short}: {run.unreadable or f'it comes from {run.about.pulled}'}"
    raise CseError(message, f"run its recipe again: cse run {run.about.path / RECIPE}", code="runs.not_resumable")


def open_run(run_id: str, listener: Listener | None = None) -> RunRecord:
    """Return the record of a claimed run for writing. `BusyError`: a process that its driver has left executes it."""
    is_trial, lock = read_about(run_id).trial is not None, FileLock(folder_of(run_id) / LOCK)
    if not lock.acquire():
        raise BusyError(read_run(run_id))
    return RunRecord(run_id, lock, listener, is_trial=is_trial)


def _trained_before(about: About, recorded: list[RecordedRun]) -> RecordedRun | None:
    """Return the finished run that differs only in data that did not select its state, and has a model, or None."""
    for run in recorded:
        if about.identity is None or run.about.identity is None or run.about.seed != about.seed:
            continue
        changed = about.identity.differences(run.about.identity)
        if any(one.part != "scored" for one in changed) or not (run.is_result and run.result and run.result.scored_on):
            continue
        selecting = (run.result.metric_for_best_model or "").rpartition(".")[0]
        is_selected_by = {one.name for one in changed} & run.result.scored_on.get(selecting, {}).keys()
        if run.result.steps and not is_selected_by and (run.about.path / MODEL).is_dir():
            return run
    return None


def _taken(found: list[RecordedRun]) -> Claimed | RecordedRun | None:
    """Claim a recorded run, or return the finished one. Return None if all its records are unusable."""
    if done := [run for run in found if run.end in _DONE and not run.unreadable]:
        return max(done, key=lambda run: run.about.created)
    free = [run for run in found if run.end not in _DONE and not run.about.pulled]
    for run in free:
        lock = FileLock(folder_of(run.run_id) / CLAIM)
        if run.state == "RUNNING" or is_busy(run.run_id) or not lock.acquire():
            raise BusyError(run)
        now = read_run(run.run_id)
        if now.end not in _DONE:
            return Claimed(run.run_id, lock, is_new=False)
        lock.release()
        if not now.unreadable:  # it ended in the meantime
            return now
    return None


class BusyError(CseError):
    """Another process executes the run."""

    def __init__(self, run: RecordedRun) -> None:
        message = f"run {run.about.short} ({run.name}) is already running: {run.host or 'another process'}"
        super().__init__(message, f"wait for it, or stop it: cse runs stop {run.about.short}", code="runs.busy")
        self.run = run

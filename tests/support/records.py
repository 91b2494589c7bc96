"""Runs that were recorded without training, for tests."""

from typing import Any

from cse_cli.core.identity import Identity
from cse_cli.core.results import Result
from cse_cli.runs.claim import Claimed, claim, open_run
from cse_cli.runs.events import read_history
from cse_cli.runs.index import RecordedRun, all_runs
from cse_cli.runs.plans import record_plan
from cse_cli.runs.record import RESULT, About, RunRecord, folder_of


def result(**changes: Any) -> Result:
    """Return the result of a finished run; `recipe_hash="x"` is short for an identity with these settings."""
    digest = changes.pop("recipe_hash", "0123456789abcdef")
    plain: dict[str, Any] = {
        "recipe": "mini/simcse_en",
        "title": "SimCSE",
        "identity": Identity(settings=digest),
        "started": "2026-11-21T04:59:00Z",
        "language": "en",
        "seed": 1,
        "model": "mini_en",
        "scores": {"stsb_dev": {"spearman": 70.0}, "stsb": {"spearman": 61.004}, "sickr": {"spearman": 63.0}},
        "curve": {125: 65.5, 250: 70.0},
        "selected_step": 250,
        "metric_for_best_model": "stsb_dev.spearman",
        "steps": 250,
        "versions": {"cse": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "transformers": "5.23.0"},
        "device": "cpu",
        "precision": "fp32",
        "seconds": 12.5,
        "finished": "2026-11-21T05:00:00Z",
    }
    return Result.model_validate({**plain, **changes})


def recorded(
    result: Result | None = None,
    end: str | None = "finished",
    resolved: dict[str, Any] | None = None,
    **about: Any,
) -> RunRecord:
    """Record a run and return its record.

    Args:
        result: Result of the run, which also gives its recipe, seed, identity and plan.
        end: How it ends. With None it runs until `close` of its record, and then counts as LOST.
        resolved: Resolved recipe.
        about: Fields of `About`.
    """
    known: dict[str, Any] = {}
    if result is not None:
        names = ("recipe", "source", "seed", "identity", "commits", "test_selected")
        known = {name: getattr(result, name) for name in names}
        if result.paper is not None:
            known["paper"] = "/".join(dict(result.paper).values())
        if result.plan is not None:
            record_plan(result.experiment, result.plan)
    asked = {**known, **about}
    asked.setdefault("name", f"{asked.get('recipe', 'run')} seed {asked.get('seed', 0)}")
    asked.setdefault("group", asked.get("recipe") or "group")
    claimed = claim(About(**asked), resolved, again=True)
    assert isinstance(claimed, Claimed)
    record = open_run(claimed.run_id)
    claimed.lock.release()
    record.started(0, 100 if result is None else result.steps, device="cpu")
    if result is not None:
        record.file(RESULT, result.model_copy(update={"run_id": record.run_id}).to_json())
    if end is not None:
        record.end(end)  # type: ignore[arg-type]
    return record


def points(run_id: str, metric: str) -> list[tuple[int, float]]:
    """Return the recorded values of a metric in the order of their steps."""
    return sorted(read_history(folder_of(run_id)).metrics.get(metric, {}).items())


def only_run() -> RecordedRun:
    """Return the only recorded run."""
    (run,) = all_runs()
    return run


def states() -> list[str]:
    """Return the states of all runs, oldest first."""
    return [run.state for run in reversed(all_runs())]

"""Record of a search: its settings and findings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

from optuna import Study

from cse_cli.jobs.job import Job
from cse_cli.mirrors.mirror import Follower
from cse_cli.recipe.load import LoadedRecipe
from cse_cli.runs.lock import FileLock
from cse_cli.runs.record import ABOUT, About, RunRecord, folder_of, lock_of
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.results import Verification, importances
from cse_cli.tuning.samplers import pruner_name
from cse_cli.tuning.study import RECORD, budget, counts, journal, metric, settled

FIGURES = "figures"
"""Directory of the figures in the record."""


def take_record(about: About, resolved: Mapping[str, Any]) -> RunRecord:
    """Return a record for writing, created with its recipe if it is new."""
    if not (about.path / ABOUT).exists():
        about.write(resolved)
    lock = FileLock(lock_of(about.run_id))
    return RunRecord(about.run_id, lock if lock.acquire() else None)


def take_search_record(study: Study, config: SearchConfig, base: LoadedRecipe) -> RunRecord:
    """Return the record of a search for writing."""
    if RECORD not in study.user_attrs:
        study.set_user_attr(RECORD, uuid4().hex)
    group = os.environ.get("MLFLOW_EXPERIMENT_NAME") or f"tune/{config.name}"
    job = Job(base, base.recipe.train.seed, search=config.name, run_name=config.name, tags=config.tags, group=group)
    own = {"run_id": study.user_attrs[RECORD], "recipe": "", "summary": "tuning", "seed": None}
    about = job.about(None).model_copy(update=own)
    return take_record(about, base.recipe.resolved())


def record_settings(record: RunRecord, study: Study, config: SearchConfig) -> None:
    """Record the space, the sampler and the other settings of a search."""
    record.event(
        "tags",
        values={
            "sampler": config.sampler,
            "pruner": pruner_name(config),
            "trials": str(budget(study)),
            "metric": metric(study),
            "storage": str(journal(config.name)),
            **{f"space.{parameter.name}": parameter.shown for parameter in config.parameters},
        },
    )


def record_findings(record: RunRecord, study: Study, warned: Callable[[str], object]) -> None:
    """Record counts, the best score, importances and figures."""
    trials = study.get_trials(deepcopy=False)
    count = counts(trials)
    metrics = {f"trials/{state}": float(number) for state, number in count.items()}
    if count["complete"]:
        metrics["score/best"] = study.best_value
    metrics |= {f"importance/{name}": share for name, share in importances(study).items()}
    record.metrics(metrics, len(settled(trials)))
    if draw_figures(study, record.path / FIGURES, warned):
        record.file(FIGURES)


def draw_figures(study: Study, directory: Path, warned: Callable[[str], object]) -> list[Path]:
    """Draw the figures of a study and return their files. Empty if they cannot be drawn."""
    try:
        from cse_cli.tuning.plots import draw  # matplotlib

        return draw(study, directory)
    except Exception as error:  # a figure that fails must not fail the search
        warned(f"figures cannot be drawn: {type(error).__name__}: {error}")
        return []


def record_verification(run_id: str, found: Verification, warned: Callable[[str], object]) -> None:
    """Record the gain with new seeds, if this state directory has the record of the search."""
    if not (folder_of(run_id) / ABOUT).exists():
        return
    lock = FileLock(lock_of(run_id))
    if not lock.acquire():
        warned(f"record {run_id[:8]} of the search is in use: the verification is only in the study")
        return
    over, p = found.paired[found.main], found.p_values[found.main]
    metrics = {"verification/gain": over.difference, "verification/seeds": float(len(over.seeds))}
    if p is not None:
        metrics["verification/p"] = p
    record = RunRecord(run_id, lock)
    with closing(Follower(run_id)), closing(record):
        record.metrics(metrics, len(over.seeds))

"""The record of a search: what was asked, and what came of it. Only the process that holds its lock writes to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from optuna import Study

from cse_cli.core.identity import Identity
from cse_cli.mirrors import follow
from cse_cli.recipe.load import LoadedRecipe
from cse_cli.runs.lock import FileLock
from cse_cli.runs.record import ABOUT, About, RunRecord, folder_of, lock_of, read_about
from cse_cli.training.build import Job
from cse_cli.training.recording import about_run
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.owner import choosing
from cse_cli.tuning.parameter import Parameter
from cse_cli.tuning.results import Confirmation, importances, read_trials
from cse_cli.tuning.samplers import pruner_name
from cse_cli.tuning.storage import address
from cse_cli.tuning.study import budget, counts, metric, run_of, set_run, settled

FIGURES = "figures"
"""Name of the directory of the figures in the record."""


def take_record(about: About, resolved: Mapping[str, Any]) -> RunRecord | None:
    """Return a record to write to, created if it is new, or None if another process holds it.

    Args:
        about: What the record is.
        resolved: Resolved recipe of a new one.
    """
    if not (about.path / ABOUT).exists():
        about.write(resolved)
    lock = FileLock(lock_of(about.run_id))
    return RunRecord(read_about(about.run_id), lock) if lock.acquire() else None


def take_search_record(study: Study, config: SearchConfig, base: LoadedRecipe) -> tuple[About, RunRecord | None]:
    """Return what the record of a search is, and the record unless another process holds it.

    Args:
        study: The study of the search.
        config: The search.
        base: The recipe with what all trials have in common.
    """
    with choosing(address(config.storage, config.name), config.name):
        if (run_id := run_of(study)) is None:
            set_run(study, run_id := uuid4().hex)
        job = Job(
            base, base.recipe.train.seed, search=config.name, run_name=config.name, tags=config.tags,
            group=config.experiment or group_of(config.name),
        )  # fmt: skip
        own = {"run_id": run_id, "recipe": "", "summary": "tuning", "seed": None, "identity": None}
        about = about_run(job, Identity(settings=base.recipe.hash())).model_copy(update=own)
        return about, take_record(about, base.recipe.resolved())


def group_of(name: str) -> str:
    """Return the group of the records of a search, unless the user names one."""
    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or f"tune/{name}"


@contextmanager
def mirrored(about: About) -> Iterator[None]:
    """Send the record to its mirrors while the block lasts. The record is closed before the block ends."""
    follower = follow(about)
    try:
        yield
    finally:
        follower.close()


def record_question(record: RunRecord, study: Study, config: SearchConfig) -> None:
    """Record what is searched, and how."""
    record.tags(
        {
            "sampler": config.sampler,
            "pruner": pruner_name(config),
            "trials": str(budget(study)),
            "metric": metric(study),
            "storage": address(config.storage, config.name).shown,
            **{f"space.{parameter.name}": _range(parameter) for parameter in config.parameters},
        }
    )


def _range(parameter: Parameter) -> str:
    if parameter.choices is not None:
        return ", ".join(map(str, parameter.choices))
    step = "" if parameter.step is None else f" step {parameter.step:g}"
    return f"{parameter.low:g}..{parameter.high:g}{' log' if parameter.log else ''}{step}"


def record_findings(record: RunRecord, study: Study, warned: Callable[[str], object]) -> None:
    """Record counts, the best score, importances and figures."""
    trials = study.get_trials(deepcopy=False)
    metrics = {f"trials/{state}": float(count) for state, count in counts(trials).items()}
    scores = [trial.score for trial in read_trials(study) if trial.state == "complete" and trial.score is not None]
    if scores:
        metrics["score/best"] = max(scores)
    metrics |= {f"importance/{name}": share for name, share in importances(study).items()}
    record.metrics(metrics, len(settled(trials)))
    if draw_figures(study, record.path / FIGURES, warned):
        record.file(FIGURES)


def draw_figures(study: Study, folder: Path, warned: Callable[[str], object]) -> list[Path]:
    """Draw the figures of a study into a folder and return their files: none if they cannot be drawn."""
    try:
        from cse_cli.tuning.plots import draw  # matplotlib

        return draw(study, folder)
    except Exception as error:  # a figure that fails must not fail the search
        warned(f"plots are missing: {type(error).__name__}: {error}")
        return []


def record_confirmation(run_id: str, confirmation: Confirmation, warned: Callable[[str], object]) -> None:
    """Record the gain with fresh seeds in the record of the search, if this state directory has it."""
    if not (folder_of(run_id) / ABOUT).exists():
        return
    lock = FileLock(lock_of(run_id))
    if not lock.acquire():
        warned(f"the search's record {run_id[:8]} is in use, so it does not have the confirmation; the study has it")
        return
    over, p = confirmation.paired[confirmation.main], confirmation.p_values[confirmation.main]
    metrics = {"confirmation/gain": over.difference, "confirmation/seeds": float(len(over.seeds))}
    if p is not None:
        metrics["confirmation/p"] = p
    record = RunRecord(read_about(run_id), lock)
    with mirrored(record.about), closing(record):
        record.metrics(metrics, len(over.seeds))

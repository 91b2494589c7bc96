"""Studies as JSON documents on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Container, Sequence
from statistics import fmean, stdev
from typing import Any

from cse_cli.study.plan import Failure, Outcome, Plan
from cse_cli.study.scores import values
from cse_cli.study.tasks import Key

SCHEMA_VERSION = 1


def write_plans(plans: Sequence[Plan]) -> None:
    """Write one JSON document with every cell."""
    _write({"studies": [_document(plan, plan.before) for plan in plans]})


def write_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Write one JSON document with every cell, its scores, and all results."""
    _write({"studies": [_outcome(one) for one in outcomes]})


def write_report(ran: int, failures: Sequence[Failure]) -> None:
    """Write what a worker tells the process that started it."""
    _write({"ran": ran, "failures": [_failure(failure) for failure in failures]})


def _outcome(outcome: Outcome) -> dict[str, Any]:
    results = [result for same in outcome.results.values() for result in same]
    document = _document(outcome.plan, {(result.recipe_hash, result.seed) for result in results})
    found = values(outcome.plan.study, outcome.plan.cells, outcome.results)
    for cell, about in zip(outcome.plan.cells, document["cells"], strict=True):
        wanted = {k: v for k, v in found[cell.row].items() if not cell.columns or k in cell.columns}
        about["scores"] = {heading: _score(numbers) for heading, numbers in wanted.items() if numbers}
    failures = [_failure(failure) for failure in outcome.failures]
    plain = [result.model_dump(mode="json") for result in results]
    return {**document, "ran": outcome.ran, "failures": failures, "results": plain}


def _document(plan: Plan, done: Container[Key]) -> dict[str, Any]:
    cells = [
        {
            "row": cell.row,
            "columns": list(cell.columns),
            "recipe": cell.recipe,
            "set": list(cell.overrides),
            "unset": list(cell.unset),
            "hash": cell.hash,
            "finished": [seed for seed in plan.seeds if (cell.hash, seed) in done],
        }
        for cell in plan.cells
    ]
    study = plan.study
    return {
        "study": study.name,
        "title": study.title,
        "paper": study.paper,
        "seeds": list(plan.seeds),
        "runs": len(plan.tasks),
        "finished_before": len(plan.before),
        "cells": cells,
    }


def _score(numbers: Sequence[float]) -> dict[str, Any]:
    return {"mean": fmean(numbers), "std": stdev(numbers) if len(numbers) > 1 else None, "n": len(numbers)}


def _failure(failure: Failure) -> dict[str, Any]:
    cell = failure.task.cell
    return {
        "row": cell.row,
        "columns": list(cell.columns),
        "hash": cell.hash,
        "seed": failure.task.seed,
        "message": failure.message,
        "exit_code": failure.exit_code,
    }


def _write(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=1, ensure_ascii=False) + "\n")

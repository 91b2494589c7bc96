"""Tags and parameters of a run, as trackers show them."""

from __future__ import annotations

import getpass
import json
from collections.abc import Mapping
from typing import Any

from cse_cli.runs.record import About

RUN = "cse.run_id"
"""Tag with the ID of the run's record."""


def about_tags(about: About) -> dict[str, str]:
    """Return the tags of a run: what a person reads first, then what identifies it."""
    seed = "" if about.seed is None else str(about.seed)
    tags = {
        "recipe": about.recipe,
        "method": about.method,
        "encoder": about.encoder,
        "data": about.data,
        "seed": seed,
        RUN: about.run_id,
        "cse.experiment": about.experiment,
        "cse.set": "; ".join(about.changes),
        "cse.study": about.study,
        "cse.search": about.search,
        "cse.trial": "" if about.trial is None else str(about.trial),
        "cse.confirms": about.confirms,
        "cse.summary": about.summary,
        "cse.paper": about.paper,
        "cse.test_selected": "true" if about.test_selected else "",
        "mlflow.note.content": about.note,
        "mlflow.source.name": "cse",
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": about.git,
        "mlflow.user": _user(),
    }
    return {key: value for key, value in tags.items() if value} | about.tags


def params(resolved: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return every leaf of a resolved recipe by its dotted key, without prose and the search space."""
    found: dict[str, str] = {}
    for key, value in resolved.items():
        if isinstance(value, Mapping):
            found |= params(value, f"{prefix}{key}.") if prefix or key != "tune" else {}
        elif prefix or key != "description":
            found[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return found


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"  # the user ID of a container without a name

"""Tags of a run, as trackers show them."""

from __future__ import annotations

import getpass

from cse_cli.runs.record import About

RUN = "cse.run_id"
"""Tag with the ID of the run's record."""


def about_tags(about: About) -> dict[str, str]:
    """Return the tags of a run. The most important ones are first."""
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


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"  # in a container, the user ID may have no name

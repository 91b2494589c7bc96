"""The table of runs that MLflow's pages begin with: one of their "shared views", kept as a tag of each experiment.

Without it the table shows no metric before somebody has chosen columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from cse_cli.tracking import tags

_NAME = "cse"
VIEW_TAG = f"mlflow.sharedViewState.{_NAME}"
_METRICS = ("eval/avg", "eval/untrained_avg", "eval/gain", "dev/spearman")
_TAGS = ("method", "encoder", "data", "seed", tags.SET)


def view() -> str:
    """Return the view: runs by their average, with what they are and what was set."""
    shown = [f"metrics.`{name}`" for name in _METRICS] + [f"tags.`{name}`" for name in _TAGS]
    state = {
        "selectedColumns": ["attributes.`Models`", *shown],
        "orderByKey": "metrics.`eval/avg`",
        "orderByAsc": False,
    }
    return json.dumps(state)


def table_page(experiment: str, tags_of_it: Mapping[str, str]) -> str:
    """Return the page of an experiment's runs, below the address of the server."""
    # Without the first parameter the pages open in their view for chat applications.
    page = f"experiments/{experiment}/runs?workflowType=machine_learning"
    return f"{page}&viewStateShareKey={_NAME}" if VIEW_TAG in tags_of_it else page

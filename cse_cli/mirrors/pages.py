"""Columns of MLflow's table of runs: a "shared view", which is a tag of each experiment.

Without it, the table shows no metrics until you select columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

_NAME = "cse"
VIEW_TAG = f"mlflow.sharedViewState.{_NAME}"
_METRICS = ("eval/avg", "eval/untrained_avg", "eval/gain", "dev/spearman")
_TAGS = ("method", "encoder", "data", "seed", "cse.set")


def view() -> str:
    """Return the view: runs sorted by their average, with columns for scores, method and changed settings."""
    shown = [f"metrics.`{name}`" for name in _METRICS] + [f"tags.`{name}`" for name in _TAGS]
    state = {
        "selectedColumns": ["attributes.`Models`", *shown],
        "orderByKey": "metrics.`eval/avg`",
        "orderByAsc": False,
    }
    return json.dumps(state)


def table_page(experiment: str, tags_of_it: Mapping[str, str]) -> str:
    """Return the path of the page with the runs of an experiment."""
    # Without the first parameter, the page opens in the view for chat applications.
    page = f"experiments/{experiment}/runs?workflowType=machine_learning"
    return f"{page}&viewStateShareKey={_NAME}" if VIEW_TAG in tags_of_it else page

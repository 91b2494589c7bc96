"""Names of the tags that `cse` reads back from recorded runs. Imports no MLflow."""

from __future__ import annotations

from typing import Final

RECIPE: Final = "cse.recipe"
RECIPE_HASH: Final = "cse.recipe_hash"
SEED: Final = "cse.seed"
STUDY: Final = "cse.study"
BASE: Final = "cse.base_sha256"
"""Digest of the weights that training starts from."""
SET: Final = "cse.set"
"""What differs from the recipe's file as it stood, `key=value` or `no key`, joined by "; "; neither seed nor prose."""

TUNE: Final = "cse.tune"
"""Name of the search it belongs to: a trial's run, or without `TRIAL` the search itself."""
TRIAL: Final = "cse.trial"
CONFIRMS: Final = "cse.confirms"
"""Name of the search whose best values it puts to the test, with a seed of its own: unlike a trial it is a result."""
SUMMARY: Final = "cse.summary"
"""What it sums up, "tuning" or "seeds": its runs have results, it has none."""
PRUNED: Final = "cse.pruned"
REASON: Final = "cse.reason"
"""Why a run failed, in one line."""

AVERAGE: Final = "avg"
"""Of those for people, in MLflow's pages: the mean over the test sets, as the table of results has it."""
FOR_PEOPLE: Final = ("recipe", "method", "encoder", "data", "seed", AVERAGE)
"""What a person looks for first; `cse` reads none of them."""

PARENT: Final = "mlflow.parentRunId"
"""Below which run MLflow shows it."""
EXPERIMENT: Final = "cse.runs"
"""Tag of an experiment, "true": it has runs of `cse`."""

HOST: Final = "cse.host"
PID: Final = "cse.pid"
PROCESS_STARTED: Final = "cse.process_started"
HEARTBEAT: Final = "cse.heartbeat"
INFINITE: Final = "cse.infinite"

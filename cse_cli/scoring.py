"""Score models that already exist: ours, anybody's, or a finished run's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from cse_cli.devices import choose
from cse_cli.evaluation import evaluate
from cse_cli.recipe.schema import Evaluate
from cse_cli.results import STS_TASKS, Scores
from cse_cli.run_folder import model_of_run
from registry import EVALUATORS, catalogue
from registry.encoders.saved import open_encoder
from registry.errors import CseError, UnknownNameError, suggestion
from registry.types import Evaluator


@dataclass(frozen=True)
class Request:
    """How to score.

    Args:
        tasks: "sts", or data sets separated by commas, each with an optional "/split".
        pooling: Instead of the model's own.
        max_length: Instead of the model's own.
    """

    tasks: str
    pooling: str | None
    max_length: int | None
    batch_tokens: int | None
    device: str


@dataclass(frozen=True)
class Scored:
    """One model's scores and the settings they were made with."""

    model: str
    pooling: str
    max_length: int
    precision: str
    scores: Scores
    fingerprints: dict[str, str]
    seconds: float


def evaluators(tasks: str) -> dict[str, Evaluator]:
    """Return the evaluators a task list names.

    Raises:
        UnknownNameError: No such data set of pairs.
    """
    found: dict[str, Evaluator] = {}
    for task in tasks.split(","):
        for name in STS_TASKS if task == "sts" else (task.strip(),):
            dataset, _, split = name.partition("/")
            _demand_pairs(dataset, split or "test")
            found[name] = EVALUATORS["sts"].build({"dataset": dataset, "split": split or "test"})
    return found


def _demand_pairs(dataset: str, split: str) -> None:
    """Refuse what no score can come from, before a model is loaded."""
    known = [name for name in catalogue.names() if catalogue.entry(name).kind == "pairs"]
    if dataset not in catalogue.names():
        raise UnknownNameError(
            f"unknown task '{dataset}'.{suggestion(dataset, [*known, 'sts'])}",
            "use sts, or data sets that `cse data list` shows, such as stsb/dev",
        )
    if "score" not in catalogue.entry(dataset).columns_of(split):
        raise CseError(f"'{dataset}/{split}' has no scored pairs", f"data sets that have: {', '.join(known)}")


def score_models(models: Sequence[str], request: Request) -> list[Scored]:
    """Return the scores of each model under the same tasks.

    Raises:
        CseError: A model or data set is missing.
    """
    wanted = evaluators(request.tasks)
    return [_score(model, wanted, request) for model in models]


def _score(model: str, wanted: dict[str, Evaluator], request: Request) -> Scored:
    compute = choose(request.device, "fp32")
    encoder, own_length = open_encoder(model_of_run(model) or model, request.pooling)
    length = min(request.max_length or own_length, own_length)
    encoder.to(compute.device).eval()
    began = time.perf_counter()
    settings = Evaluate(batch_tokens=request.batch_tokens, max_length=length)
    scores = evaluate(encoder, wanted, settings, compute)
    digests = {k: v for evaluator in wanted.values() for k, v in evaluator.fingerprints().items()}
    pooling = str(getattr(encoder, "eval_pooling", request.pooling or ""))
    return Scored(model, pooling, length, compute.precision, scores, digests, time.perf_counter() - began)

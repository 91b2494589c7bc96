"""Score models that already exist: ours, anybody's, or a finished run's."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cse_cli.cores import settle
from cse_cli.data.requirements import Requirement, Told, fetch, of_part
from cse_cli.devices import choose
from cse_cli.evaluation import evaluate
from cse_cli.recipe.schema import Evaluate
from cse_cli.results import Scores
from cse_cli.run_folder import model_of_run
from cse_cli.tasks import Task
from registry import EVALUATORS
from registry.encoders.saved import open_encoder
from registry.models import locate


@dataclass(frozen=True)
class Request:
    """How to score.

    Args:
        pooling: Instead of the model's own.
        max_length: Instead of the model's own.
    """

    pooling: str | None
    max_length: int | None
    batch_tokens: int | None
    device: str


@dataclass(frozen=True)
class Scored:
    """One model's scores and the settings they were made with.

    Args:
        tasks: Task → its evaluator's registered name and all of its parameters.
    """

    model: str
    pooling: str
    max_length: int
    precision: str
    scores: Scores
    tasks: dict[str, dict[str, Any]]
    fingerprints: dict[str, str]
    seconds: float


def provide(models: Sequence[str], tasks: Mapping[str, Task], told: Told) -> None:
    """Download the models and data sets that are not here yet.

    Raises:
        MissingError: Some can be had from nowhere: all of them are told, before anything is downloaded.
    """
    wanted = [Requirement("model", model_of_run(model) or model) for model in models]
    for name, task in tasks.items():
        wanted += of_part(f"tasks.{name}", EVALUATORS[task.component], task.params)
    fetch(wanted, told)


def score_models(
    models: Sequence[str], tasks: Mapping[str, Task], request: Request, told: Callable[[str], None] | None = None
) -> list[Scored]:
    """Return the scores of each model under the same tasks; `told` hears what is being done.

    Raises:
        CseError: A model or data set is missing: told before anything is scored.
    """
    digests = {name: digest for task in tasks.values() for name, digest in task.evaluator.fingerprints().items()}
    for model in models:
        locate(model_of_run(model) or model)
    return [_score(model, tasks, digests, request, told) for model in models]


def _score(
    model: str,
    tasks: Mapping[str, Task],
    digests: Mapping[str, str],
    request: Request,
    told: Callable[[str], None] | None,
) -> Scored:
    settle()
    compute = choose(request.device, "fp32")
    encoder, own_length = open_encoder(model_of_run(model) or model, request.pooling)
    length = min(request.max_length or own_length, own_length)
    encoder.to(compute.device).eval()
    began = time.perf_counter()
    settings = Evaluate(batch_tokens=request.batch_tokens, max_length=length)
    evaluators = {name: task.evaluator for name, task in tasks.items()}
    heard = None if told is None else lambda name: told(f"{model}: {name}")
    return Scored(
        model=model,
        pooling=str(getattr(encoder, "eval_pooling", request.pooling or "")),
        max_length=length,
        precision=compute.precision,
        scores=evaluate(encoder, evaluators, settings, compute, told=heard),
        tasks={name: {"name": task.component, "params": task.params} for name, task in tasks.items()},
        fingerprints=dict(digests),
        seconds=time.perf_counter() - began,
    )

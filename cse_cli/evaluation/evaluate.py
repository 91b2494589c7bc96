"""Run evaluators over one state of an encoder.

Score models that already exist: ours, anybody's, or a finished run's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cse_cli.core.devices import Compute, choose, settle
from cse_cli.core.distributed import from_first
from cse_cli.core.results import Scores
from cse_cli.core.run_folder import model_of_run
from cse_cli.data.batches import ViewPlan
from cse_cli.data.requirements import Requirement, Told, fetch, of_part
from cse_cli.evaluation.encoder import SentenceEncoder, ShardedEncoder
from cse_cli.evaluation.tasks import Task
from cse_cli.recipe.schema import Evaluate
from registry import EVALUATORS
from registry.distributed import world_size
from registry.encoders.saved import open_encoder
from registry.errors import CseError
from registry.models import locate
from registry.types import Encoder, Evaluator


def evaluate(
    encoder: Encoder,
    evaluators: Mapping[str, Evaluator],
    settings: Evaluate,
    compute: Compute,
    only: Iterable[str] = (),
    plans: Mapping[str, ViewPlan] | None = None,
    told: Callable[[str], None] | None = None,
) -> Scores:
    """Return the scores of `encoder` under the evaluators named in `only`, or all of them.

    All of them ask one `SentenceEncoder`, so that each distinct sentence is encoded once. Evaluation draws no random
    numbers, so training goes on as if it had not happened. `told` hears the name of each before it begins. Several
    processes call it together: all encode, the first one scores, and every one gets its scores.
    """
    wanted = {name: evaluators[name] for name in list(only) or evaluators}
    if world_size() == 1:
        encode = SentenceEncoder(encoder, compute, settings.batch_tokens, settings.max_length, plans)
        return _scores(encode, wanted, told)
    sharded = ShardedEncoder(encoder, compute, settings.batch_tokens, settings.max_length, plans)

    def lead() -> Scores:
        with sharded.leading():
            return _scores(sharded, wanted, told)

    return from_first(lead, meanwhile=sharded.follow)


def _scores(encode: SentenceEncoder, wanted: Mapping[str, Evaluator], told: Callable[[str], None] | None) -> Scores:
    encoder = encode.encoder
    if encoder.fits == "once":
        encoder.fit(encode, ())
        encode.forget()
    scores: Scores = {}
    for name, evaluator in wanted.items():
        if told is not None:
            told(name)
        if encoder.fits == "each":
            encode.forget()
            encoder.fit(encode, _own_sentences(name, evaluator))
            encode.forget()
        scores[name] = evaluator(encode)
    return scores


def _own_sentences(name: str, evaluator: Evaluator) -> Sequence[str]:
    texts = evaluator.texts()
    if not texts:
        raise CseError(
            f"evaluator '{name}' gives no sentences of its own that the encoder could be fitted to",
            "fit the encoder to a data set instead",
        )
    return texts


def score(scores: Scores, path: str) -> float:
    """Return the value of "evaluator.metric"."""
    evaluator, _, metric = path.rpartition(".")
    return scores[evaluator][metric]


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

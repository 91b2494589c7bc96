"""Evaluators run over one state of an encoder, and over models that exist already: directories, hub ids, runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cse_cli.core.devices import Compute, choose, limit_torch_threads
from cse_cli.core.distributed import run_on_rank0
from cse_cli.core.results import Scores
from cse_cli.data.batches import ViewPlan
from cse_cli.data.requirements import DownloadProgress, fetch
from cse_cli.evaluation.encoder import SentenceEncoder, ShardedEncoder
from cse_cli.evaluation.tasks import Task
from cse_cli.recipe.requirements import Requirement, of_part
from cse_cli.recipe.schema import Evaluate
from cse_cli.runs.model import checked_model_of_run, model_of_run
from registry import EVALUATORS
from registry.distributed import world_size
from registry.encoders.saved import open_encoder
from registry.errors import CseError
from registry.models import locate
from registry.types import Encoder, Evaluator

Show = Callable[[str, float], None]
"""Is told which evaluator is at work, and the share of all that is done."""


def evaluate(
    encoder: Encoder,
    evaluators: Mapping[str, Evaluator],
    settings: Evaluate,
    compute: Compute,
    only: Iterable[str] = (),
    plans: Mapping[str, ViewPlan] | None = None,
    show: Show | None = None,
) -> Scores:
    """Return the scores of `encoder` under the evaluators named in `only`, or all of them.

    All of them ask one `SentenceEncoder`, so that each distinct sentence is encoded once. Evaluation draws no random
    numbers, so training goes on as if it had not happened. Several processes call it together: all encode, the first
    one scores, and every one gets its scores.
    """
    wanted = {name: evaluators[name] for name in list(only) or evaluators}
    arguments = encoder, compute, settings.batch_tokens, settings.max_length, plans, settings.view
    if world_size() == 1:
        return _scores(SentenceEncoder(*arguments), wanted, show)
    sharded = ShardedEncoder(*arguments)

    def lead() -> Scores:
        with sharded.leading():
            return _scores(sharded, wanted, show)

    return run_on_rank0(lead, meanwhile=sharded.follow)


def _scores(encode: SentenceEncoder, wanted: Mapping[str, Evaluator], show: Show | None) -> Scores:
    encoder = encode.encoder
    if encoder.fits == "once":
        encoder.fit(encode, ())
        encode.forget()
    scores: Scores = {}
    for place, (name, evaluator) in enumerate(wanted.items()):
        if show is not None:
            encode.watch = _shares(show, name, place, len(wanted))
        if encoder.fits == "each":
            encode.forget()
            if not (texts := evaluator.texts()):
                raise CseError(
                    f"evaluator '{name}' gives no sentences of its own that the encoder could be fitted to",
                    "fit the encoder to a data set instead",
                )
            encoder.fit(encode, texts)
            encode.forget()
        scores[name] = evaluator(encode)
        encode.watch(1.0)
    return scores


def _shares(show: Show, name: str, place: int, count: int) -> Callable[[float], None]:
    """Return what is told the share of an evaluator's sentences, and shows that of all: it never falls."""
    reached = 0.0

    def watch(share: float) -> None:
        nonlocal reached
        reached = max(reached, share)
        show(name, (place + reached) / count)

    watch(0.0)
    return watch


def score(scores: Scores, path: str) -> float:
    """Return the value of "evaluator.metric"."""
    evaluator, _, metric = path.rpartition(".")
    return scores[evaluator][metric]


@dataclass(frozen=True)
class Settings:
    """How to score.

    Args:
        pooling: Instead of the model's own.
        max_length: Instead of the model's own.
        template: Instead of the model's own.
    """

    pooling: str | None
    max_length: int | None
    batch_tokens: int | None
    device: str
    template: str | None = None


@dataclass(frozen=True)
class Scored:
    """One model's scores and the settings they were made with.

    Args:
        tasks: Task → its evaluator's registered name and all of its parameters.
        template: Text around every sentence, where there is one.
    """

    model: str
    pooling: str
    max_length: int
    precision: str
    scores: Scores
    tasks: dict[str, dict[str, Any]]
    fingerprints: dict[str, str]
    seconds: float
    template: str | None = None


def fetch_needed(models: Sequence[str], tasks: Mapping[str, Task], progress: DownloadProgress) -> None:
    """Download the models and data sets that are not here yet.

    Raises:
        MissingError: Some can be had from nowhere; raised before the first download, with all of them.
    """
    wanted = [Requirement("model", model_of_run(model) or model) for model in models]
    for name, task in tasks.items():
        wanted += of_part(f"tasks.{name}", EVALUATORS[task.component], task.params)
    fetch(wanted, progress)


def score_models(
    models: Sequence[str], tasks: Mapping[str, Task], settings: Settings, show: Show | None = None
) -> list[Scored]:
    """Return the scores of each model under the same tasks; `show` is told model and task, and the share of all.

    Raises:
        CseError: A model or data set is missing, or a run's model has changed; raised before anything is scored.
    """
    digests = {name: digest for task in tasks.values() for name, digest in task.evaluator.fingerprints().items()}
    for model in models:
        locate(checked_model_of_run(model) or model)
    scored = []
    for place, model in enumerate(models):
        show_model = None if show is None else _of_model(show, model, place, len(models))
        scored.append(_score(model, tasks, digests, settings, show_model))
    return scored


def _of_model(show: Show, model: str, place: int, count: int) -> Show:
    """Return what is told task and share of one model, and shows them as part of all."""
    return lambda name, share: show(f"{model}: {name}", (place + share) / count)


def _score(
    model: str,
    tasks: Mapping[str, Task],
    digests: Mapping[str, str],
    settings: Settings,
    show: Show | None,
) -> Scored:
    limit_torch_threads()
    compute = choose(settings.device, "fp32")
    encoder, own_length = open_encoder(model_of_run(model) or model, settings.pooling, settings.template)
    length = min(settings.max_length or own_length, own_length)
    encoder.to(compute.device).eval()
    began = time.perf_counter()
    return Scored(
        model=model,
        pooling=str(getattr(encoder, "eval_pooling", settings.pooling or "")),
        max_length=length,
        precision=compute.precision,
        scores=evaluate(
            encoder,
            {name: task.evaluator for name, task in tasks.items()},
            Evaluate(batch_tokens=settings.batch_tokens, max_length=length),
            compute,
            show=show,
        ),
        tasks={name: {"name": task.component, "params": task.params} for name, task in tasks.items()},
        fingerprints=dict(digests),
        seconds=time.perf_counter() - began,
        template=getattr(encoder.vocabulary, "template", None),
    )

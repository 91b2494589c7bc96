"""Scores of one state of an encoder, and of existing models: directories, Hub IDs and runs."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cse_cli.core.devices import Compute, choose
from cse_cli.core.distributed import run_on_rank0
from cse_cli.core.paths import home
from cse_cli.core.results import Scores
from cse_cli.core.threads import limit_torch_threads
from cse_cli.data.batches import ViewSpec
from cse_cli.data.columns import OwnColumns
from cse_cli.data.requirements import DownloadProgress, availability, fetch
from cse_cli.evaluation.encoder import FirstDimensions, SentenceEncoder
from cse_cli.evaluation.tasks import Task
from cse_cli.recipe.requirements import Requirement, of_part
from cse_cli.recipe.schema import Evaluate
from cse_cli.runs.record import MODEL, model_of_run
from registry import EVALUATORS
from registry.encoders.library import LibraryEncoder
from registry.encoders.saved import check_pooling, open_encoder
from registry.errors import CseError
from registry.machinery import returned
from registry.prompts import parse_prompts
from registry.resources.models import locate, sha256_of
from registry.types import Encoder, Evaluator

Show = Callable[[str, float], None]
"""Callback with the name of the running evaluator and the completed share of all evaluators."""


def evaluate(
    encoder: Encoder,
    evaluators: Mapping[str, Evaluator],
    settings: Evaluate,
    compute: Compute,
    only: Iterable[str] = (),
    specs: Mapping[str, ViewSpec] | None = None,
    show: Show | None = None,
    columns: OwnColumns | None = None,
) -> Scores:
    """Return the scores of `encoder` under the evaluators in `only`, or under all evaluators if it is empty.

    All evaluators share one `SentenceEncoder`, so each distinct sentence is encoded once. Evaluation consumes no random
    numbers and therefore does not change the training. Several processes call it together: the first one computes the
    scores, and all of them receive the scores.
    """
    chosen = {name: evaluators[name] for name in list(only) or evaluators}
    limits = settings.batch_tokens, settings.max_length
    encode = SentenceEncoder(encoder, compute, *limits, specs, settings.view, columns)
    return run_on_rank0(lambda: _scores(encode, chosen, show, settings.width))


def word_overlaps(evaluators: Mapping[str, Evaluator]) -> Scores:
    """Return the values of `Evaluator.word_overlap` of the evaluators that have some."""
    found = {name: evaluator.word_overlap() for name, evaluator in evaluators.items()}
    return {name: values for name, values in found.items() if values}


def _scores(
    encode: SentenceEncoder, evaluators: Mapping[str, Evaluator], show: Show | None, width: int | None
) -> Scores:
    encoder = encode.encoder
    scored = encode if width is None else FirstDimensions(encode, width)
    if encoder.fits == "once":
        encoder.fit(encode, ())
        encode.forget()
    scores: Scores = {}
    for place, (name, evaluator) in enumerate(evaluators.items()):
        if show is not None:
            encode.watch = _shares(show, name, place, len(evaluators))
        if encoder.fits == "each":
            encode.forget()
            if not (texts := evaluator.texts()):
                raise CseError(
                    f"evaluator '{name}' has no sentences to fit the encoder on",
                    "fit the encoder on a data set: set its `dataset`",
                    code="evaluate.no_sentences_to_fit",
                )
            encoder.fit(encode, texts)
            encode.forget()
        scores[name] = evaluator(scored)
        returned.scores(evaluator, scores[name])
        encode.watch(1.0)
    return scores


def _shares(show: Show, name: str, place: int, count: int) -> Callable[[float], None]:
    """Return a callback for the encoded share of an evaluator's sentences. The reported share never falls."""
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
    """Settings of `cse evaluate`. None means the model's own, all dimensions, or the default of the device.

    A prompt is a text or name for all sentences, "query=…" or "document=…".
    """

    pooling: str | None
    max_length: int | None
    batch_tokens: int | None
    device: str
    template: str | None = None
    precision: str = "fp32"
    prompts: Sequence[str] = ()
    width: int | None = None

    def __post_init__(self) -> None:
        """Check the names, before anything is downloaded."""
        check_pooling(self.pooling)
        parse_prompts(self.prompts)
        _ = self.compute

    @property
    def changed(self) -> dict[str, Any]:
        """Settings that change the embeddings of a model."""
        values = {
            "pooling": self.pooling,
            "max_length": self.max_length,
            "template": self.template,
            "precision": None if self.precision == "fp32" else self.precision,
            "prompts": list(self.prompts),
            "width": self.width,
        }
        return {name: value for name, value in values.items() if value}

    @property
    def compute(self) -> Compute:
        """Device and precision."""
        return choose(self.device, self.precision)


@dataclass(frozen=True)
class Scored:
    """Scores of one model by task and metric, with the settings behind them.

    `tasks` has the registered name of each evaluator and its parameters, `prompts` name → text of those that were used,
    `library` the modules if sentence-transformers opened the model, `exported` directories for other programs.
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
    prompts: dict[str, str] = field(default_factory=dict)
    library: str | None = None
    exported: list[str] = field(default_factory=list)
    width: int | None = None


def fetch_needed(models: Sequence[str], tasks: Mapping[str, Task], progress: DownloadProgress) -> None:
    """Download missing models and data sets."""
    fetch([*(Requirement("model", model_of_run(model) or model) for model in models), *_data_of(tasks)], progress)


def has_data(tasks: Mapping[str, Task]) -> bool:
    """Return whether the data sets of tasks are on this machine. Uses no network."""
    return all(availability(needed).state == "here" for needed in _data_of(tasks))


def _data_of(tasks: Mapping[str, Task]) -> Iterator[Requirement]:
    for name, task in tasks.items():
        yield from of_part(f"tasks.{name}", EVALUATORS[task.component], task.params)


def score_models(
    models: Sequence[str], tasks: Mapping[str, Task], settings: Settings, show: Show | None = None
) -> list[Scored]:
    """Return the scores of each model under the same tasks."""
    digests = {name: digest for task in tasks.values() for name, digest in task.evaluator.fingerprints().items()}
    for model in models:
        locate(model_of_run(model) or model)
    limit_torch_threads()

    def show_model(place: int, name: str, share: float) -> None:
        if show is not None:
            show(f"{models[place]}: {name}", (place + share) / len(models))

    return [_score(model, tasks, digests, settings, partial(show_model, place)) for place, model in enumerate(models)]


def _score(model: str, tasks: Mapping[str, Task], digests: Mapping[str, str], settings: Settings, show: Show) -> Scored:
    compute = settings.compute
    found = model_of_run(model) or model
    encoder, own_length = open_encoder(found, settings.pooling, settings.template)
    encoder.prompts = encoder.prompts.replaced(parse_prompts(settings.prompts))
    length = min(settings.max_length or own_length, own_length)
    pooling = str(getattr(encoder, "eval_pooling", settings.pooling or ""))
    if pooling == "first_last" and getattr(encoder, "first_layer_index", 0) == 1:
        pooling = "avg_first_last"
    encoder.to(compute.device).eval()
    encode = SentenceEncoder(encoder, compute, settings.batch_tokens, length)
    began = time.perf_counter()
    scores = _scores(encode, {name: task.evaluator for name, task in tasks.items()}, show, settings.width)
    return Scored(
        model=model,
        pooling=pooling,
        max_length=length,
        precision=compute.precision,
        scores=scores,
        tasks={name: {"name": task.component, "params": dict(task.params)} for name, task in tasks.items()},
        fingerprints=dict(digests),
        seconds=time.perf_counter() - began,
        template=getattr(getattr(encoder, "vocabulary", None), "template", None),
        prompts=encode.prompts,
        library=encoder.modules_named if isinstance(encoder, LibraryEncoder) else None,
        exported=_export(locate(found), tasks, settings.changed),
        width=settings.width,
    )


def _export(folder: Path, tasks: Mapping[str, Task], changed: Mapping[str, Any]) -> list[str]:
    """Write the results of tasks in the formats of other programs, and return the directories."""
    exportable = [task for task in tasks.values() if type(task.evaluator).save is not Evaluator.save]
    if not exportable:
        return []
    if folder.parent.name == "snapshots":  # of the Hub's cache
        name, revision = folder.parents[1].name.removeprefix("models--").replace("--", "/"), folder.name
    else:
        name = f"cse/{folder.parent.name if folder.name == MODEL else folder.name}"
        files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.suffix != ".md"]
        digests = {file.relative_to(folder).as_posix(): sha256_of(file) for file in files}
        revision = hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:32]
    about = {"name": name, "revision": revision, "settings": changed}
    written = [task.component for task in exportable if task.evaluator.save(home() / task.component, about)]
    return [str(home() / component) for component in dict.fromkeys(written)]

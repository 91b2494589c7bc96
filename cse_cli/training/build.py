"""From a recipe to everything that a run needs: components, built and bound to each other, text and batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from cse_cli.core.devices import Compute
from cse_cli.core.distributed import rank0_first
from cse_cli.core.threads import limit_torch_threads
from cse_cli.data.batches import Batches, ViewSpec
from cse_cli.data.columns import Making, OwnColumns
from cse_cli.data.requirements import fetch
from cse_cli.data.sources import Text, open_text
from cse_cli.inspection.facts import alarms_before_run
from cse_cli.mirrors.mirror import configured
from cse_cli.recipe.requirements import requirements
from cse_cli.recipe.schema import Recipe, View
from cse_cli.runs.record import MODEL, RunRecord, folder_of
from cse_cli.training.method import BoundView, Method, Term
from registry import AUGMENTERS, ENCODERS, EVALUATORS, HEADS, LOSSES, QUEUES
from registry.distributed import rank, world_size
from registry.encoders.saved import open_encoder, own_pooling
from registry.errors import CseError
from registry.prompts import Prompts
from registry.resources import hub
from registry.resources.models import locate
from registry.types import Encoder, Evaluator, Loss
from registry.vocabulary import HubVocabulary


@dataclass(frozen=True)
class Experiment:
    """Recipe with all components built.

    `recipe` lacks the values that the components have (`Recipe.wiring`). The seed decides the initial weights of
    `method`. `trained` is the encoder of an earlier run that this one scores again, or None if this run trains.
    """

    recipe: Recipe
    method: Method
    specs: Mapping[str, ViewSpec]
    evaluators: Mapping[str, Evaluator]
    trained: Encoder | None = None

    @property
    def scored(self) -> Encoder:
        """Encoder that is evaluated and saved."""
        return self.trained or self.method.encoder(self.recipe.evaluate.encoder)

    @property
    def selecting(self) -> Encoder:
        """Encoder whose score selects the best checkpoint."""
        settings = self.recipe.evaluate
        return self.method.encoder(settings.selection_encoder or settings.encoder)

    @property
    def columns(self) -> set[str]:
        """Data columns that the views read."""
        return {column for spec in self.specs.values() for column in (spec.column, *spec.side, *spec.numbers)}


@dataclass(frozen=True)
class Prepared:
    """Experiment on a device, with everything read.

    A recipe without training has no text and no batches.
    """

    compute: Compute
    experiment: Experiment
    seed: int
    text: Text | None
    batches: Batches | None
    steps: int
    making: Making

    @property
    def own_columns(self) -> OwnColumns:
        """Columns that are made for the sentences of evaluators."""
        return OwnColumns(self.experiment.recipe.data.columns, self.making)

    @property
    def sentences(self) -> int:
        """Number of rows of the training text."""
        return 0 if self.text is None else self.text.rows


def prepare(recipe: Recipe, seed: int, compute: Compute, record: RunRecord, trained_by: str = "") -> Prepared:
    """Build and read everything that a run needs. Warnings and progress go to the record.

    `trained_by` is the ID of the finished run whose model this run scores again.
    """
    configured()
    limit_torch_threads()
    hub.forget()
    wanted = requirements(recipe.wiring())
    rank0_first(lambda: fetch(wanted, lambda what, *sizes: record.progress(f"downloading {what}", *sizes)))
    record.progress("building the method")
    experiment = resolve(recipe, seed)
    if compute.warning:
        record.event("warning", text=compute.warning)
    for note in experiment.scored.prompts.notes:
        record.event("warning", text=note)
    for name, part in recipe.encoders.items():
        given, model = part.params.get("pooling"), part.params.get("model")
        own = own_pooling(locate(model)) if given and model else None
        if own is not None and own != given:
            key = f"encoders.{name}.pooling"
            record.event("warning", text=f"{key} is '{given}', but '{model}' was made for '{own}': set {key} = '{own}'")
    making = Making((str(compute.device),), record.progress, lambda text: record.event("warning", text=text))
    # The saved encoder gives all scores, unless they need a view of the recipe or a fit.
    reads = any(EVALUATORS[part.name].references for part in recipe.evaluators.values()) or recipe.evaluate.view
    if trained_by and not reads and experiment.scored.fits == "never":
        only = f"only test data have changed since run {trained_by[:8]}"
        record.event("warning", text=f"{only}: its model is scored again, without training")
        encoder, _ = open_encoder(str(folder_of(trained_by) / MODEL))
        experiment = replace(experiment, trained=encoder.to(compute.device))
    if recipe.train.steps == 0 or experiment.trained is not None:
        return Prepared(compute, experiment, seed, None, None, 0, making)

    place = rank(), world_size()  # `rank0_first` calls `read` as in a single process

    def read() -> tuple[Text, Batches]:
        text = open_text(recipe.data, experiment.columns, making)
        vocabularies = {spec.column: spec.vocabulary for spec in experiment.specs.values()}
        alarms = list[str]()
        if place[0] == 0:
            inspected = partial(record.progress, "inspecting the text")
            alarms += alarms_before_run(text, experiment.recipe, vocabularies, inspected)
        batches = Batches(
            text, experiment.specs, recipe.train.batch_size, recipe.data.max_length, seed, *place,
            partial(record.progress, "tokenizing"), bool(recipe.data.unique_in_batch),
        )  # fmt: skip
        length = 0 if recipe.queue is None else recipe.queue.params.get("length", 0)
        if length > text.rows:
            alarms.append(
                f"queue.length is {length:,}, but the text has {text.rows:,} rows: the queue contains sentences of the "
                "batch, and some of them several times. Set a smaller queue.length"
            )
        for notice in (*text.notices, *alarms, *batches.notices):
            record.event("warning", text=notice)
        return text, batches

    text, batches = rank0_first(read)
    steps = recipe.train.steps or recipe.train.epochs * batches.steps_per_epoch
    return Prepared(compute, experiment, seed, text, batches, steps, making)


def resolve(recipe: Recipe, seed: int) -> Experiment:
    """Build all components of a recipe. Newly initialized weights depend only on the seed."""
    torch.manual_seed(seed)
    wiring = recipe.wiring()
    encoders: dict[str, Encoder] = {}
    for name, part in recipe.encoders.items():
        encoders[name] = ENCODERS[part.name].build(part.params, encoders)
        heads = {key: HEADS[head.name].build(head.params, encoders) for key, head in part.heads.items()}
        encoders[name].attach(heads)
        limit, length = encoders[name].max_length, recipe.data.max_length
        if limit is not None and length > limit and recipe.train.steps != 0:
            raise CseError(
                f"data.max_length = {length}, but encoder '{name}' supports at most {limit} tokens",
                f"use --set data.max_length={limit}, or another model",
                code="training.too_long_for_encoder",
            )
    views = {name: _view(name, view, encoders) for name, view in recipe.views.items()}
    queue = None
    if recipe.queue is not None:
        entry = QUEUES[recipe.queue.name]
        queue = entry.build(recipe.queue.params, encoders)
        watched = next(recipe.queue.params[r.parameter] for r in entry.references if r.kind == "view")
        queue.bind(encoders[recipe.views[watched].encoder])
    losses: dict[str, Loss] = {}
    for label, loss in recipe.losses.items():
        losses[label] = LOSSES[loss.name].build(loss.params, encoders, losses)
    terms = _terms(wiring, losses)
    for name, encoder in encoders.items():
        # Losses that read more than the embeddings of a view of this encoder.
        own = {view for view, bound in views.items() if bound.encoder == name}
        reading = [
            losses[label]
            for label, term in terms.items()
            if any(one.kind == "encoded" and own & {*term.views_of(one.name)} for one in term.entry.inputs)
        ]
        encoder.expect(
            hidden_read=any(loss.reads_hidden for loss in reading), mini_batch_size=recipe.train.mini_batch_size
        )
        if blocks := sorted({block for loss in reading for block in loss.reads_attentions}):
            encoder.keep_attentions(blocks)
    method = Method(encoders, views, queue, losses, terms)
    for name in {views[view].encoder for view in method.views_by_layer}:
        encoders[name].keep_layers()
    specs = {name: _spec(name, recipe.views[name], view, encoders, terms) for name, view in views.items()}
    for name in encoders:
        encoders[name].prompts = _prompts(name, recipe, specs, encoders)
    evaluators = {name: EVALUATORS[part.name].build(part.params, encoders) for name, part in recipe.evaluators.items()}
    for evaluator in evaluators.values():
        limits = evaluator.limit, recipe.evaluate.limit
        evaluator.limit = min((limit for limit in limits if limit is not None), default=None)
    return Experiment(wiring, method, specs, evaluators)


def _terms(recipe: Recipe, losses: Mapping[str, Loss]) -> dict[str, Term]:
    """Return the terms of the objective. A wrapper replaces the loss that it computes, and has its inputs."""
    terms = {}
    for label in [label for label in recipe.losses if label not in recipe.wrapped.values()]:
        outer, name = recipe.losses[label], recipe.innermost(label)
        inner = recipe.losses[name]
        entry = LOSSES[inner.name]
        column = losses[name].column if any(i.kind == "labels" for i in entry.inputs) else None
        terms[label] = Term(entry, outer.weight, inner.views, inner.queue, outer.weight_schedule, column)
    return terms


def _view(name: str, view: View, encoders: Mapping[str, Encoder]) -> BoundView:
    parts = encoders[view.encoder].modules()
    if view.dropout is not None and not any(isinstance(part, nn.Dropout) for part in parts):
        raise CseError(
            f"views.{name}.dropout = {view.dropout}, but encoder '{view.encoder}' has no dropout layer",
            'remove the key; for decoders set `dropout` and `dropout_scope = "attention"` of the encoder',
            code="training.no_dropout_layer",
        )
    augmenters = [AUGMENTERS[part.name].build(part.params, encoders) for part in view.augment]
    for augmenter in augmenters:
        augmenter.bind(encoders[view.encoder])
    return BoundView(view.encoder, augmenters, view.dropout)


def _spec(
    name: str, view: View, bound: BoundView, encoders: Mapping[str, Encoder], terms: Mapping[str, Term]
) -> ViewSpec:
    side = {a.column: a.vocabulary for a in bound.augmenters if a.column is not None and a.vocabulary is not None}
    vocabulary = encoders[view.encoder].vocabulary
    if view.template is not None:
        vocabulary = vocabulary.with_template(view.template)
    read = [term for term in terms.values() if any(name in term.views_of(i) for i in term.views)]
    numbers = [term.column for term in read if term.column is not None]
    return ViewSpec(view.column, vocabulary, side, list(bound.augmenters), view.dropout, numbers)


_SPLIT = "the tokenizer splits it differently as one text with a sentence"


def _prompts(name: str, recipe: Recipe, specs: Mapping[str, ViewSpec], encoders: Mapping[str, Encoder]) -> Prompts:
    """Return the prompts of an encoder: those of the encoders that it wraps, and the templates of its views.

    Evaluation uses the template of the encoder instead, if it has one.
    """
    part, own = recipe.encoders[name], encoders[name].vocabulary
    wrapped = [
        encoders[part.params[r.parameter]].prompts for r in ENCODERS[part.name].references if r.kind == "encoder"
    ]
    named = {view: text for prompts in wrapped for view, text in prompts.named.items()}
    notes = [note for prompts in wrapped for note in prompts.notes]
    if not isinstance(own, HubVocabulary):
        return Prompts(named, notes=tuple(notes))
    if own.template is not None:
        if own.prefix is not None and own.prompt is None:
            notes.append(
                f"encoders.{name}.template = {own.template!r}: only cse opens the saved model, because {_SPLIT}"
            )
        return Prompts(notes=tuple(notes))
    for view, spec in specs.items():
        if recipe.views[view].encoder != name or not isinstance(spec.vocabulary, HubVocabulary):
            continue
        given = spec.vocabulary
        if given.prompt:
            named[view] = given.prompt
        elif given.prompt is None:
            reason = "it is more than text before the sentence" if given.prefix is None else _SPLIT
            notes.append(f"views.{view}.template = {given.template!r} is only for training, because {reason}")
    return Prompts(named, notes=tuple(notes))

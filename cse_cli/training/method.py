"""The formula of every method: L(x) = Σₜ wₜ · ℓₜ({ f_e(v)(a_v(x)) : v ∈ views(ℓₜ) }, Q)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, autocast, cat, is_grad_enabled, nn
from torch.nn.functional import pad

from cse_cli.recipe.schema import WeightSchedule
from registry.accelerators import random_states, set_random_states
from registry.distributed import all_devices, world_size
from registry.dropout import dropout_rate
from registry.errors import CseError, suggestion
from registry.machinery import returned
from registry.machinery.core import Entry
from registry.tokens import Embedded, Encoded, Tokens, at_least_single
from registry.types import Augmenter, Batch, Component, Encoder, Loss, Negatives, Queue, Step


@dataclass(frozen=True)
class BoundView:
    """View with built augmenters."""

    encoder: str
    augmenters: Sequence[Augmenter]
    dropout: float | None = None


@dataclass(frozen=True)
class Term:
    """One weighted loss.

    `views` maps an input of `forward` to the name of its view, or the names of several. Optional inputs may be missing.
    `column` of the data has the labels of the loss.
    """

    entry: Entry[Loss]
    weight: float
    views: Mapping[str, str | tuple[str, ...]]
    queue: bool
    schedule: WeightSchedule | None = None
    column: str | None = None

    def views_of(self, name: str) -> tuple[str, ...]:
        """Return the views of an input, or an empty tuple for an omitted input."""
        found = self.views.get(name, ())
        return (found,) if isinstance(found, str) else found


def check_scalar(label: str, term: Term, value: Any, *, first: bool) -> None:
    """Check the value of a loss: a floating-point scalar, which at the first step has a gradient."""
    if not isinstance(value, Tensor):
        wrong, action = f"{type(value).__name__}, not a tensor", "return a scalar tensor"
    elif value.dim():
        wrong, action = f"a tensor of shape {tuple(value.shape)}, not a scalar", "return its mean: loss.mean()"
    elif not value.is_floating_point():
        wrong, action = f"{value.dtype}, not a floating-point number", "return loss.float()"
    elif first and is_grad_enabled() and not value.requires_grad:
        wrong = "a value without a gradient, so that it trains nothing"
        action = "compute it from the views, without .item(), .detach() and torch.no_grad()"
    else:
        return
    named = f"loss '{label}'" if label == term.entry.name else f"loss '{label}' ({term.entry.name})"
    returned.refuse(named, term.entry.cls.forward, wrong, action)


class Method(nn.Module):
    """Encoders, views, a queue and weighted losses.

    `losses` contains those that others wrap, too. `terms` has those of the objective.
    """

    def __init__(
        self,
        encoders: Mapping[str, Encoder],
        views: Mapping[str, BoundView],
        queue: Queue | None,
        losses: Mapping[str, Loss],
        terms: Mapping[str, Term],
    ) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict(encoders)
        self.losses = nn.ModuleDict(losses)
        self.queue = queue
        self.views = dict(views)
        self.terms = dict(terms)
        self._read_before_heads = {
            view
            for term in self.terms.values()
            for wanted in term.entry.inputs
            if wanted.kind == "pooled"
            for view in term.views_of(wanted.name)
        }
        self.views_by_layer = {
            view
            for label, term in self.terms.items()
            if (loss := self.loss(label)).reads_layers
            for name in term.views.keys() - loss.steering
            for view in term.views_of(name)
        }
        # Only augmenters with weights move to the device with the method.
        self.augmenters = nn.ModuleList(a for v in views.values() for a in v.augmenters if isinstance(a, nn.Module))

    def forward(self, step: StepState) -> dict[str, Tensor]:
        """Return label → unweighted loss of one step."""
        self._embed(step)
        self._encode(step)
        if self.queue is not None:
            self.queue.observe(step)
        losses = {}
        with autocast(next(iter(step.views.values())).sentence.device.type, enabled=False):
            origins = self._origins(step, step.views)
            below = [self._origins(step, views) for views in self._lower_layers(step)]
            for label, term in self.terms.items():
                inputs = self._inputs(term, origins)
                if self.loss(label).reads_layers:
                    inputs["layers"] = [self._inputs(term, layer) for layer in below]
                losses[label] = self.losses[label](**inputs)
                check_scalar(label, term, losses[label], first=step.index == 0)
        return losses

    def objective(self, losses: Mapping[str, Tensor], step: Step | None = None) -> Tensor:
        """Return Σ weight · loss, with the weights of this step. Default: the first step."""
        total = []
        for label, value in losses.items():
            weight, schedule = self.terms[label].weight, self.terms[label].schedule
            at = weight if schedule is None or step is None else schedule.at(weight, step.index, step.total)
            total.append(at * value)
        return sum(total[1:], start=total[0])

    def encoder(self, name: str) -> Encoder:
        """Return the encoder with this name."""
        found = self.encoders[name]
        assert isinstance(found, Encoder)
        return found

    def loss(self, label: str) -> Loss:
        """Return the loss with this label."""
        found = self.losses[label]
        assert isinstance(found, Loss)
        return found

    def components(self) -> Iterator[tuple[str, Component]]:
        """Yield recipe path and component in the order of `after_step`: encoders first, the queue last."""
        yield from ((f"encoders.{name}", self.encoder(name)) for name in self.encoders)
        for name, view in self.views.items():
            yield from ((f"views.{name}.augment.{place}", a) for place, a in enumerate(view.augmenters))
        yield from ((f"losses.{label}", loss) for label, loss in self.losses.items() if isinstance(loss, Component))
        if self.queue is not None:
            yield "queue", self.queue

    def _embed(self, step: StepState) -> None:
        """Embed the tokens of each view and apply its augmenters, in recipe order."""
        for name, view in self.views.items():
            tokens = step.batch[name]
            for augmenter in view.augmenters:
                rows, tokens = tokens.rows, augmenter.on_tokens(tokens, step)
                returned.instance(augmenter, "on_tokens", tokens, Tokens)
                returned.count(augmenter, "on_tokens", tokens.rows, rows)
            encoder = self.encoder(view.encoder)
            vectors = encoder.embed(tokens)
            returned.shape(encoder, "embed", vectors, tokens.rows, None, encoder.width)
            if isinstance(step, ProbeState) and not vectors.requires_grad:
                vectors = vectors.detach().requires_grad_()
            step.unperturbed[name] = vectors
            embedded = Embedded(tokens, vectors)
            for augmenter in view.augmenters:
                embedded = augmenter.on_embeddings(embedded, name, step)
                returned.instance(augmenter, "on_embeddings", embedded, Embedded)
                returned.shape(augmenter, "on_embeddings", embedded.vectors, tokens.rows, None, encoder.width)
            step.embedded[name] = embedded

    def _encode(self, step: StepState) -> None:
        """Run each encoder once over all its views. Views with another dropout rate run separately."""
        for name in self.encoders:
            own = {view: bound for view, bound in self.views.items() if bound.encoder == name}
            for rate in dict.fromkeys(bound.dropout for bound in own.values()):
                members = {view: step.embedded[view] for view, bound in own.items() if bound.dropout == rate}
                with dropout_rate(self.encoder(name), rate):
                    step.views.update(encode_together(self.encoder(name), members))

    def _lower_layers(self, step: StepState) -> Iterator[dict[str, Encoded]]:
        """Yield the views of each layer except the last, for losses that read all layers."""
        read = [name for name in step.views if name in self.views_by_layer]
        stacks = {name: layers for name in read if (layers := step.views[name].layers) is not None}
        for layer in range(min((stack.shape[1] for stack in stacks.values()), default=1) - 1):
            views = dict(step.views)
            for name, stack in stacks.items():
                pooled = stack[:, layer]
                sentence = self.encoder(self.views[name].encoder).project(pooled)
                views[name] = replace(views[name], sentence=at_least_single(sentence), pooled=pooled)
            yield views

    def _origins(self, step: StepState, views: Mapping[str, Encoded]) -> dict[str, Mapping[str, Any]]:
        """Return kind of input → view or column → value."""
        columns = {name: values for tokens in step.batch.values() for name, values in tokens.numbers.items()}
        return {
            "sentences": {name: all_devices(view.sentence) for name, view in views.items()},
            "pooled": {name: all_devices(views[name].before_heads) for name in self._read_before_heads},
            "encoded": views,
            "labels": {name: all_devices(values) for name, values in columns.items()},
        }

    def _inputs(self, term: Term, origins: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return the arguments of a loss's `forward` from the result of `_origins`."""
        arguments: dict[str, Any] = {}
        for wanted in term.entry.inputs:
            if wanted.kind == "negatives":
                like = next(iter(origins["sentences"].values()))
                queue = self.queue if term.queue else None
                arguments[wanted.name] = Negatives.none(like) if queue is None else queue.negatives()
            elif wanted.kind == "labels":
                arguments[wanted.name] = origins["labels"][term.column or ""]
            elif wanted.name in term.views:
                values = tuple(origins[wanted.kind][view] for view in term.views_of(wanted.name))
                arguments[wanted.name] = values if wanted.several else values[0]
        return arguments


def encode_together(encoder: Encoder, members: Mapping[str, Embedded]) -> dict[str, Encoded]:
    """Run one encoder over all its views in a single pass, and return the output of each view."""
    tokens = Tokens.stack({view: member.tokens for view, member in members.items()})
    vectors = cat([pad(m.vectors, (0, 0, 0, tokens.length - m.vectors.shape[1])) for m in members.values()])
    together = encoder.encode(tokens, vectors)
    returned.instance(encoder, "encode", together, Encoded)
    returned.shape(encoder, "encode", together.sentence, tokens.rows, encoder.dim)
    together = together.at_least_single()
    found: dict[str, Encoded] = {}
    start = 0
    for name, member in members.items():
        found[name] = together.rows(start, start + member.tokens.rows, member.tokens)
        start += member.tokens.rows
    return found


@dataclass(eq=False)
class StepState:
    """One step of one method on one batch. The forward pass fills it.

    The random stream of augmenters and queues, `generator`, is equal on every device.
    """

    method: Method
    batch: Batch
    index: int
    total: int
    generator: torch.Generator
    embedded: dict[str, Embedded] = field(default_factory=dict, init=False)
    views: dict[str, Encoded] = field(default_factory=dict, init=False)
    unperturbed: dict[str, Tensor] = field(default_factory=dict, init=False)
    _gradients: dict[str, Tensor] | None = field(default=None, init=False)
    _sentences: dict[str, Tensor] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._began = _randomness(self.generator)

    def sentences(self, view: str) -> Tensor:
        """Return (N, D): the view's sentence embeddings from every device, detached."""
        if view not in self._sentences:
            self._sentences[view] = all_devices(self.views[view].sentence.detach())
        return self._sentences[view]

    def gradient(self, view: str) -> Tensor:
        """Return (B, L, W): ∂loss/∂token embeddings at the unperturbed point, with the dropout masks of this step.

        The loss is the loss of the whole batch over all devices. The method runs once more as a probe whose own
        perturbations are zero: one forward and backward pass for all views of the step. The random state is restored
        afterwards, and the gradients of the parameters do not change.
        """
        if view not in self.batch:
            raise CseError(
                f"unknown view '{view}'.{suggestion(view, self.batch)}",
                f"use one of {', '.join(self.batch)}",
                code="training.unknown_view",
            )
        if self._gradients is None:
            self._gradients = self._probe()
        return self._gradients[view]

    def _probe(self) -> dict[str, Tensor]:
        now = _randomness(self.generator)
        with torch.enable_grad():
            # From the start of the step: an earlier augmenter may have sampled, and must sample the same values again.
            _restore(self.generator, *self._began)
            probe = ProbeState(self.method, self.batch, self.index, self.total, self.generator)
            loss = self.method.objective(self.method(probe), probe)
            names = list(probe.unperturbed)
            found = torch.autograd.grad(loss, [probe.unperturbed[name] for name in names], allow_unused=True)
        _restore(self.generator, *now)
        return {
            name: torch.zeros_like(probe.unperturbed[name]) if gradient is None else gradient.detach() / world_size()
            for name, gradient in zip(names, found, strict=True)
        }


def _randomness(generator: torch.Generator) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return the states of the random generators of a forward pass: the step's, torch's and the accelerators'."""
    return generator.get_state(), torch.get_rng_state(), random_states()


def _restore(generator: torch.Generator, shared: Tensor, cpu: Tensor, accelerators: list[Tensor]) -> None:
    generator.set_state(shared)
    torch.set_rng_state(cpu)
    set_random_states(accelerators)


class ProbeState(StepState):
    """Step that only computes the gradient. Its own perturbations are zero."""

    def gradient(self, view: str) -> Tensor:
        """Return zeros, with shape (B, L, 0) for a view that is not embedded yet."""
        if view not in self.unperturbed:
            return torch.zeros(*self.batch[view].ids.shape, 0)
        return torch.zeros_like(self.unperturbed[view])

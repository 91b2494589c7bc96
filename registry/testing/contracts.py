"""Contracts of the components of each kind.

- Augmenters keep rows and compatible shapes, and are deterministic for a random state.
- Encoders have the declared widths, ignore padding and other rows, and use no dropout in evaluation. For encoders that
  are fitted before evaluation, only the evaluation is checked.
- Heads have the declared width, finite values, and gradients of input and weights.
- Losses return a finite scalar with a gradient for every view, or for the encoder's weights if they have no view, and
  ignore the order of rows.
- Queues respect their length, have no gradients, support checkpoints, and have equal contents on all devices.
- Evaluators return their declared metrics as finite numbers, deterministically, with digests of their data.
- Generators return the same rows of text in each call, and a score for each pair.
- Optimizers decrease a quadratic function, keep as many values as they declare, and continue from their state.
- Schedules return finite learning rates that are not negative, and depend only on their arguments.
"""

from __future__ import annotations

import copy
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any

import torch
from torch import Tensor

from registry import LOSSES
from registry.machinery.core import Entry
from registry.testing.materials import (
    NOTHING,
    SENTENCES,
    WRAPPED,
    Materials,
    OneStep,
    PlainEncode,
    WidthOnly,
    draw,
    require,
)
from registry.tokens import Embedded, Encoded, Sample, Tokens
from registry.types import (
    Augmenter,
    ColumnGenerator,
    Encoder,
    Evaluator,
    Generator,
    Head,
    Loss,
    Negatives,
    Optimizer,
    Queue,
    RowGenerator,
    Schedule,
)

PAIR = {"subset", "score", "sentence1", "sentence2"}
MANY = 50
"""Number of rows of a generator that are compared."""
RATE, STEPS, WARMUP = 1e-3, 10, 2
HOOKS = ("on_text", "on_pieces", "on_tokens", "on_embeddings")
MAX_LENGTH = 16
ROWS, TOKENS, DIM, LAYERS = 6, 5, 8, 3
ENTRIES, QUEUE_LENGTH = 4, 7
LABELS = torch.tensor([0.0, 5.0, 2.0, 2.0, 4.0, 1.0])
"""Labels of the rows, with a tie."""
ORDER = [3, 0, 5, 1, 4, 2]
"""Another order of the rows."""
STEP_ROWS = (3, 3, 2, 3, 1)
"""Number of rows in each step: not divisors of the length, and with short batches."""

Views = Mapping[str, Encoded]


def check_augmenter(entry: Entry[Augmenter], materials: Materials) -> None:
    """Check an augmenter, and that it changes nothing with the values in `materials.identity`."""
    acts = any(getattr(entry.cls, hook) is not getattr(Augmenter, hook) for hook in HOOKS)
    require(entry, acts, f"acts on a level: overrides one of {', '.join(HOOKS)}")
    first, second = (_perturbed(entry, materials) for _ in range(2))
    require(entry, first[0] == second[0], "changes text the same way for the same random state")
    require(entry, len(first[0]) == len(SENTENCES), "keeps one sample per row")
    for _, made in (first, second):
        tokens, vectors = made.tokens, made.vectors
        every = (tokens.ids, tokens.mask, tokens.types, tokens.positions, vectors[..., 0])
        same = {tuple(each.shape) for each in every} == {(len(SENTENCES), tokens.length)}
        require(entry, same, "keeps ids, mask, types, positions and embeddings at (B, L)")
        require(entry, bool(tokens.mask.any(dim=1).all()), "keeps a token of every sentence")
        single = vectors.dtype == torch.float32 and bool(torch.isfinite(vectors).all())
        require(entry, single, "returns finite embeddings")
    require(entry, _same_vectors(first[1], second[1]), "changes embeddings the same way for the same random state")
    values = materials.identity.get(f"{entry.kind}/{entry.name}")
    if values is not None:
        texts, embedded = _perturbed(entry, materials, values)
        vocabulary = materials.encoder.vocabulary
        tokens = vocabulary.pad(vocabulary.ids(SENTENCES, MAX_LENGTH))
        plain = Embedded(tokens, materials.encoder.embed(tokens))
        unchanged = texts == [Sample(text) for text in SENTENCES] and _same_vectors(embedded, plain)
        require(entry, unchanged, f"changes nothing with {dict(values)}")


def _perturbed(
    entry: Entry[Augmenter], materials: Materials, values: Mapping[str, Any] = NOTHING
) -> tuple[list[Sample], Embedded]:
    """Return the sentences and the token embeddings after a new augmenter."""
    encoder = materials.encoder
    augmenter: Augmenter = materials.build(entry, values)
    augmenter.bind(encoder)
    step = OneStep(torch.zeros(len(SENTENCES), encoder.dim))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        rng = Random(0)
        texts = augmenter.on_text([Sample(text) for text in SENTENCES], rng)
        pieces = augmenter.on_pieces(encoder.vocabulary.pieces(texts, MAX_LENGTH), rng)
        side = {}
        if augmenter.column is not None and augmenter.vocabulary is not None:  # it reads a second column
            other = augmenter.vocabulary.ids([f"{text} {SENTENCES[0]}" for text in reversed(SENTENCES)], MAX_LENGTH)
            side = {augmenter.column: augmenter.vocabulary.pad(other)}
        made = replace(encoder.vocabulary.assemble(pieces), side=side)
        tokens = augmenter.on_tokens(made, step)
        step.embedded["anchor"] = Embedded(tokens, encoder.embed(tokens).detach())
        return texts, augmenter.on_embeddings(step.embedded["anchor"], "anchor", step)


def _same_vectors(left: Embedded, right: Embedded) -> bool:
    """Return whether two results are equal, except at padding."""
    if not torch.equal(left.tokens.mask, right.tokens.mask):
        return False
    real = left.tokens.mask.bool()
    same_ids = torch.equal(left.tokens.ids[real], right.tokens.ids[real])
    return same_ids and torch.equal(left.vectors[real], right.vectors[real])


def check_encoder(entry: Entry[Encoder], materials: Materials) -> None:
    """Check shapes, padding, row order, evaluation and, if anything is trained, the gradient."""
    encoder: Encoder = materials.build(entry)
    tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(SENTENCES, MAX_LENGTH))
    if encoder.fits != "never":
        vocabulary, before = encoder.vocabulary, torch.get_rng_state()
        encode = PlainEncode(
            lambda sentences: encoder.encode_for_eval(vocabulary.pad(vocabulary.ids(sentences, MAX_LENGTH)))
        )
        encoder.fit(encode, SENTENCES)
        fitted = encode(SENTENCES)
        require(entry, bool(fitted.isfinite().all()), "returns finite embeddings after `fit`")
        encoder.fit(encode, SENTENCES)
        require(entry, torch.equal(fitted, encode(SENTENCES)), "is fitted deterministically")
        require(entry, torch.equal(before, torch.get_rng_state()), "does not change the random state of training")
    else:
        _check_encoded_shapes(entry, encoder, tokens)
    encoder.train()
    first, second = (encoder.encode_for_eval(tokens) for _ in range(2))
    require(entry, torch.equal(first, second), "has no dropout in `encode_for_eval`, also in training mode")
    require(entry, encoder.training, "is in training mode after `encode_for_eval`")
    require(entry, not first.requires_grad and len(first) == tokens.rows, "returns (B, …) without gradient")
    _check_rows(entry, encoder, tokens)


def _check_rows(entry: Entry[Encoder], encoder: Encoder, tokens: Tokens) -> None:
    encoder.eval()
    longer = tokens.padded_to(tokens.length + 5)
    turned = encoder.vocabulary.pad(encoder.vocabulary.ids(SENTENCES[::-1], MAX_LENGTH))
    ways: dict[str, Callable[[Tokens], Tensor]] = {"encode_for_eval": encoder.encode_for_eval}
    if encoder.fits == "never":
        ways["sentence"] = lambda given: encoder.encode(given, encoder.embed(given)).sentence
    for name, of in ways.items():
        plain = of(tokens)
        # A fitted encoder scales narrow directions up: differences are relative to its largest number.
        largest = 1.0 if encoder.fits == "never" else max(1.0, float(plain.detach().abs().max()))
        near = 1e-5 * largest if encoder.continuous else 0.02  # of length 1: some of fifty ranks have changed
        padded, reversed_ = of(longer), of(turned).flip(0)
        require(entry, torch.allclose(plain, padded, atol=near), f"returns the same `{name}` with more padding")
        require(entry, torch.allclose(plain, reversed_, atol=near), f"returns the same `{name}` in any order of rows")


def _check_encoded_shapes(entry: Entry[Encoder], encoder: Encoder, tokens: Tokens) -> None:
    vectors = encoder.embed(tokens)
    require(entry, vectors.shape == (*tokens.ids.shape, encoder.width), "embed returns (B, L, width)")
    encoded = encoder.encode(tokens, vectors)
    require(entry, encoded.sentence.shape == (tokens.rows, encoder.dim), "encode returns a sentence (B, dim)")
    require(entry, encoded.hidden.shape[:2] == tokens.ids.shape, "encode returns hidden (B, L, …)")
    require(entry, encoded.embeddings.shape[:2] == tokens.ids.shape, "encode returns embeddings (B, L, …)")
    trained = [parameter for parameter in encoder.parameters() if parameter.requires_grad]
    if trained:
        # Squared cosines with a fixed direction: a plain sum is constant behind a layer norm.
        value = (encoded.sentence @ torch.linspace(-1, 1, encoder.dim)).square().sum()
        gradients = torch.autograd.grad(value, trained, allow_unused=True) if value.requires_grad else ()
        require(entry, any(g is not None and bool(g.any()) for g in gradients), "has a gradient of its weights")


def check_head(entry: Entry[Head], materials: Materials) -> None:
    """Check a head of the encoder in `materials`, for one view and for two concatenated views."""
    head: Head = materials.build(entry)
    width = materials.encoder.dim
    out = head.fit(width, materials.encoder)
    for groups in ((), (("anchor", ROWS // 2), ("positive", ROWS // 2))):
        pooled = draw(1, ROWS, width).requires_grad_()
        made = head(pooled, groups)
        require(entry, made.shape == (ROWS, out), "returns (B, the width that `fit` returned)")
        require(entry, bool(torch.isfinite(made).all()), "returns finite values")
        trained = [p for p in head.parameters() if p.requires_grad]
        found = torch.autograd.grad((made @ torch.linspace(-1, 1, out)).square().sum(), [pooled, *trained])
        require(entry, all(bool(g.isfinite().all()) and bool(g.any()) for g in found[:1]), "has an input gradient")
        require(entry, all(bool(g.isfinite().all()) for g in found), "has finite gradients")
    head.eval()
    pooled = draw(2, ROWS, width)
    require(entry, torch.equal(head(pooled, ()), head(pooled, ())), "is deterministic in eval mode")
    dense = head.dense()
    if dense is not None:
        weight, bias, activation = dense
        plain = pooled @ weight.T + bias
        same = torch.allclose(plain.tanh() if activation == "Tanh" else plain, head(pooled, ()), atol=1e-6)
        require(entry, same, "computes the layer that `dense` returns")


def check_loss(entry: Entry[Loss], materials: Materials) -> None:
    """Check a loss with and without a queue and its optional inputs."""
    loss = materials.build(entry)
    if any(reference.kind == "loss" for reference in entry.references):
        entry = replace(entry, inputs=LOSSES[WRAPPED].inputs, references=())
    if not any(i.is_view for i in entry.inputs):
        _check_regularizer(entry, materials)
        return
    dim = materials.encoder.dim if entry.references else DIM
    required = [i.name for i in entry.inputs if i.is_view and not i.optional]
    optional = [i.name for i in entry.inputs if i.is_view and i.optional]
    for names in {tuple(required), (*required, *optional)}:
        views = {name: _view(seed, dim, loss.reads_attentions) for seed, name in enumerate(names)}
        for entries in (0, ENTRIES):
            _check_value(entry, loss, views, _negatives(entries, dim))
        collapsed = {name: replace(view, sentence=torch.ones(ROWS, dim)) for name, view in views.items()}
        _check_value(entry, loss, collapsed, _negatives(0, dim), reach=False)


def _check_regularizer(entry: Entry[Loss], materials: Materials) -> None:
    """Check a loss without views on weights that changed after it was built."""
    materials = replace(materials)  # with a separate encoder, because its weights are changed
    loss = materials.build(entry)
    trained = [parameter for parameter in materials.encoder.parameters() if parameter.requires_grad]
    with torch.no_grad():
        for parameter in trained:
            parameter.add_(draw(0, *parameter.shape))
    value = _call(entry, loss, {}, _negatives(0, materials.encoder.dim))
    require(entry, value.shape == () and bool(torch.isfinite(value)), "returns a finite scalar")
    found = [g for g in torch.autograd.grad(value, trained, allow_unused=True) if g is not None]
    require(entry, all(bool(g.isfinite().all()) for g in found), "has finite gradients")
    require(entry, any(bool(g.any()) for g in found), "has a gradient of the encoder's weights")


def _check_value(entry: Entry[Loss], loss: Loss, views: Views, negatives: Negatives, reach: bool = True) -> None:
    leaves = {
        name: _with(view, view.tokens, [t.clone().requires_grad_() for t in _tensors(view)])
        for name, view in views.items()
    }
    value = _call(entry, loss, leaves, negatives)
    what = f"with {', '.join(views)} and {len(negatives.vectors)} queue entries"
    require(entry, value.shape == () and bool(torch.isfinite(value)), f"returns a finite scalar {what}")
    for name, view in leaves.items():
        found = torch.autograd.grad(value, _tensors(view), allow_unused=True, retain_graph=True)
        gradients = [g for g in found if g is not None]
        require(entry, all(bool(torch.isfinite(g).all()) for g in gradients), f"has finite gradients {what}")
        reached = any(bool(g.any()) for g in gradients)
        if name in loss.steering:
            require(entry, not reached, f"has no gradient of '{name}', which is in `steering`, {what}")
        else:
            require(entry, reached or not reach, f"has a gradient of '{name}' {what}")
    loss.eval()
    permuted = {name: _rows(view, ORDER) for name, view in leaves.items()}
    here = _call(entry, loss, leaves, negatives)
    there = _call(entry, loss, permuted, negatives, ORDER)
    loss.train()
    require(entry, torch.allclose(here, there, rtol=1e-4, atol=1e-5), f"does not depend on the order of rows {what}")


def _call(
    entry: Entry[Loss], loss: Loss, views: Views, negatives: Negatives, order: Sequence[int] = range(ROWS)
) -> Tensor:
    given: dict[str, Any] = {}
    for wanted in entry.inputs:
        if wanted.kind == "negatives":
            given[wanted.name] = negatives
        elif wanted.kind == "labels":
            given[wanted.name] = LABELS[list(order)]
        elif wanted.name in views:
            view = views[wanted.name]
            part = {"encoded": view, "sentences": view.sentence, "pooled": view.before_heads}[wanted.kind]
            given[wanted.name] = (part,) if wanted.several else part
    if loss.reads_layers:
        given["layers"] = [dict(given)]
    value: Tensor = loss(**given)
    return value


def _view(seed: int, dim: int, attentions: Sequence[int]) -> Encoded:
    mask = torch.ones(ROWS, TOKENS, dtype=torch.int64)
    mask[1, 3:] = 0
    positions = torch.arange(TOKENS).expand(ROWS, TOKENS)
    ids = 5 + draw(seed, ROWS, TOKENS).abs().long()
    hidden = (positions == 2) & (mask == 1)  # as an augmenter masks tokens
    targets = torch.where(hidden, 6, -100)
    tokens = Tokens(ids, mask, torch.zeros_like(mask), positions, targets=targets)
    vectors = draw(seed + 100, ROWS, TOKENS, dim)
    hidden_states = vectors + draw(seed + 300, ROWS, TOKENS, dim)
    seen = mask[:, None, None].bool()
    weights = {
        block: draw(seed + 500 + block, ROWS, 2, TOKENS, TOKENS).masked_fill(~seen, -torch.inf).softmax(-1)
        for block in attentions
    }
    layers = draw(seed + 400, ROWS, LAYERS, dim)
    return Encoded(draw(seed + 200, ROWS, dim), vectors, hidden_states, tokens, layers=layers, attentions=weights)


def _tensors(view: Encoded) -> list[Tensor]:
    assert view.layers is not None
    return [view.sentence, view.embeddings, view.hidden, view.layers, *view.attentions.values()]


def _with(view: Encoded, tokens: Tokens, tensors: Sequence[Tensor]) -> Encoded:
    """Return the view with other tokens and tensors."""
    sentence, embeddings, hidden, layers, *weights = tensors
    attentions = dict(zip(view.attentions, weights, strict=True))
    return Encoded(sentence, embeddings, hidden, tokens, layers=layers, attentions=attentions)


def _rows(view: Encoded, order: list[int]) -> Encoded:
    t = view.tokens
    targets = None if t.targets is None else t.targets[order]
    tokens = replace(
        t, ids=t.ids[order], mask=t.mask[order], types=t.types[order], positions=t.positions[order], targets=targets
    )
    return _with(view, tokens, [t[order] for t in _tensors(view)])


def _negatives(entries: int, dim: int) -> Negatives:
    weights = torch.linspace(0.5, 1.0, entries)
    weights[:1] = 0.0  # a disabled entry
    return Negatives(torch.nn.functional.normalize(draw(7, entries, dim), dim=-1), weights.log())


def check_queue(entry: Entry[Queue], materials: Materials) -> None:
    """Check a queue while it fills, when it is full, and with a checkpoint."""
    short = {"length": QUEUE_LENGTH} if "length" in entry.parameters.model_fields else {}
    queue, twin = (_bound(entry, materials, seed, short) for seed in (0, 1))
    _check_served(entry, queue.negatives(), short)
    for step, size in enumerate(STEP_ROWS):
        for each in (queue, twin):
            each.observe(_queue_step(step, size))
        before = queue.negatives()
        copied = before.vectors.clone()
        for each in (queue, twin):
            each.after_step(_queue_step(step, size))
        require(entry, torch.equal(before.vectors, copied), "does not change entries that it returned")
        _check_served(entry, queue.negatives(), short)
        require(entry, len(queue.negatives().vectors) > 0, "returns its entries before it is full")
    require(entry, _same_entries(queue, twin), "does not depend on the global random state")
    fresh = _bound(entry, materials, 2, short)
    fresh.load_state_dict(copy.deepcopy(queue.state_dict()))
    # A queue without `length` keeps no entries between steps.
    require(entry, queue.length is None or _same_entries(queue, fresh), "has its entries in state_dict")
    for each in (queue, fresh):
        each.observe(_queue_step(50, 2))
        each.after_step(_queue_step(50, 2))
    require(entry, _same_entries(queue, fresh), "continues from a checkpoint without a difference")


def _bound(entry: Entry[Queue], materials: Materials, seed: int, values: dict[str, Any]) -> Queue:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        queue: Queue = materials.build(entry, values)
        queue.bind(WidthOnly(DIM))
    return queue


def _check_served(entry: Entry[Queue], held: Negatives, values: dict[str, Any]) -> None:
    count = len(held.vectors)
    require(entry, held.vectors.shape == (count, DIM), "returns vectors (K, D) with the width D of the encoder")
    require(entry, held.log_weights.shape == (count,), "returns one log-weight per entry")
    require(entry, count <= values.get("length", count), "has at most `length` entries")
    detached = not held.vectors.requires_grad and not held.log_weights.requires_grad
    require(entry, detached, "returns entries without gradient")
    weights = held.log_weights
    valid = bool(torch.isfinite(held.vectors).all()) and not bool((weights.isnan() | (weights == torch.inf)).any())
    require(entry, valid, "returns finite vectors, and log-weights that are finite or −inf")


def _queue_step(index: int, rows: int) -> OneStep:
    return OneStep(draw(index, rows, DIM).requires_grad_(), index)


def _same_entries(left: Queue, right: Queue) -> bool:
    a, b = left.negatives(), right.negatives()
    return torch.equal(a.vectors, b.vectors) and torch.equal(a.log_weights, b.log_weights)


def check_evaluator(entry: Entry[Evaluator], materials: Materials) -> None:
    """Check the scores of an evaluator for a bag-of-words encoder."""
    evaluator: Evaluator = materials.build(entry)
    require(entry, evaluator.metric in evaluator.metrics, "shows one of its metrics")
    require(entry, set(evaluator.shown_metrics()) <= set(evaluator.metrics), "shows only its metrics")
    known = set(entry.parameters.model_fields)
    for name in {task for suite in entry.cls.suites.values() for task in suite} - {entry.name}:
        given = entry.cls.parameters_for(name)
        require(entry, given is not None and set(given) <= known, f"has parameters for its task '{name}'")
    before = torch.get_rng_state()
    first, second = (evaluator(PlainEncode(_sum_of_words)) for _ in range(2))
    require(entry, torch.equal(before, torch.get_rng_state()), "does not change the random state of training")
    require(
        entry, set(first) == set(evaluator.returned_metrics()), f"returns its declared metrics, not {sorted(first)}"
    )
    require(entry, all(type(v) is float and math.isfinite(v) for v in first.values()), "returns finite floats")
    require(entry, first == second, "returns the same for the same embeddings")
    series = evaluator.series()
    require(entry, all(math.isfinite(v) for of in series.values() for v in of), "returns finite numbers for figures")
    digests = evaluator.fingerprints()
    require(entry, all("/" in name and digest for name, digest in digests.items()), "names data as dataset/split")
    require(entry, digests == evaluator.fingerprints(), "returns the same fingerprints in each call")


def _sum_of_words(sentences: Sequence[str]) -> Tensor:
    """Return the sums of fixed random vectors of the words."""
    cache: dict[str, Tensor] = {}
    rows = []
    for sentence in sentences:
        for word in (words := sentence.lower().split() or [""]):
            cache.setdefault(word, draw(zlib.crc32(word.encode()), 16))
        rows.append(torch.stack([cache[word] for word in words]).sum(dim=0))
    return torch.stack(rows)


def check_generator(entry: Entry[Generator], materials: Materials) -> None:
    """Check the first rows of each split, or the cells of a column."""
    if issubclass(entry.cls, ColumnGenerator):
        generator = materials.build(entry)
        assert isinstance(generator, ColumnGenerator)
        cells = ["the cat sleeps", "a man sees the red house", "two dogs run", "the cat sleeps"]
        made = generator.make(cells)
        alike = len(made) == len(cells) and made[0] == made[3]
        require(entry, alike, "makes one cell for each cell, equal for equal cells")
        require(entry, all(isinstance(c, str) and "\n" not in c for c in made), "makes one-line cells")
        require(entry, generator.make(cells[::-1]) == made[::-1], "makes the same cells in any order")
        again = materials.build(entry).identity()
        require(entry, generator.identity() == again, "has the same identity when built again")
        return
    require(entry, issubclass(entry.cls, RowGenerator), "extends RowGenerator or ColumnGenerator")
    for split in ("train", "dev", "test"):
        built: list[RowGenerator] = [materials.build(entry) for _ in range(2)]
        first, second = (list(islice(each.rows(split), MANY)) for each in built)
        require(entry, bool(first) and first == second, f"returns the same rows of '{split}' in each call")
        columns = {frozenset(row) for row in first}
        require(entry, len(columns) == 1, f"returns the same columns for all rows of '{split}'")
        require(entry, "text" in first[0] or set(first[0]) >= PAIR, f"returns texts or scored pairs in '{split}'")
        cells = [cell for row in first for cell in row.values()]
        require(entry, all(isinstance(c, str) and "\n" not in c for c in cells), f"returns one-line cells in '{split}'")


def check_optimizer(entry: Entry[Optimizer], materials: Materials) -> None:
    """Check an optimizer on the squared distance from 0."""
    component: Optimizer = materials.build(entry)
    weight = torch.nn.Parameter(draw(1, 4, 3))
    made = component.build([{"params": [weight], "weight_decay": 0.0}], RATE)
    require(entry, [group["lr"] for group in made.param_groups] == [RATE], "has the given learning rate")
    values = [_step(made, weight) for _ in range(3)]
    require(entry, values[-1] < values[0], "decreases a quadratic function")
    kept = [value for value in made.state[weight].values() if isinstance(value, Tensor) and value.shape == weight.shape]
    require(entry, len(kept) == component.copies, f"keeps `copies` = {component.copies} values for each weight")
    other = torch.nn.Parameter(weight.detach().clone())
    resumed = component.build([{"params": [other], "weight_decay": 0.0}], RATE)
    resumed.load_state_dict(copy.deepcopy(made.state_dict()))
    _step(made, weight)
    _step(resumed, other)
    require(entry, torch.equal(weight, other), "continues from its state")


def _step(optimizer: torch.optim.Optimizer, weight: Tensor) -> float:
    optimizer.zero_grad()
    loss = weight.square().sum()
    torch.autograd.backward(loss)
    optimizer.step()
    return float(loss.detach())


def check_schedule(entry: Entry[Schedule], materials: Materials) -> None:
    """Check the learning rates of a schedule after its warm-up."""
    component: Schedule = materials.build(entry)
    rates = [component.rate(RATE, step, STEPS, WARMUP) for step in range(WARMUP, STEPS)]
    require(entry, all(math.isfinite(rate) and rate >= 0 for rate in rates), "returns finite rates from 0")
    again = [component.rate(RATE, step, STEPS, WARMUP) for step in range(WARMUP, STEPS)]
    require(entry, rates == again, "depends only on its arguments")


CHECKS: dict[str, Callable[[Entry[Any], Materials], None]] = {
    "augmenters": check_augmenter,
    "encoders": check_encoder,
    "evaluators": check_evaluator,
    "generators": check_generator,
    "heads": check_head,
    "losses": check_loss,
    "optimizers": check_optimizer,
    "queues": check_queue,
    "schedules": check_schedule,
}
"""Kind → check of a component, in addition to its declaration."""

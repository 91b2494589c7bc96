"""A component whose numbers changed has another `version`, because its runs are another experiment.

`versions.json` has the numbers of each component on the materials of the contracts: values, and the norm of a gradient
where there is one. If they change on purpose, raise `version` of the class and write the file again:
`python -m pytest tests/registry/test_versions.py --write-versions`.
"""

import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from registry import LOSSES
from registry.machinery.core import Entry
from registry.testing import Materials
from registry.testing.contracts import (
    ENTRIES as QUEUED,
)
from registry.testing.contracts import (
    ROWS,
    STEPS,
    WARMUP,
    _bound,
    _call,
    _negatives,
    _perturbed,
    _queue_step,
    _sum_of_words,
    _tensors,
    _view,
    _with,
)
from registry.testing.materials import WRAPPED, PlainEncode, draw
from registry.types import ColumnGenerator
from tests.registry.test_contracts import ENTRIES, NAMES, PACKAGES, few_labeled, materials  # noqa: F401
from tests.support.versions import needs

FILE = Path(__file__).with_name("versions.json")
FITTED = {"encoders/flow": 0.3, "losses/neighbor_ranks": 0.02}
"""Components that are fitted in many steps, which amplify the rounding of a processor → relative tolerance."""
DROPPED = {
    "heads/predictor", "heads/projection", "heads/pseudo_tokens", "losses/reconstruction",
    "losses/replaced_token_detection", "losses/side_language_model",
}  # fmt: skip
"""Components whose numbers are those of a random dropout."""
SENTENCES = ["a red dog runs", "the small cat sleeps", "two dogs see a cat"]


def mixed(tensor: Tensor) -> float:
    """Return one number to which every element contributes differently."""
    flat = tensor.detach().double().flatten()
    return float(flat @ torch.cos(torch.arange(len(flat), dtype=torch.float64)))


def length(value: Tensor, leaves: list[Tensor]) -> float:
    """Return the norm of the gradient."""
    found = torch.autograd.grad(value, leaves, allow_unused=True) if value.requires_grad else ()
    return float(sum((g.double().square().sum() for g in found if g is not None), start=torch.zeros(())).sqrt())


def code(texts: Any) -> float:
    """Return a number for texts."""
    return float(zlib.crc32(repr(texts).encode()))


def numbers(entry: Entry[Any], given: Materials) -> Iterator[float]:  # noqa: C901 - one case for each kind
    """Yield the numbers of a component."""
    torch.manual_seed(0)
    if entry.kind == "augmenters":
        texts, embedded = _perturbed(entry, given)
        yield from (code(texts), mixed(embedded.tokens.ids), mixed(embedded.vectors))
        return
    if entry.kind == "queues":
        queue = _bound(entry, given, 0, {"length": 7} if "length" in entry.parameters.model_fields else {})
        for step, size in enumerate((3, 3, 2)):
            queue.observe(_queue_step(step, size))
            queue.after_step(_queue_step(step, size))
        held = queue.negatives()
        yield from (mixed(held.vectors), mixed(held.log_weights.nan_to_num(neginf=-1e3)))
        return
    given = replace(given)  # with an encoder of its own, whose weights may change
    part = given.build(entry)
    match entry.kind:
        case "losses":
            if any(reference.kind == "loss" for reference in entry.references):
                entry = replace(entry, inputs=LOSSES[WRAPPED].inputs, references=())
            dim = given.encoder.dim if entry.references else 8
            views = {}
            for seed, wanted in enumerate(one for one in entry.inputs if one.is_view):
                view = _view(seed, dim, getattr(part, "reads_attentions", ()))
                views[wanted.name] = _with(view, view.tokens, [t.clone().requires_grad_() for t in _tensors(view)])
            leaves = [tensor for view in views.values() for tensor in _tensors(view)]
            if not views:  # a regularizer, on weights that changed
                leaves = [weight for weight in given.encoder.parameters() if weight.requires_grad]
                with torch.no_grad():
                    for weight in leaves:
                        weight.add_(draw(0, *weight.shape))
            value = _call(entry, part, views, _negatives(QUEUED, dim))
            yield from (float(value), length(value, leaves))
        case "encoders":
            tokens = part.vocabulary.pad(part.vocabulary.ids(SENTENCES, 16))
            if part.fits != "never":
                part.fit(PlainEncode(lambda texts: part.encode_for_eval(
                    part.vocabulary.pad(part.vocabulary.ids(texts, 16)))), SENTENCES)  # fmt: skip
            yield mixed(part.encode_for_eval(tokens))
        case "heads":
            part.fit(given.encoder.dim, given.encoder)
            pooled = draw(1, ROWS, given.encoder.dim).requires_grad_()
            value = part(pooled, ()).square() @ torch.linspace(-1, 1, part(pooled, ()).shape[1])
            yield from (mixed(value), length(value.sum(), [pooled]))
        case "evaluators":
            yield from (number for _, number in sorted(part(PlainEncode(_sum_of_words)).items()))
        case "generators":
            cells = part.make(SENTENCES) if isinstance(part, ColumnGenerator) else list(islice(part.rows("train"), 20))
            yield code(cells)
        case "optimizers":
            weight = nn.Parameter(torch.tensor([1.0, -2.0]))
            built = part.build([{"params": [weight], "weight_decay": 0.1, "factor": 1.0}], 0.1)
            for step in range(3):
                weight.grad = torch.tensor([0.3, -0.4]) * (step + 1)
                built.step()
            yield from weight.tolist()
        case "schedules":
            yield from (part.rate(1.0, step, STEPS, WARMUP) for step in range(WARMUP, STEPS))


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_numbers_change_with_the_version(entry, materials, monkeypatch, request):  # noqa: F811
    name = f"{entry.kind}/{entry.name}"
    if name in DROPPED:
        needs("the random numbers of dropout")
    if name in PACKAGES:
        PACKAGES[name](monkeypatch)
    found = list(numbers(entry, materials))
    stored = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if request.config.getoption("--write-versions"):
        stored[name] = [entry.cls.version, *found]
        FILE.write_text(json.dumps(dict(sorted(stored.items())), indent=0) + "\n", encoding="utf-8")
    version, *values = stored[name]
    assert version == entry.cls.version, f"write the numbers of version {entry.cls.version} of {name}"
    near = FITTED.get(name, 1e-4)
    assert found == pytest.approx(values, rel=near, abs=1e-5), f"raise `version` of {name}: its numbers changed"
    assert found, f"{name} has no number"

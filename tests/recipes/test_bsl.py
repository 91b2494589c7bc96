"""BSL as its recipe puts it together: the authors' values, the first step's loss, what is trained and what follows."""

from __future__ import annotations

import math

import pytest
import torch

from cse_cli.data.batches import Batches
from cse_cli.data.sources import open_text
from cse_cli.recipe.load import load
from cse_cli.training.build import Experiment, resolve
from cse_cli.training.step import StepState
from registry.resources import catalog
from tests.registry.heads.test_batch_norm_mlp import literal
from tests.registry.losses.literal import cosine
from tests.support.shrunken import Small


def experiment(parts: Small, *more: str) -> Experiment:
    changed, dropped = parts.options(load("bsl_en").recipe)
    return resolve(load("bsl_en", [*changed, *more], dropped).recipe, 5)


def step_of(made: Experiment) -> StepState:
    made.method.train()
    batches = Batches(open_text(made.recipe.data, made.columns), made.plans, 4, 64, 5)
    return StepState(made.method, batches.batch(0), 0, 3, torch.Generator().manual_seed(0))


def test_the_authors_settings():
    """`unsupervised_tuning.py` and `BYOLoss.py`, copied by hand; the number of sentences is that of our NLI."""
    recipe = load("bsl_en").recipe
    train, online = recipe.train, recipe.encoders["online"]
    assert (train.batch_size, train.learning_rate, train.epochs, recipe.data.max_length) == (64, 1e-4, 1, 64)
    assert recipe.evaluate.max_length == 64
    assert (train.schedule, train.weight_decay, train.clip_norm, train.epsilon) == ("linear", 0.0, 1.0, 1e-6)
    steps = catalog.entry("nli").splits["train"].rows // 64
    assert (train.warmup_steps, train.evaluate_every) == (math.ceil(steps * 0.1), int(steps * 0.1))
    assert online.heads["predictor"].params == {"blocks": 3, "expansion": 10, "together": [], "sync": True}
    target = recipe.encoders["target"].params
    assert (target["decay"], target["schedule"], target["share"]) == (0.999, "constant", [])


def test_the_first_step_by_hand(parts):
    made = experiment(parts, "encoders.online.dropout=0.0")
    made.method.double()
    step = step_of(made)
    assert not torch.equal(step.batch["anchor"].ids, step.batch["positive"].ids)
    vectors = {}
    for view in ("anchor", "positive"):
        tokens = step.batch[view]
        states = made.scored.backbone(input_ids=tokens.ids, attention_mask=tokens.mask).last_hidden_state
        vectors[view] = [row[real.bool()].mean(0).tolist() for row, real in zip(states, tokens.mask, strict=True)]
    predictor = made.scored.heads["predictor"]
    a, b = (literal(predictor, vectors[view]).tolist() for view in ("anchor", "positive"))
    total = 0.0
    for i in range(4):
        total += 2 - 2 * cosine(a[i], vectors["positive"][i]) + 2 - 2 * cosine(b[i], vectors["anchor"][i])
    assert made.method.objective(made.method(step)).item() == pytest.approx(total / 4, abs=1e-9)


def test_the_copy_follows_and_is_not_trained(parts):
    made = experiment(parts)
    step = step_of(made)
    made.method.objective(made.method(step)).backward()
    online, target = made.method.encoder("online"), made.method.encoder("target")
    assert all(p.grad is not None for n, p in online.named_parameters() if "pooler" not in n)
    assert not any(p.requires_grad for p in target.parameters())
    assert list(target.target.heads) == []
    name = "backbone.encoder.layer.0.output.dense.weight"
    before = dict(target.target.named_parameters())[name].clone()
    with torch.no_grad():
        dict(online.named_parameters())[name].add_(1.0)
    target.after_step(step)
    torch.testing.assert_close(dict(target.target.named_parameters())[name], before + 0.001, atol=1e-7, rtol=0)

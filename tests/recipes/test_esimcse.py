"""ESimCSE as its recipes put it together: which values, what a step sees, what the queue holds."""

from __future__ import annotations

import pytest
import torch

from cse_cli.data.batches import Batches
from cse_cli.data.sources import open_text
from cse_cli.recipe.load import load
from cse_cli.training.build import Experiment, resolve
from cse_cli.training.step import StepState
from tests.support.shrunken import Small


def experiment(parts: Small, *more: str) -> Experiment:
    changed, dropped = parts.options(load("esimcse_en").recipe)
    return resolve(load("esimcse_en", [*changed, *more], dropped).recipe, 5)


def batches_of(made: Experiment) -> Batches:
    return Batches(open_text(made.recipe.data, made.columns), made.plans, 4, 64, 5)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("esimcse_en", (3e-5, 0.32, 160, None)),
        ("esimcse_en_large", (1e-5, 0.32, 160, None)),
        ("esimcse_en_roberta", (1e-5, 0.30, 160, None)),
        ("esimcse_en_roberta_large", (1e-5, 0.28, 128, 0.15)),
    ],
)
def test_the_authors_settings(name, values):
    recipe = load(name).recipe
    assert recipe.queue is not None
    assert values == (
        recipe.train.learning_rate,
        recipe.views["positive"].augment[0].params["rate"],
        recipe.queue.params["length"],
        recipe.encoders["online"].params.get("dropout"),
    )
    assert (recipe.train.batch_size, recipe.train.evaluate_every, recipe.data.max_length) == (64, 125, 32)
    assert recipe.losses["info_nce"].params["temperature"] == 0.05
    assert recipe.encoders["momentum"].params["decay"] == 0.995
    assert recipe.views["anchor"].augment == recipe.views["queued"].augment == ()


def test_positive_is_longer_and_queued_view_unchanged(parts):
    batch = batches_of(experiment(parts, "views.positive.augment.0.rate=1.0")).batch(0)
    assert torch.equal(batch["anchor"].ids, batch["queued"].ids)
    assert batch["positive"].mask.sum() > batch["anchor"].mask.sum()


def test_queue_holds_momentum_embeddings_without_dropout(parts):
    made = experiment(parts)
    made.method.train()
    batches = batches_of(made)
    slow = made.method.encoder("momentum")
    expected = []
    for index in range(2):
        step = StepState(made.method, batches.batch(index), index, 3, torch.Generator().manual_seed(0))
        made.method.objective(made.method(step)).backward()
        tokens = step.batch["queued"]
        expected.append(
            torch.nn.functional.normalize(slow.encode(tokens, slow.embed(tokens)).sentence.detach(), dim=-1)
        )
        assert not step.views["queued"].sentence.requires_grad
        assert torch.allclose(step.sentences("queued"), slow.encode(tokens, slow.embed(tokens)).sentence, atol=1e-6)
        for _, component in made.method.components():
            component.after_step(step)
    held = made.method.queue.negatives()
    assert torch.allclose(held.vectors, torch.cat(expected)[-6:], atol=1e-6)  # 8 rows, room for 6: the newest
    assert not held.log_weights.any()


def test_copy_starts_as_pretrained_encoder_with_same_head(parts):
    """The authors' copy starts from random weights; ES4."""
    made = experiment(parts, "encoders.online.dropout=0.0")
    tokens = batches_of(made).batch(0)["queued"]
    online, slow = made.method.encoder("online"), made.method.encoder("momentum")
    ours, theirs = (e.encode(tokens, e.embed(tokens)).sentence for e in (online, slow))
    assert torch.allclose(ours, theirs, atol=1e-6)
    with torch.no_grad():
        for parameter in online.heads["mlp"].parameters():
            parameter.mul_(2)
    ours, theirs = (e.encode(tokens, e.embed(tokens)).sentence for e in (online, slow))
    assert torch.allclose(ours, theirs, atol=1e-6)

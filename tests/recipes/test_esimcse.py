"""ESimCSE as its recipes put it together: which values, what a step sees, what the queue holds."""

from __future__ import annotations

import pytest
import torch

from tests.recipes.first_step import experiment, step_of


@pytest.mark.slow
def test_positive_is_longer_and_queued_view_unchanged(parts):
    batch = step_of(experiment(parts, "esimcse_en", "views.positive.augment.0.rate=1.0")).batch
    assert torch.equal(batch["anchor"].ids, batch["queued"].ids)
    assert batch["positive"].mask.sum() > batch["anchor"].mask.sum()


@pytest.mark.slow
def test_queue_holds_momentum_embeddings_without_dropout(parts):
    made = experiment(parts, "esimcse_en", dropout=None)
    slow = made.method.encoder("momentum")
    expected = []
    for index in range(2):
        step = step_of(made, index)
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


@pytest.mark.slow
def test_the_switch_for_a_random_copy_changes_the_second_step_only(parts):
    """ES4: the first step has no queue. The second has the random copy's embeddings as negatives."""
    losses = {}
    for switch in ("false", "true"):
        torch.manual_seed(0)  # the head
        made = experiment(parts, "esimcse_en", f"encoders.momentum.random_weights={switch}")
        losses[switch] = []
        for index in range(2):
            step = step_of(made, index)
            losses[switch].append(made.method.objective(made.method(step)).item())
            queued = step.sentences("queued")
            for _, component in made.method.components():
                component.after_step(step)
        held = torch.nn.functional.normalize(queued.detach(), dim=-1)
        assert torch.allclose(made.method.queue.negatives().vectors[-4:], held, atol=1e-6)
    assert losses["true"][0] == losses["false"][0]
    assert abs(losses["true"][1] - losses["false"][1]) > 1e-3

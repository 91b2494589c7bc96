"""PT-BERT as its recipes put it together: which values, and the loss of two steps."""

from __future__ import annotations

import math

import pytest
import torch

from tests.recipes.first_step import experiment, layers_of, step_of
from tests.registry.losses.literal import cosine

WITHOUT_DROPOUT = "encoders.online.heads.pseudo_tokens.dropout=0.0"


@pytest.mark.parametrize("name", ["pt_bert_en", "mini/pt_bert_en"])
def test_two_steps_by_hand(parts, name):
    """Without dropout the attention is one linear map, twice (PT1, PT7). The copy that has not moved makes the same."""
    made = experiment(parts, name, WITHOUT_DROPOUT)
    heads, held = made.scored.heads, []
    for index in range(2):
        step = step_of(made, index)
        loss = made.method(step)["info_nce"]
        cls, means = layers_of(parts, step.batch["anchor"])
        with torch.no_grad():
            r = cls if name == "pt_bert_en" else means[:, -1]
            value = heads["pseudo_tokens"].attention.value
            for layer in (value, value, heads["mlp"].linear):
                r = r @ layer.weight.T + layer.bias
            z = r.tanh().tolist()
        total = 0.0
        for i, row in enumerate(z):
            below = sum(math.exp(cosine(row, column) / 0.05) for column in [*z, *held])
            total -= math.log(math.exp(cosine(row, z[i]) / 0.05) / below) / 4
        assert loss.item() == pytest.approx(total, abs=1e-6)
        held = z
        for _, component in made.method.components():
            component.after_step(step)


def test_the_momentum_side_is_a_copy_of_all_parts(parts):
    made = experiment(parts, "pt_bert_en", WITHOUT_DROPOUT)
    online, copied = (made.method.encoder(name) for name in ("online", "momentum"))
    assert not {id(p) for p in online.parameters()} & {id(p) for p in copied.parameters()}
    step = step_of(made)
    made.method.objective(made.method(step)).backward()
    assert not step.views["positive"].sentence.requires_grad
    assert online.heads["pseudo_tokens"].attention.value.weight.grad.any()

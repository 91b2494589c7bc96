"""PT-BERT as its recipes put it together: which values, and the loss of two steps."""

from __future__ import annotations

import pytest
import torch

from tests.recipes.first_step import experiment, info_nce, layers_of, step_of

WITHOUT_DROPOUT = "encoders.online.heads.pseudo_tokens.dropout=0.0"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pt_bert_en", pytest.param("mini/pt_bert_en", marks=pytest.mark.exhaustive)])
def test_two_steps_by_hand(parts, name):
    """Without dropout the attention is one linear map, twice (PT1, PT7). The copy that has not moved makes the same."""
    made = experiment(parts, name, WITHOUT_DROPOUT)
    heads, held = made.scored.heads, None
    for index in range(2):
        step = step_of(made, index)
        loss = made.method(step)["info_nce"]
        cls, means = layers_of(parts, step.batch["anchor"])
        with torch.no_grad():
            r = cls if name == "pt_bert_en" else means[:, -1]
            value = heads["pseudo_tokens"].attention.value
            for layer in (value, value, heads["mlp"].linear):
                r = r @ layer.weight.T + layer.bias
            z = r.tanh()
        assert loss.item() == pytest.approx(info_nce(z, z, 0.05, held=held), abs=1e-6)
        held = z
        for _, component in made.method.components():
            component.after_step(step)

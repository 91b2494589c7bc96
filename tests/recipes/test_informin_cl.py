"""InforMin-CL as its recipes put it together: which values, and the losses of a first step."""

from __future__ import annotations

import pytest
import torch

from cse_cli.recipe.load import load
from cse_cli.training.build import resolve
from tests.recipes.first_step import experiment, info_nce, step_of
from tests.registry.losses.literal import unit

VIEWS = ("anchor", "positive")
ALL_MASKS = ("losses.masked_language_modeling", "views.anchor.augment", "views.positive.augment")
"""What `--unset` removes for the paper's two losses alone."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["informin_cl_en", pytest.param("mini/informin_cl_en", marks=pytest.mark.exhaustive)])
def test_the_first_step_by_hand(parts, name):
    """Value of the authors' `cl_forward`, on the tokens that both views mask."""
    made = experiment(parts, name, *(f"views.{view}.augment.0.rate=0.4" for view in VIEWS))
    torch.manual_seed(9)
    step = step_of(made)
    losses = {label: value.item() for label, value in made.method(step).items()}
    loss = made.method.losses["masked_language_modeling"]
    words = made.scored.backbone.embeddings.word_embeddings.weight if loss.decoder is None else loss.decoder
    rows, costs = {}, []
    for view in VIEWS:
        tokens = step.embedded[view].tokens
        assert not torch.equal(tokens.ids, step.batch[view].ids)
        states = made.scored.backbone(tokens.ids, attention_mask=tokens.mask).last_hidden_state.detach()
        kept = zip(states, tokens.mask.sum(1).tolist(), strict=True)
        rows[view] = [s[0] if name == "informin_cl_en" else s[:length].mean(0) for s, length in kept]
        for row, place in (tokens.targets >= 0).nonzero().tolist():
            costs.append(-loss.head(states[row, place], words).log_softmax(0)[tokens.targets[row, place]].item())
    a, b = ([row.tolist() for row in rows[view]] for view in VIEWS)
    contrast = info_nce(*(torch.stack(rows[view]) for view in VIEWS), 0.05)
    apart = sum((x - y) ** 2 for r, s in zip(a, b, strict=True) for x, y in zip(unit(r), unit(s), strict=True))
    assert losses["info_nce"] == pytest.approx(contrast, rel=1e-6)
    assert losses["alignment"] == pytest.approx(apart / len(a) / len(a[0]), rel=1e-6)
    assert losses["masked_language_modeling"] == pytest.approx(sum(costs) / len(costs), rel=1e-6)


@pytest.mark.parametrize("name", ["informin_cl_en", pytest.param("mini/informin_cl_en", marks=pytest.mark.exhaustive)])
def test_both_terms_of_the_paper_are_the_one_with_weight_two(parts, name):
    changed, dropped = parts.options(load(name).recipe)
    given = [*changed, "encoders.online.dropout=0.3"]
    made = resolve(load(name, given, [*dropped, *ALL_MASKS]).recipe, 5)
    made.method.double().train()
    step = step_of(made)
    losses = made.method(step)
    assert list(losses) == ["info_nce", "alignment"]
    a, b = (torch.nn.functional.normalize(step.views[view].sentence, dim=1) for view in ("anchor", "positive"))
    squares = [(x - y) ** 2 for r, s in zip(a.tolist(), b.tolist(), strict=True) for x, y in zip(r, s, strict=True)]
    both = 2 * sum(squares) / len(squares)
    assert (made.method.objective(losses) - losses["info_nce"]).item() == pytest.approx(both, abs=1e-9)
    assert both > 1e-4

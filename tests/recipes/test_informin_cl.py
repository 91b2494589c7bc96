"""InforMin-CL as its recipes put it together: which values, and the losses of a first step."""

from __future__ import annotations

import math

import pytest
import torch

from cse_cli.recipe.load import load
from cse_cli.training.build import resolve
from tests.recipes.first_step import experiment, step_of
from tests.registry.losses.literal import cosine

VIEWS = ("anchor", "positive")
ALL_MASKS = ("losses.masked_language_modeling", "views.anchor.augment", "views.positive.augment")
"""What `--unset` removes for the paper's two losses alone."""


def unit(row):
    length = math.sqrt(sum(x * x for x in row))
    return [x / length for x in row]


@pytest.mark.parametrize(
    ("name", "rate"),
    [("informin_cl_en", 5e-5), ("informin_cl_en_roberta", 5e-5), ("informin_cl_en_roberta_large", 3e-5)],
)
def test_the_authors_script(name, rate):
    recipe = load(name).recipe
    train, loss = recipe.train, recipe.losses["alignment"]
    assert (train.batch_size, train.learning_rate, train.epochs, train.evaluate_every) == (128, rate, 1, 125)
    assert (loss.weight, loss.params) == (2.0, {"power": 2.0, "over": "dimensions"})
    assert recipe.losses["info_nce"].params["temperature"] == 0.05
    assert not recipe.encoders["online"].heads


def test_masks_and_their_loss_are_the_defaults_of_the_authors_train_py():
    """IM6: `do_mlm` is on, with weight 0.1 and an untied decoder. IM7: both copies of the batch are masked in place."""
    recipe = load("informin_cl_en").recipe
    hidden = recipe.losses["masked_language_modeling"]
    assert (hidden.weight, hidden.params["initial"], hidden.params["tied"]) == (0.1, "checkpoint", False)
    assert hidden.views == {"masked": "anchor", "masked_again": ("positive",)}
    for view in ("anchor", "positive"):
        (part,) = recipe.views[view].augment
        assert (part.name, part.params["rate"], part.params["mask_share"], part.params["random_share"]) == (
            "mask_tokens", 0.15, 0.8, 0.1,
        )  # fmt: skip
    without = load("informin_cl_en", (), [*ALL_MASKS]).recipe
    assert list(without.losses) == ["info_nce", "alignment"]


@pytest.mark.parametrize("name", ["informin_cl_en", "mini/informin_cl_en"])
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
    contrast = sum(
        math.log(sum(math.exp(cosine(row, other) / 0.05) for other in b)) - cosine(row, b[i]) / 0.05
        for i, row in enumerate(a)
    ) / len(a)
    apart = sum((x - y) ** 2 for r, s in zip(a, b, strict=True) for x, y in zip(unit(r), unit(s), strict=True))
    assert losses["info_nce"] == pytest.approx(contrast, rel=1e-6)
    assert losses["alignment"] == pytest.approx(apart / len(a) / len(a[0]), rel=1e-6)
    assert losses["masked_language_modeling"] == pytest.approx(sum(costs) / len(costs), rel=1e-6)


@pytest.mark.parametrize("name", ["informin_cl_en", "mini/informin_cl_en"])
def test_both_terms_of_the_paper_are_the_one_with_weight_two(parts, name):
    changed, dropped = parts.options(load(name).recipe)
    given = [*changed, "encoders.online.dropout=0.3"]
    made = resolve(load(name, given, [*dropped, *ALL_MASKS]).recipe, 5)
    made.method.double().train()
    step = step_of(made)
    losses = made.method(step)
    a, b = (torch.nn.functional.normalize(step.views[view].sentence, dim=1) for view in ("anchor", "positive"))
    squares = [(x - y) ** 2 for r, s in zip(a.tolist(), b.tolist(), strict=True) for x, y in zip(r, s, strict=True)]
    both = 2 * sum(squares) / len(squares)
    assert (made.method.objective(losses) - losses["info_nce"]).item() == pytest.approx(both, abs=1e-9)
    assert both > 1e-4

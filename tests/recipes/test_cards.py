"""CARDS as its recipes put it together: the authors' values, and the loss of a first step."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModel

from cse_cli.recipe.load import load
from registry.resources import catalog
from tests.recipes.first_step import experiment, info_nce, step_of
from tests.registry.losses.literal import cosine

NEAREST = ["views.hard.augment.0.neighbors=1", "views.hard.augment.0.limit=30"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("cards_en_roberta", (4e-5, 64, 0.05, "chance")),
        ("cards_en_roberta_large", (7.5e-6, 8, 0.1, "count")),
    ],
)
def test_the_authors_settings(name, values):
    """The README's commands. Of its 65 and 9 retrieved sentences one is the sentence itself, which is drawn last."""
    recipe = load(name).recipe
    switch, near = (recipe.views[view].augment[0].params for view in ("positive", "hard"))
    assert values == (recipe.train.learning_rate, near["neighbors"], switch["rate"], switch["draw"])
    assert (recipe.train.batch_size, recipe.data.max_length, near["max_length"], near["skip"]) == (512, 32, 32, 0)
    assert recipe.data.dataset == (near["dataset"],) == ("wiki1m",)
    assert near.get("pooling", "mean") == "mean"
    loss = recipe.losses["info_nce"].params
    assert (loss["temperature"], loss["hard_weight"]) == (0.05, 0.0)


def test_the_small_recipe_searches_its_own_text():
    recipe = load("mini/cards_en").recipe
    assert recipe.data.dataset == (recipe.views["hard"].augment[0].params["dataset"],)


@pytest.mark.parametrize(("name", "model"), [("cards_en_roberta", "roberta"), ("mini/cards_en", "bert")])
def test_the_first_step_by_transformers(parts, name, model):
    made = experiment(parts, name, *NEAREST)
    step = step_of(made)
    network = AutoModel.from_pretrained(parts.models[model]).double().eval()
    weight, bias, _ = made.scored.heads["mlp"].dense()

    def pooled(ids, searched=False):
        states = network(torch.tensor([ids])).last_hidden_state[0]
        return states[0] if model == "roberta" and not searched else states.mean(0)

    def headed(rows):
        return torch.stack([(weight @ pooled(ids) + bias).tanh() for ids in rows])

    vocabulary = made.scored.vocabulary
    corpus = [row["text"] for _, row in zip(range(30), catalog.open_text("tatoeba_open", "train"), strict=False)]
    corpus = list(dict.fromkeys(corpus))
    vectors = [pooled(ids, searched=True).tolist() for ids in vocabulary.ids(corpus, 32)]
    anchor = step.batch["anchor"]
    rows = [ids[mask == 1].tolist() for ids, mask in zip(anchor.ids, anchor.mask, strict=True)]
    cosines = [[cosine(pooled(ids, searched=True).tolist(), vector) for vector in vectors] for ids in rows]
    hard = vocabulary.ids([corpus[own.index(max(own))] for own in cosines], 32)
    h = headed(rows)
    value = made.method.objective(made.method(step)).item()
    assert value == pytest.approx(info_nce(h, h, 0.05, headed(hard).detach()), abs=1e-6)


def test_the_hard_view_has_gradient(parts):
    made = experiment(parts, "mini/cards_en", *NEAREST)
    step = step_of(made)
    losses = made.method(step)
    (found,) = torch.autograd.grad(made.method.objective(losses), [step.views["hard"].sentence])
    assert bool(found.any())

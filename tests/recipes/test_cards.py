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


def test_the_small_recipe_searches_its_own_text():
    recipe = load("mini/cards_en").recipe
    assert recipe.data.dataset == (recipe.views["hard"].augment[0].params["dataset"],)


@pytest.mark.slow
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

"""Mirror-BERT as its recipes put it together: the authors' values, what a step sees, the first step's loss."""

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
from tests.registry.losses.literal import cosine
from tests.support.shrunken import Small

EVERY = "views.positive.augment.0.shortest=0"


def experiment(parts: Small, *more: str, name: str = "mirror_bert_en") -> Experiment:
    changed, dropped = parts.options(load(name).recipe)
    return resolve(load(name, [*changed, EVERY, *more], dropped).recipe, 5)


def step_of(made: Experiment) -> StepState:
    made.method.train()
    batches = Batches(open_text(made.recipe.data, made.columns), made.plans, 4, 50, 5)
    return StepState(made.method, batches.batch(0), 0, 3, torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("name", "rates"), [("mirror_bert_en", (0.1, None)), ("mirror_bert_drophead_en", (0.0, 0.2))])
def test_the_authors_scripts(name, rates):
    """mirror_sentence_bert.sh, mirror_sentence_bert_drophead.sh and the defaults of train.py, copied by hand."""
    recipe = load(name).recipe
    train, encoder = recipe.train, recipe.encoders["online"].params
    assert (train.steps, train.batch_size, train.learning_rate, train.weight_decay) == (50, 200, 2e-5, 0.01)
    assert (train.schedule, train.warmup_steps, train.clip_norm, train.evaluate_every) == ("constant", 0, 0, 0)
    assert (encoder["dropout"], encoder.get("drophead"), encoder["pooling"]) == (*rates, "mean")
    assert (encoder["positions"], encoder["eval_positions"]) == (recipe.data.max_length, recipe.evaluate.max_length)
    assert (recipe.data.max_length, recipe.evaluate.max_length) == (50, 64)
    assert recipe.losses["nt_xent"].params == {"temperature": 0.04, "reduction": "mean"}
    assert recipe.views["anchor"].augment == ()
    assert catalog.entry("stsb_train_text").splits["train"].rows >= train.steps * train.batch_size


def test_the_first_step_by_hand(parts):
    """Rows padded to 50 tokens and the mean of all of them, as in `contrastive_learning.py`."""
    made = experiment(parts, "encoders.online.dropout=0.0")
    made.method.double()
    step = step_of(made)
    vectors = []
    for view in ("anchor", "positive"):
        tokens = step.batch[view]
        more = (0, 50 - tokens.length)
        ids, mask = (torch.nn.functional.pad(one, more, value=0) for one in (tokens.ids, tokens.mask))
        states = made.scored.backbone(input_ids=ids, attention_mask=mask).last_hidden_state
        vectors += states.mean(1).tolist()
    total = 0.0
    for i in range(8):
        below = sum(math.exp(cosine(vectors[i], vectors[j]) / 0.04) for j in range(8) if j != i)
        total -= cosine(vectors[i], vectors[(i + 4) % 8]) / 0.04 - math.log(below)
    assert made.method.objective(made.method(step)).item() == pytest.approx(total / 8, abs=1e-9)


def test_only_the_positive_has_a_mask(parts):
    made = experiment(parts)
    batch, mask = step_of(made).batch, made.scored.vocabulary.mask
    assert (batch["positive"].ids == mask).sum(1).tolist() == [1] * 4
    assert not (batch["anchor"].ids == mask).any()


def test_dropped_heads_are_all_that_differs_between_passes(parts):
    made = experiment(parts, "views.positive.augment=[]", name="mirror_bert_drophead_en")
    step = step_of(made)
    made.method(step)
    anchor, positive = (step.views[view] for view in ("anchor", "positive"))
    assert torch.equal(anchor.embeddings, positive.embeddings)
    assert not torch.allclose(anchor.sentence, positive.sentence, atol=1e-4)
    made.method.eval()
    made.method(step)
    assert torch.allclose(step.views["anchor"].sentence, step.views["positive"].sentence, atol=1e-6)

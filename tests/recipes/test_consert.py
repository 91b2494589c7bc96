"""ConSERT as its recipes put it together: which values, what a step sees, and what evaluation does not."""

from __future__ import annotations

import math

import pytest
import torch

from cse_cli.core.devices import choose
from cse_cli.evaluation.encoder import SentenceEncoder
from cse_cli.recipe.load import load
from registry.resources import catalog
from tests.recipes.first_step import experiment, step_of
from tests.support.tiny import sentences

EVERY = [
    '{name="token_cutoff",rate=0.3,at_least=1}', '{name="feature_cutoff",rate=0.2}',
    '{name="embedding_dropout",rate=0.3}', '{name="token_shuffle"}', '{name="repeat_words",rate=1.0}',
]  # fmt: skip


@pytest.mark.parametrize("name", ["consert_en", "consert_en_large"])
def test_the_warm_up_is_a_tenth_of_all_steps(name):
    train = load(name).recipe.train
    steps = catalog.entry("sts_text").splits["train"].rows // train.batch_size * train.epochs
    assert train.warmup_steps == math.floor(steps / 10)


@pytest.mark.slow
def test_views_differ_by_cut_features_and_by_positions_alone(parts):
    made = experiment(parts, "consert_en", dropout=None)
    step = step_of(made)
    losses = made.method(step)
    assert list(losses) == ["nt_xent"]
    anchor, positive = step.embedded["anchor"], step.embedded["positive"]
    assert torch.equal(anchor.tokens.ids, positive.tokens.ids)
    width = anchor.vectors.shape[-1]
    assert (anchor.vectors == 0).all(dim=1).sum(1).tolist() == [int(width * 0.2)] * 4
    length = anchor.tokens.length
    assert anchor.tokens.positions.tolist() == [list(range(length))] * 4
    assert positive.tokens.positions.sort(1).values.tolist() == [list(range(length))] * 4
    assert not torch.equal(positive.tokens.positions, anchor.tokens.positions)
    assert torch.equal(step.views["anchor"].embeddings, anchor.vectors)  # dropout 0: what is cut stays what was made
    made.method.objective(losses).backward()
    assert all(
        p.grad is not None for n, p in made.scored.named_parameters() if n.endswith("position_embeddings.weight")
    )


@pytest.mark.slow
def test_the_large_recipe_leaves_one_view_alone_and_drops_out(parts):
    made = experiment(parts, "consert_en_large", dropout=None)
    step = step_of(made)
    made.method(step)
    assert not (step.embedded["anchor"].vectors == 0).any()
    assert not torch.equal(step.views["anchor"].embeddings, step.embedded["anchor"].vectors)


@pytest.mark.slow
def test_none_of_it_is_active_at_evaluation(parts):
    """Whatever the views do, scored vectors are those of the sentence itself, the same every time."""
    made = experiment(parts, "consert_en", f"views.anchor.augment=[{','.join(EVERY)}]", dropout=None)
    made.method.float()
    encode = SentenceEncoder(made.scored, choose("cpu"), 4, 64, made.plans)
    texts = sentences(6)
    tokens = made.scored.vocabulary.pad(made.scored.vocabulary.ids(texts, 64))
    plain = made.scored.encode_for_eval(tokens)
    for seed in (1, 2):
        torch.manual_seed(seed)
        assert torch.allclose(encode(texts), plain, atol=1e-5)
    assert not torch.allclose(encode.encode_view("anchor", {"text": texts}), plain, atol=1e-2)
    assert torch.allclose(
        encode.encode_view("anchor", {"text": texts}), encode.encode_view("anchor", {"text": texts}), atol=1e-6
    )

"""DeCLUTR as its recipes put it together: which values, which spans, and what the first step computes."""

from random import Random

import pytest
import torch

from cse_cli.data.batches import Batches
from cse_cli.data.sources import open_text
from cse_cli.training.build import Experiment
from cse_cli.training.method import StepState
from tests.recipes import first_step
from tests.registry.losses.test_nt_xent_means import literal
from tests.support.shrunken import Small
from tests.support.tiny import sentences

VIEWS = ("anchor_1", "near_1", "near_1_too", "anchor_2", "near_2", "near_2_too")


def experiment(parts: Small, tmp_path, *more: str) -> Experiment:
    """Over eight documents of about 90 words; only the anchors' spans may be as long as 20 sub-words."""
    path = tmp_path / "documents.txt"
    path.write_text("".join(" ".join(sentences(18, seed=row)) + "\n" for row in range(8)), encoding="utf-8")
    sizes = [f"views.{view}.augment.0.{key}" for view in VIEWS for key in ("shortest=4", "longest=20")]
    return first_step.experiment(parts, "declutr_en_roberta", f"data.file={path}", "data.max_length=22", *sizes, *more)


def batches_of(made: Experiment) -> Batches:
    return Batches(open_text(made.recipe.data, made.columns), made.specs, 4, made.recipe.data.max_length, 5)


@pytest.mark.slow
def test_views_are_spans_of_one_document_near_their_anchor(parts, tmp_path):
    made = experiment(parts, tmp_path)
    batches = batches_of(made)
    spans = made.method.views["anchor_1"].augmenters[0]
    vocabulary = made.scored.vocabulary
    for step in range(4):
        batch, rng = batches.batch(step), Random(f"5:{step}:")
        documents = open_text(made.recipe.data, made.columns).sentences("text").take(batches.indices(step))
        for row, document in enumerate(documents):
            ids = vocabulary.ids([document], 10_000)[0][1:-1]
            drawn = [span for anchor, near in spans.draw(len(ids), rng) for span in (anchor, *near)]
            for view, (start, stop) in zip(VIEWS, drawn, strict=True):
                tokens = batch[view]
                assert tokens.ids[row][tokens.mask[row] == 1].tolist()[1:-1] == ids[start:stop], view


@pytest.mark.slow
def test_the_losses_of_the_first_step(parts, tmp_path):
    made = experiment(parts, tmp_path, "views.anchor_1.augment.1.rate=0.4")
    batch = batches_of(made).batch(0)
    torch.manual_seed(9)
    step = StepState(made.method, batch, 0, 3, torch.Generator().manual_seed(0))
    losses = {label: value.item() for label, value in made.method(step).items()}

    encoder = made.scored
    vectors, scores = {}, []
    head = made.method.losses["masked_language_modeling"].head
    for view in VIEWS:
        tokens = step.embedded[view].tokens  # of the anchors, some hidden
        states = encoder.backbone(tokens.ids, attention_mask=tokens.mask).last_hidden_state.detach()
        lengths = tokens.mask.sum(1).tolist()
        vectors[view] = [states[row, :length].mean(0) for row, length in enumerate(lengths)]
        if tokens.targets is not None:
            for row, place in (tokens.targets >= 0).nonzero().tolist():
                made_scores = head(states[row, place], encoder.backbone.embeddings.word_embeddings.weight)
                scores.append(-made_scores.log_softmax(0)[tokens.targets[row, place]].item())
    assert len(scores) > 4
    assert losses["masked_language_modeling"] == pytest.approx(sum(scores) / len(scores), abs=1e-9)

    anchors = [torch.stack(vectors[f"anchor_{k}"]) for k in (1, 2)]
    near = [torch.stack(vectors[f"near_{k}{too}"]) for k in (1, 2) for too in ("", "_too")]
    assert losses["nt_xent_means"] == pytest.approx(literal(anchors, near, 0.05), abs=1e-9)

"""Losses of a first step with a teacher, a scorer or labeled pairs: next to the authors' code or cell by cell."""

from itertools import islice

import pytest
import torch.nn.functional as F
from scipy.stats import spearmanr

from cse_cli.recipe.load import load
from registry.resources import catalog
from tests.recipes.first_step import experiment, info_nce, layers_of, step_of
from tests.registry.losses.literal import cosine, ranking_distillation
from tests.registry.losses.test_gaussian_info_nce import as_the_authors_code


@pytest.mark.slow
def test_distillcse_first_step_by_hand(parts):
    made = experiment(parts, "distillcse_plain_en")
    step = step_of(made)
    found = made.method(step)["group_distillation"].item()
    student = step.views["anchor"].sentence.detach()
    cls, _ = layers_of(parts, step.batch["anchor"])
    expected = ranking_distillation("list_net", student, student, (cls,), 0.025, 0.0125, 1.0)
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
def test_gcse_first_step_by_the_authors_code(parts):
    """The student starts as the scorer, so that without repeated words every hard negative is decayed to 0."""
    made = experiment(parts, "gcse_en", "views.anchor.augment.0.rate=0.0")
    step = step_of(made)
    found = made.method.objective(made.method(step)).item()
    views = {name: view.sentence.detach() for name, view in step.views.items()}
    scored = F.cosine_similarity(views["reference"], views["reference_hard"]) / 0.05
    expected = as_the_authors_code(views["anchor"], views["positive"], views["hard"], scored, 0.17)
    assert found == pytest.approx(expected.item(), abs=1e-6)
    own = F.cosine_similarity(views["anchor"], views["hard"]) / 0.05
    assert own.tolist() == pytest.approx(scored.tolist(), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["list_net", "list_mle"])
def test_rankcse_first_step_by_hand(parts, form):
    """Dropout off: both views are alike, and the teachers are the same tiny model."""
    made = experiment(parts, f"rankcse_{form}_en")
    step = step_of(made)
    losses = {name: value.item() for name, value in made.method(step).items()}
    cls, _ = layers_of(parts, step.batch["anchor"])
    student = step.views["anchor"].sentence.detach()
    assert losses["info_nce"] == pytest.approx(info_nce(student, student, 0.05), abs=1e-6)
    assert losses["ranking_consistency"] == pytest.approx(0.0, abs=1e-6)
    ranking = ranking_distillation(form, student, student, (cls, cls), 0.05, 0.025, 0.33, form == "list_mle")
    assert losses["ranking_distillation"] == pytest.approx(ranking, abs=1e-6)


@pytest.mark.slow
def test_rankencoder_first_step_by_hand(parts):
    low, high = 0.0, 0.9999
    made = experiment(parts, "rankencoder_en", f"losses.neighbor_ranks.low={low}")
    step = step_of(made)
    losses = made.method(step)
    vocabulary = made.method.encoder("base").vocabulary
    texts = [row["text"] for row in islice(catalog.open_text("tatoeba_open", "train"), 30)]

    corpus = layers_of(parts, vocabulary.pad(vocabulary.ids(texts, 64)))[0].tolist()
    references = layers_of(parts, step.batch["reference"])[0].tolist()
    orders = [[cosine(e, c) for c in corpus] for e in references]
    vectors = step.views["anchor"].sentence  # no dropout: both views are alike
    contrast = info_nce(vectors, vectors, 0.05)
    rows, errors = vectors.tolist(), []
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            r = 1.0 if i == j else spearmanr(orders[i], orders[j]).statistic
            errors += [(cosine(a, b) - r) ** 2] if low <= r <= high else []
    assert losses["info_nce"].item() == pytest.approx(contrast, abs=1e-6)
    assert 0 < len(errors) < 16
    assert losses["neighbor_ranks"].item() == pytest.approx(sum(errors) / len(errors), abs=1e-6)


@pytest.mark.parametrize("name", ["syncse_partial_en_roberta", "syncse_scratch_en_roberta_large"])
def test_sup_simcse_script_of_syncse_masks_all_three_sentences(name):
    recipe = load(name).recipe
    hidden = recipe.losses["masked_language_modeling"]
    assert (hidden.weight, hidden.params["initial"], hidden.params["tied"]) == (0.1, "checkpoint", False)
    views = ["masked", *hidden.views["masked_again"]]
    read = [recipe.views[view].column for view in ("anchor", "positive", "contradiction")]
    assert [recipe.views[view].column for view in views] == read
    for view in views:
        (part,) = recipe.views[view].augment
        assert (part.params["rate"], part.params["mask_share"], part.params["random_share"]) == (0.15, 0.8, 0.1)


def test_sup_simcse_first_step_by_hand(parts):
    made = experiment(parts, "sup_simcse_en")
    step = step_of(made)
    found = made.method.objective(made.method(step)).item()
    anchor, positive, hard = (step.views[name].sentence for name in ("anchor", "positive", "contradiction"))
    assert not anchor.allclose(hard)
    assert found == pytest.approx(info_nce(anchor, positive, 0.05, hard), abs=1e-6)

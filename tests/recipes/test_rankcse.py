"""RankCSE as its recipes put it together: which values, frozen teachers, and the losses of a first step."""

from __future__ import annotations

import math

import pytest

from cse_cli.recipe.load import load
from tests.recipes.first_step import experiment, layers_of, step_of
from tests.registry.losses.literal import cosine, ranking_distillation, softmax_of_cosines

BERT = ("voidism/diffcse-bert-base-uncased-sts", "princeton-nlp/unsup-simcse-bert-large-uncased")
ROBERTA = ("voidism/diffcse-roberta-base-sts", "princeton-nlp/unsup-simcse-roberta-large")


@pytest.mark.parametrize("form", ["list_net", "list_mle"])
@pytest.mark.parametrize(
    ("end", "rate", "teachers"),
    [("", 3e-5, BERT), ("_large", 1e-5, BERT), ("_roberta", 1e-5, ROBERTA), ("_roberta_large", 3e-5, ROBERTA)],
)
def test_the_community_scripts_values(form, end, rate, teachers):
    recipe = load(f"rankcse_{form}_en{end}").recipe
    train, losses = recipe.train, recipe.losses
    assert (train.batch_size, train.learning_rate, train.epochs, train.evaluate_every) == (128, rate, 1, 125)
    assert [term.weight for term in losses.values()] == [1.0] * 3
    assert losses["ranking_consistency"].params == {"temperature": 0.05, "divergence": "js"}
    ranking = losses["ranking_distillation"].params
    assert (ranking["form"], ranking["temperature"], ranking["teacher_temperature"]) == (form, 0.05, 0.025)
    assert (ranking["mix"], ranking["diagonal"], ranking["epsilon"]) == (0.33, form == "list_mle", 1e-7)
    for name in ("first_teacher", "second_teacher"):
        assert (recipe.encoders[name].params["pooling"], recipe.encoders[name].heads) == ("cls", {})
    assert tuple(recipe.encoders[name].params["model"] for name in ("first_teacher", "second_teacher")) == teachers


@pytest.mark.parametrize("form", ["list_net", "list_mle"])
def test_the_first_step_by_hand(parts, form):
    """Dropout off: both views are alike, and the teachers are the same tiny model."""
    made = experiment(parts, f"rankcse_{form}_en")
    step = step_of(made)
    losses = {name: value.item() for name, value in made.method(step).items()}
    cls, _ = layers_of(parts, step.batch["anchor"])
    student = step.views["anchor"].sentence.detach()
    expected = sum(
        math.log(sum(math.exp(cosine(a, b) / 0.05) for b in student.tolist())) - 1 / 0.05 for a in student.tolist()
    )
    assert losses["info_nce"] == pytest.approx(expected / len(student), abs=1e-6)
    assert losses["ranking_consistency"] == pytest.approx(0.0, abs=1e-6)
    ranking = ranking_distillation(form, student, student, (cls, cls), 0.05, 0.025, 0.33, form == "list_mle")
    assert losses["ranking_distillation"] == pytest.approx(ranking, abs=1e-6)


def test_views_that_differ_by_dropout_differ_in_their_ranks(parts):
    made = experiment(parts, "rankcse_list_net_en", "encoders.online.dropout=0.3")
    step = step_of(made)
    found = made.method(step)["ranking_consistency"].item()
    views = [step.views[name].sentence.detach() for name in ("anchor", "positive")]
    p, q = (softmax_of_cosines(*pair, 0.05) for pair in (views, views[::-1]))
    total = 0.0
    for left, right in zip(p, q, strict=True):
        for a, b in zip(left, right, strict=True):
            total += (a * math.log(2 * a / (a + b)) + b * math.log(2 * b / (a + b))) / 2 / len(p)
    assert found == pytest.approx(total, abs=1e-6)
    assert found > 1e-4


@pytest.mark.parametrize("name", ["rankcse_list_net_en", "mini/rankcse_list_mle_en"])
def test_only_the_student_is_trained(parts, name):
    made = experiment(parts, name)
    made.method.objective(made.method(step_of(made))).backward()
    trained = {name.split(".")[1] for name, p in made.method.named_parameters() if p.requires_grad}
    reached = {name.split(".")[1] for name, p in made.method.named_parameters() if p.grad is not None and p.grad.any()}
    assert trained == reached == {"online"}

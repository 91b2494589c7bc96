"""DistillCSE as its recipes put it together: which values, frozen teachers, and the loss of a first step."""

from __future__ import annotations

import pytest

from cse_cli.recipe.load import load
from tests.recipes.first_step import experiment, layers_of, step_of
from tests.registry.losses.literal import ranking_distillation


@pytest.mark.parametrize(
    ("name", "group", "rate", "batch"),
    [
        ("distillcse_en", 0.1, 3e-5, 64), ("distillcse_plain_en", 0.0, 3e-5, 64),
        ("distillcse_plain_en_large", 0.0, 1e-5, 64), ("distillcse_plain_en_roberta", 0.0, 1e-5, 512),
        ("distillcse_plain_en_roberta_large", 0.0, 3e-5, 512),
    ],
)  # fmt: skip
def test_the_authors_script(name, group, rate, batch):
    recipe = load(name).recipe
    train, loss, teacher = recipe.train, recipe.losses["group_distillation"], recipe.encoders["teacher"]
    assert (train.batch_size, train.learning_rate, train.steps, train.evaluate_every) == (batch, rate, 5000, 125)
    assert loss.params == {
        "temperature": 0.025, "teacher_temperature": 0.0125, "group": group, "group_temperature": 1.0,
    }  # fmt: skip
    assert [term.weight for term in recipe.losses.values()] == [1.0, 1.0]
    assert loss.views["teachers"] == ("teacher",)
    assert (teacher.params["pooling"], teacher.params["dropout"], teacher.heads) == ("cls", 0.0, {})
    student = recipe.encoders["online"].params["model"]
    assert teacher.params["model"] == f"princeton-nlp/unsup-simcse-{student}"


def test_the_first_step_by_hand(parts):
    made = experiment(parts, "distillcse_plain_en")
    step = step_of(made)
    found = made.method(step)["group_distillation"].item()
    student = step.views["anchor"].sentence.detach()
    cls, _ = layers_of(parts, step.batch["anchor"])
    expected = ranking_distillation("list_net", student, student, (cls,), 0.025, 0.0125, 1.0)
    assert found == pytest.approx(expected, abs=1e-6)


def test_only_the_student_is_trained(parts):
    made = experiment(parts, "mini/distillcse_en")
    made.method.objective(made.method(step_of(made))).backward()
    trained = {name.split(".")[1] for name, p in made.method.named_parameters() if p.requires_grad}
    reached = {name.split(".")[1] for name, p in made.method.named_parameters() if p.grad is not None and p.grad.any()}
    assert trained == reached == {"online"}

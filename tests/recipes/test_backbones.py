"""SimCSE on encoders and decoders of later years: their own dropout is 0, so the recipes set one."""

import pytest

from cse_cli.recipe.load import load
from tests.recipes.first_step import experiment, step_of
from tests.support.families import tiny

FAMILIES = {"modernbert": "modernbert", "eurobert": "eurobert", "qwen3": "qwen3", "gemma3": "gemma3_text"}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_the_two_views_differ_only_by_the_recipes_dropout(name, parts, tmp_path):
    model = tiny(tmp_path, FAMILIES[name])
    rate = load(f"simcse_en_{name}").recipe.encoders["online"].params["dropout"]
    for given, equal in ((rate, False), (0.0, True)):
        more = [f"encoders.online.model={model}", f"encoders.online.dropout={given}"]
        more += ["encoders.online.lora_dropout=0.0"] if name in ("qwen3", "gemma3") else []
        made = experiment(parts, f"simcse_en_{name}", *more, dropout=None)
        step = step_of(made)
        made.method.objective(made.method(step)).backward()
        assert step.views["anchor"].sentence.allclose(step.views["positive"].sentence) is equal
        assert any(p.grad is not None and p.grad.any() for p in made.method.parameters())

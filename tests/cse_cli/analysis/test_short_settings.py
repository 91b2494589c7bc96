"""A recipe's settings in a comparison: what is a default is left out."""

from __future__ import annotations

import pytest

from cse_cli.analysis.reproduce import short_setting
from cse_cli.analysis.runs import recipe_changes
from cse_cli.recipe.load import load


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("train.steps", 60, "60"),
        ("train.steps", None, "—"),
        ("encoders.online.freeze", ["embeddings"], "[embeddings]"),
        ("encoders.online.heads.mlp", {"name": "mlp"}, "mlp"),
        ("views.anchor", {"encoder": "online", "column": "text", "augment": []}, "default"),
        ("views.anchor", {"encoder": "target", "column": "text", "augment": []}, "(encoder = target)"),
        ("queue", {"name": "fifo", "view": "key", "length": 64, "own": 1}, "fifo (view = key, length = 64, own = 1)"),
    ],
)
def test_texts(key, value, text):
    assert short_setting(key, value) == text


def test_components_that_only_one_recipe_has():
    recipes = [load(name).recipe.resolved() for name in ("mini/simcse_en", "mini/ifcl_en")]
    shown = {c.key: [short_setting(c.key, value) for value in c.values] for c in recipe_changes(recipes)}
    assert shown["losses.info_nce"] == ["info_nce", "—"]
    assert shown["losses.identical"] == ["—", "info_nce (views = (positive = identical))"]
    assert shown["views.positive"] == ["default", "—"]
    assert shown["views.fraternal"] == ["—", "(augment = fuse_embeddings (model = mini_de))"]
    assert shown["queue"] == ["—", "hippocampus (view = anchor)"]

"""The tables that `cse show COMPONENT` prints for a recipe."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cse_cli.recipe.load import load
from cse_cli.recipe.schema import train_entries
from cse_cli.recipe.view import paste_block
from registry import LOSSES, QUEUES, REGISTRIES
from registry.machinery.core import Entry
from tests.support.command import cse

ENTRIES = [entry for registry in REGISTRIES if registry.kind != "generators" for entry in registry]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.kind}/{entry.name}")
def test_the_table_of_every_component_is_valid_in_a_recipe(
    entry: Entry[Any], write: Callable[[str, str], Path]
) -> None:
    block = paste_block(entry)
    labeled = any(one.kind == "labels" for one in entry.inputs)  # the data of mini/simcse_en has no labels
    data = "[data]\nfile = 'pairs.csv'\n" if labeled else ""
    is_other_encoder = entry.kind == "encoders" and "online" not in tomllib.loads(block)["encoders"]
    remove = ["encoders.online"] if entry.kind == "encoders" and not is_other_encoder else []
    remove += ["data.dataset"] if labeled else []
    path = write("own.toml", f"extends = 'mini/simcse_en'\nremove = {remove}\ntitle = 'x'\n\n{data}\n{block}\n")
    changes = [f"evaluate.encoder={entry.name}"] if is_other_encoder else []
    changes += ["train.steps=0"] if "template_joined = true" in block else []  # only for evaluation
    recipe = load(str(path), changes).recipe
    placed = {(one.registry.kind, one.part.name) for one in recipe.parts()}
    placed |= {(one.kind, one.name) for one in train_entries(recipe.train)}
    assert (entry.kind, entry.name) in placed
    table: Any = tomllib.loads(block)
    while table and isinstance(table, dict) and all(isinstance(value, dict | list) for value in table.values()):
        table = next(iter(table.values()))
    table = table[0] if isinstance(table, list) else table
    fields = entry.parameters.model_fields
    for name, field in fields.items():
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        assert name in table or default is None
        if name in table and default is not None:
            assert entry.parameters.model_validate({**table_of(table, fields)}).model_dump()[name] == default


def table_of(table: dict[str, Any], fields: Any) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key in fields}


def test_the_screen_names_the_source_of_labels(capsys: pytest.CaptureFixture[str]) -> None:
    assert "label ← numbers of the data's column `column`" in cse("show", "cosent", capsys=capsys)[1].replace("\n", " ")


def test_the_screen_ends_with_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    out = cse("show", "fifo", capsys=capsys)[1]
    assert out.endswith(f"in a recipe:\n\n{paste_block(QUEUES['fifo'])}\n")
    assert 'view = "anchor"  # required' in out
    assert paste_block(LOSSES["info_nce"]).startswith("[losses.info_nce]\nweight = 1.0\n")

"""The JSON Schema accepts valid recipes and rejects invalid ones."""

from __future__ import annotations

import tomllib

import pytest

from cse_cli.recipe.files import all_recipes
from cse_cli.recipe.json_schema import json_schema
from cse_cli.recipe.load import load
from registry import AUGMENTERS, ENCODERS, EVALUATORS, LOSSES, QUEUES
from tests.support.chosen import distinct

pytestmark = pytest.mark.slow

jsonschema = pytest.importorskip("jsonschema")


@pytest.fixture(scope="module")
def validator():
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_shipped_recipes_are_accepted_as_written_and_resolved(validator):
    for name in distinct(all_recipes()):
        loaded = load(name)
        assert list(validator.iter_errors(tomllib.loads(loaded.text))) == [], name
        assert list(validator.iter_errors(loaded.recipe.resolved())) == [], name


@pytest.mark.parametrize("name", ['"wiki1m"', '["wiki1m", "hf:owner/name"]'])
def test_data_sets_are_accepted(name, validator):
    assert list(validator.iter_errors(tomllib.loads(f"extends = 'simcse_en'\n[data]\ndataset = {name}"))) == []


@pytest.mark.parametrize(
    "text",
    [
        "[train]\nlearning_rate = -3", "[train]\nseed = 'x'", "[train]\nsede = 1", "sede = 1", "schema = 2",
        "[losses.info_nce]\ntemprature = 1", "[losses.info_nce]\ntemperature = -1", "[losses.x]\nname = 'info_nec'",
        "[losses.x]\nname = 'info_nce'\nmargin = 'data'", "[queue]\nname = 'fifo'\nlength = '3'",
        "[views.v]\naugment = [{ name = 'fuse_embeddings', rate = 3 }]", "[data]\ndataset = 'wiki2m'",
        "[encoders.online]\nname = 'transformer'\npooling = 'men'", "[tune.t]\nlow = 'x'", "remove = 'queue'",
    ],
)  # fmt: skip
def test_mistakes_are_refused(text, validator):
    assert list(validator.iter_errors(tomllib.loads(f"extends = 'simcse_en'\n{text}")))


def test_only_a_recipe_that_extends_may_leave_things_out(validator):
    assert list(validator.iter_errors({"extends": "simcse_en", "losses": {"identical": {"temperature": 0.1}}})) == []
    assert list(validator.iter_errors({"title": "x"}))


def test_every_component_is_described():
    definitions = json_schema()["$defs"]
    for registry in (AUGMENTERS, ENCODERS, EVALUATORS, LOSSES, QUEUES):
        for entry in registry:
            about = definitions[f"{registry.kind}.{entry.name}"]
            assert about["description"] == entry.summary
            for name in entry.parameters.model_fields:
                assert about["properties"][name]["description"]

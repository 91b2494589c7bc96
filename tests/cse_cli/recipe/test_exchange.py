"""Exchanges of components: every inherited parameter is kept or refused, none is dropped in silence."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cse_cli.recipe.cells import cells
from cse_cli.recipe.load import load, read
from cse_cli.recipe.overrides import Override, apply_overrides
from cse_cli.recipe.parse import parse_recipe
from cse_cli.recipe.problems import Problems, RecipeError
from cse_cli.recipe.schema import PlacedPart
from cse_cli.recipe.sources import Origins
from cse_cli.recipe.study import load_study
from tests.support.errors import refuses

RECIPES = (
    "ifcl_en", "conisi_s_en", "mini/promptbert_en", "mini/mocose_en", "mini/consert_en", "mini/bert_whitening_en",
    "mini/diffcse_en", "mini/sncse_en",
)  # fmt: skip
EVERY = 13
"""One of this many components is tried at each place."""


def exchanges() -> list[tuple[str, str, str]]:
    """Return recipe, place and new component."""
    found = []
    for recipe in RECIPES:
        tables = read(recipe).tables
        for placed in load(recipe).recipe.parts():
            if set(inherited(tables, placed)) - {"dataset", "split"} or placed.keys[1:] == ("dev",):
                others = [name for name in placed.registry.names() if name != placed.part.name]
                every = min(EVERY, len(others))
                found += [(recipe, placed.place, name) for name in others[len(found) % every :: every]]
    return found


def inherited(tables: Any, placed: PlacedPart) -> dict[str, Any]:
    """Return the parameters that the files of a recipe give a component."""
    for key in placed.keys:
        tables = tables[key]
    return {key: value for key, value in tables.items() if key in placed.part.params}


EXCHANGES = exchanges()


def test_all_kinds_are_exchanged():
    assert len(EXCHANGES) >= 40
    places = [place.split(".") for _, place, _ in EXCHANGES]
    assert {"encoders", "losses", "evaluators", "queue"} < {place[0] for place in places}
    assert {place[2] for place in places if len(place) == 4} == {"augment", "heads"}


def parsed(recipe: str, place: str, name: str, without: tuple[str, ...]) -> tuple[PlacedPart, set[str], str]:
    """Return the exchanged component, the paths of the parameters that it refuses, and the message."""
    written = read(recipe)
    changes = [*map(Override.remove, without), Override.of(f"{place}.name", name)]
    tables, paths = apply_overrides(written.tables, changes)
    origins = Origins(written.origins.sources, ((paths[-1], changes[-1].label),))
    problems = Problems(origins.where, origins.is_inherited)
    complete = parse_recipe(tables, origins, problems)
    lost = [problem for problem in problems.found if problem.code == "recipe.lost_parameters"]
    assert [problem.keys for problem in lost] in ([], [f"{place}.name"])
    placed = next(one for one in complete.parts() if one.place == place)
    message = lost[0].message if lost else ""
    return placed, set(re.findall(r"--unset (\S+)", message)), message


@pytest.mark.parametrize(("recipe", "place", "name"), EXCHANGES, ids="-".join)
def test_every_parameter_is_kept_or_refused(recipe, place, name):
    before = next(one for one in load(recipe).recipe.parts() if one.place == place)
    given = inherited(read(recipe).tables, before)
    _, lost, message = parsed(recipe, place, name, ())
    assert lost <= {f"{place}.{key}" for key in given}
    assert len(re.findall(r"\.toml:\d+:\d+\)", message)) == len(lost)
    after, none, _ = parsed(recipe, place, name, tuple(lost))
    assert (after.part.name, none) == (name, set())
    kept = {key: value for key, value in given.items() if f"{place}.{key}" not in lost}
    assert {key: after.part.params[key] for key in kept} == kept
    for path in lost:  # each of them has to be removed
        assert parsed(recipe, place, name, tuple(lost - {path}))[1] == {path}


def test_a_prompt_method_on_another_encoder_is_refused(write):
    path = write("own.toml", "extends = 'mini/promptbert_en'\ntitle = 'x'\n[encoders.online]\nname = 'word_vectors'\n")
    with pytest.raises(RecipeError) as caught:
        load(str(path))
    lost, view = (
        next(one for one in caught.value.problems if one.code == code)
        for code in ("recipe.lost_parameters", "recipe.unsupported_template")
    )
    assert lost.where == "own.toml:4:8"
    places = {"pooling": 12, "template": 13, "end_with": 14, "denoise": 15}
    for key, line in places.items():
        assert re.search(rf"\b{key} \(\S*mini/promptbert_en.toml:{line}:\d+\)", lost.message)
    removed = ["model", "pooling", "head_at_eval", "dropout", *list(places)[1:]]
    assert lost.message.endswith(f"add remove = {[f'encoders.online.{key}' for key in removed]}".replace("'", '"'))
    assert view.where.endswith("mini/promptbert_en.toml:18:1")
    assert "recipe.unsupported_heads" in {one.code for one in caught.value.problems}


def test_what_the_recipe_removes_is_given_up(write):
    removed = ["pooling", "head_at_eval", "template", "end_with", "denoise"]
    path = write(
        "own.toml",
        f"extends = 'mini/promptbert_en'\nremove = {[f'encoders.online.{key}' for key in removed]}\ntitle = 'x'\n"
        "[encoders.online]\nname = 'convolutional'\nwindows = [1, 3]\n",
    )
    online = load(str(path)).recipe.encoders["online"]
    assert (online.params["pooling"], online.params["template"], online.params["dropout"]) == ("mean", None, 0.05)
    with refuses("recipe.unknown_path", "own.toml:2:", "encoders.online.denoised"):
        load(str(write("own.toml", path.read_text().replace("denoise'", "denoised'"))))


def test_a_value_that_the_new_component_does_not_accept_is_refused():
    with refuses("recipe.lost_parameters", 'pooling = "mask"', "promptbert_en.toml:12:11", "--unset encoders.online.p"):
        load("mini/promptbert_en", ["encoders.online.name=convolutional"])


def test_a_setting_of_the_same_layer_is_an_unknown_key():
    changes = ["losses.info_nce.name=uniformity", "losses.info_nce.margin=1"]
    with refuses("recipe.unknown_component", "uniformity"):
        load("mini/simcse_en", changes)
    with refuses("recipe.unknown_key", "--set losses.info_nce.margin", "unknown parameter 'margin'"):
        load("mini/simcse_en", ["losses.info_nce.name=nt_xent", "losses.info_nce.margin=1"])


def test_a_study_says_what_a_row_gives_up(write):
    head = "[study]\ntitle = 'x'\nrecipe = 'mini/ifcl_en'\nscore = 'test.spearman'\n"
    text = f"{head}[[study.rows]]\nrow = 'fifo'\nset = ['queue.name=fifo']\n"
    with refuses("recipe.lost_parameters", "own.toml:7:", "forgetting_rate"):
        cells(load_study(str(write("own.toml", text))))
    (cell,) = cells(load_study(str(write("own.toml", f"{text}unset = ['queue.forgetting_rate']\n"))))
    assert cell.resolved is not None
    assert cell.resolved.queue is not None
    assert cell.resolved.queue.params["length"] == 416


def test_keys_of_the_recipe_stay():
    """The views of a replaced loss stay, and so does a schedule."""
    settings = ["losses.interaction.name=info_nce", "losses.interaction.weight_schedule={ end = 0.5 }"]
    with pytest.raises(RecipeError) as caught:
        load("mini/conisi_s_en", settings)
    codes = {problem.keys: problem.code for problem in caught.value.problems}
    assert codes["losses.interaction.name"] == "recipe.lost_parameters"
    assert codes["losses.interaction.views.same"] == "recipe.unknown_input"

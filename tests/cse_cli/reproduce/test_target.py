"""The recipe and the reported number that an address means."""

from __future__ import annotations

from pathlib import Path

import pytest

from cse_cli.analysis.reproduced import doubts, find_target
from cse_cli.core.results import STS_TASKS
from cse_cli.recipe.load import load
from registry import papers
from tests.support.errors import refuses
from tests.support.records import result


def test_a_row_by_number_and_by_identifier():
    for address in ("ifcl/1/IFCL-BERT base", "ifcl/sts_en/IFCL-BERT base", "ifcl/1/ifcl-bert BASE"):
        found = find_target(address)
        assert (found.loaded.name, found.name) == ("ifcl_en", "IFCL, Table 1, IFCL-BERT base")
        assert (found.claim.heading, found.claim.value) == ("Avg", 77.80)
        assert (found.claim.runs, found.claim.others) == (1, None)


def test_a_recipe_names_the_row_of_its_paper_and_the_runs_of_others():
    found = find_target("simcse_en")
    assert (found.name, found.claim.value) == ("IFCL, Table 1, SimCSE-BERT base", 76.25)
    published = papers.distribution("simcse_en")
    assert published is not None
    assert (found.claim.others.n, found.claim.others.std) == (50, published.std)


def test_one_recipe_reproduces_rows_of_several_papers():
    # The paper prints 75.68. The mean of the row is 75.69.
    assert find_target("focal_infonce/sts/SimCSE-BERT-base").claim.value == 75.69
    assert find_target("focal_infonce/sts/SimCSE-BERT-base").loaded.name == "simcse_en"


def test_a_changed_recipe_keeps_its_row():
    found = find_target("simcse_en", ["losses.info_nce.temperature=0.1"])
    assert found.claim.value == 76.25
    assert found.loaded.changes == ("losses.info_nce.temperature=0.1",)


def test_values_are_averaged_as_in_papers():
    """Scores of tasks are rounded before they are averaged."""
    scores = {name: {"spearman": 60.004 + place} for place, name in enumerate(STS_TASKS)}
    assert find_target("simcse_en").value(result(scores=scores)) == pytest.approx(63.0)
    with refuses("reproduce.no_score", "'Avg'"):
        find_target("simcse_en").value(result(scores={}))


def test_a_small_recipe_has_a_measured_result():
    found, row = find_target("quickstart"), papers.measured_rows()["quickstart"]
    assert (found.claim.heading, found.claim.runs) == ("test", len(row.seeds))
    assert found.claim.value == row.mean("test")
    assert (found.claim.others.n, found.claim.tolerance) == (12, row.tolerance)
    assert found.value(result(scores={"dev": {"spearman": 50.0}, "test": {"spearman": 40.0}})) == 40.0


def test_measured_results_belong_to_the_current_recipes():
    for name, row in papers.measured_rows().items():
        recipe = load(name).recipe
        assert recipe.hash() == row.settings, f"measure {name} again: {row.command}"
        assert len(row.seeds) >= 10
        assert not {0, 1, 2, 3, 4} & {*row.seeds}, "your seeds must be independent of those measured"


def test_measured_results_are_no_paper():
    assert "measured" not in papers.names()


@pytest.mark.parametrize(
    ("argument", "code", "values"),
    [
        ("ifcl/1/IFCL-BERT bas", "reproduce.unknown_row", ["Did you mean 'IFCL-BERT base'"]),
        ("ifcl/1", "reproduce.unknown_row", ["is a table", "cse leaderboard --table ifcl/1"]),
        ("ifcl/99/x", "reproduce.unknown_table", ["'99'", "cse leaderboard --paper ifcl"]),
        ("mini/ifcl_en", "reproduce.no_row", ["cse run mini/ifcl_en", "quickstart"]),
        ("ifcl_enn", "recipe.unknown_recipe", ["ifcl_enn", "ifcl_en"]),
        ("ifcl/queue_length/M=416", "reproduce.study", ["cse run studies/ifcl_queue_length"]),
    ],
)
def test_refused_addresses(argument, code, values):
    with refuses(code, *values):
        find_target(argument)


def test_a_row_that_no_recipe_reproduces():
    row = next(
        f"{key}/{identifier}/{name}"
        for key in papers.names()
        for identifier, table in papers.load(key).tables.items()
        for name, row in table.rows.items()
        if table.kind == "scores" and row.not_reproduced_because
    )
    key, identifier, name = row.split("/", 2)
    with refuses("reproduce.no_recipe", papers.load(key).tables[identifier].rows[name].not_reproduced_because):
        find_target(row)


def test_a_quantity_that_the_recipe_does_not_score():
    with refuses("reproduce.not_comparable", "quickstart", "test"):
        find_target("quickstart", unset=["evaluators.test"])


@pytest.mark.exhaustive
def test_every_recipe_with_a_paper_has_a_number_or_a_reason():
    codes = set()
    for key in papers.names():
        for identifier, table in papers.load(key).tables.items():
            for name in table.rows:
                try:
                    found = find_target(f"{key}/{identifier}/{name}")
                except Exception as error:
                    codes.add(getattr(error, "code", repr(error)))
                else:
                    assert set(found.evaluators) <= found.loaded.recipe.evaluators.keys()
    assert codes <= {"reproduce.study", "reproduce.no_recipe", "reproduce.not_comparable"}


# Doubtful points: each is explained on its page, belongs to a recipe, and has options that the recipe accepts.


METHODS = Path(__file__).parents[3] / "docs" / "methods"


def of(recipe: str) -> dict[str, list[str]]:
    return {point.name: options for point, options in doubts(load(recipe))}


def test_each_point_is_a_row_of_its_page():
    points = papers.doubtful_points()
    assert len({point.name for point in points}) == len(points) > 100
    for point in points:
        page = (METHODS / f"{point.page}.md").read_text(encoding="utf-8")
        assert f"</a>{point.name} | " in page, point.name
        assert point.about[0] != " "
        assert point.recipes


@pytest.mark.slow
def test_points_of_a_recipe_with_options():
    found = of("ifcl_en")
    assert found["A10"] == ["--set queue.order=oldest_first"]
    # Both losses change together, and a part of this change is not another option.
    assert found["A13"] == ["--set losses.identical.weight_on=logit --set losses.fraternal.weight_on=logit"]
    assert of("ifcl_en_no_fi_tl")["A13"] == ["--set losses.identical.weight_on=logit"]
    # A23 is about other evaluators.
    assert "A23" not in found


@pytest.mark.slow
def test_points_of_the_extended_recipe_come_last():
    points = list(of("ifcl_en"))
    assert points.index("A1") < points.index("S1")


def test_a_recipe_of_your_own_has_the_points_of_its_parent(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('extends = "focal_infonce_en"\ntitle = "Mine"\n')
    assert "F7" in of(str(file))


@pytest.mark.slow
def test_every_option_is_accepted_by_one_of_its_recipes():
    accepted: dict[str, set[str]] = {}
    for recipe in {recipe for point in papers.doubtful_points() for recipe in point.recipes}:
        for name, options in of(recipe).items():
            accepted.setdefault(name, set()).update(options)
    assert accepted.keys() == {point.name for point in papers.doubtful_points()}

"""Every printed cell, and every drawn experiment, has an answer that exists and computes it, or a reason."""

from functools import cache

import pytest

from cse_cli.recipe.cells import cells
from cse_cli.recipe.load import load
from cse_cli.recipe.paths import values
from cse_cli.recipe.study import load_study
from registry import EVALUATORS, catalogue, papers
from registry.papers import AVERAGE, Answer, Figure, Quoted, Table

TABLES = [(key, identifier) for key in papers.names() for identifier in papers.load(key).tables]
STUDIED = [(key, identifier) for key, identifier in TABLES if papers.load(key).tables[identifier].study]
FIGURES = [(key, identifier) for key in papers.names() for identifier in papers.load(key).figures]


@cache
def recipe(name, set_=(), unset=()):
    return load(name, set_, unset).recipe


def metrics(found):
    """Evaluator → what it reports, of a recipe."""
    return {name: EVALUATORS[part.name].cls.metrics for name, part in found.evaluators.items()}


def averaged(table):
    others = [c.evaluator for c in table.columns if c.evaluator not in (None, AVERAGE)]
    return others or ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"]


def scores(table, column, found):
    """Whether a recipe's runs have the score of a column."""
    known = metrics(found)
    wanted = averaged(table) if column.evaluator == AVERAGE else [column.evaluator]
    return all(table.score_of(column) in known.get(name, ()) for name in wanted)


@pytest.mark.parametrize(("key", "identifier"), TABLES)
def test_every_cell_is_answered(key, identifier):
    table = papers.load(key).tables[identifier]
    study = cells(load_study(table.study)) if table.study else []
    for row, column in table.printed():
        answer = table.answer(row, column.name)
        where = f"{key}/{identifier} · {row} · {column.name}"
        assert answer.text.strip(), where
        if answer.kind == "recipe" and table.kind == "scores":
            assert scores(table, column, recipe(answer.text)), where
        if answer.kind == "study":
            computing = [c for c in study if c.row == row and (not c.columns or column.name in c.columns)]
            assert len(computing) == 1, where
            (cell,) = computing
            assert scores(table, column, recipe(cell.recipe, cell.overrides, cell.unset)), where


@pytest.mark.parametrize(
    ("key", "identifier"), [place for place in TABLES if papers.load(place[0]).tables[place[1]].study]
)
def test_the_study_says_which_table_it_answers(key, identifier):
    assert load_study(papers.load(key).tables[identifier].study).paper == f"{key}/{identifier}"


def test_recipes_hold_the_settings_that_are_printed():
    """A misprint is held as what the rest of the paper implies."""
    checked = 0
    for key, identifier in TABLES:
        table = papers.load(key).tables[identifier]
        for row, column in table.printed() if table.kind == "settings" else ():
            answer = table.answer(row, column.name)
            if answer.kind == "recipe":
                implied = [f.implied for f in table.flags if (f.row, f.column) == (row, column.name)]
                printed = table.values(row)[column.name]
                path = table.rows[row].setting or column.setting
                assert values(recipe(answer.text))[path] == (implied[0] if implied else printed), (
                    key,
                    row,
                    column.name,
                )
                checked += 1
    assert checked


def test_the_catalogue_counts_the_pairs_that_are_printed():
    table = papers.load("conisi").tables["data_sizes"]
    splits = {"train": "train", "valid": "dev", "test": "test"}
    checked = 0
    for row, split in splits.items():
        for heading, printed in table.values(row).items():
            if printed:
                implied = {(f.row, f.column): f.implied for f in table.flags}.get((row, heading))
                name = {"STSb": "stsb", "SICK-R": "sickr"}.get(heading, heading.lower())
                assert catalogue.entry(name).splits[split].rows == (implied or printed), (row, heading)
                checked += 1
    assert checked == 11


@pytest.mark.parametrize(("key", "identifier"), FIGURES)
def test_every_figure_is_answered(key, identifier):
    figure = papers.load(key).figures[identifier]
    for answer in figure.answers:
        assert answer.kind != "reason"
        if answer.kind == "recipe":
            assert recipe(answer.text).title
        else:
            study = load_study(answer.text)
            tables = [name for name, table in papers.load(key).tables.items() if table.study == answer.text]
            same = [name for name, other in papers.load(key).figures.items() if other.study == answer.text]
            assert study.paper in {f"{key}/{name}" for name in [*tables, *same]}
            assert study.figure is not None


def test_figures_are_those_that_the_papers_draw():
    assert [f.number for f in papers.load("ifcl").figures.values()] == ["4a", "4b", "4c"]
    assert [f.number for f in papers.load("mocose").figures.values()] == [str(n) for n in range(2, 13)]
    assert papers.load("ifcl").figures["fig4c"].quoted[0] == Quoted(what="step of IFCL's best score", value=8456)
    assert [q.value for q in papers.load("mocose").figures["fig2"].quoted] == [14.67]


@pytest.mark.parametrize(
    "answers", [{}, {"study": "s", "recipes": ["r"]}, {"recipes": ["r"], "unanswered": "why"}, {"recipes": []}]
)
def test_a_figure_has_one_answer(answers):
    with pytest.raises(ValueError, match="the study or the recipes that draw it"):
        Figure(number="1", caption="", x="", y="", **answers)


def test_what_answers_a_cell():
    table = Table.model_validate({
        "number": 1, "caption": "", "metric": "m", "varied": "", "study": "studies/s",
        "columns": [
            {"name": "A", "evaluator": "a", "score": "other", "metric": "n"}, {"name": "B", "unanswered": "why"},
        ],
        "rows": {
            "r": {"cells": "1 2", "recipe": "x"}, "q": {"cells": "1 -", "unanswered": "no"}, "p": {"cells": "- 3"},
        },
    })  # fmt: skip
    assert table.answer("r", "A") == Answer("study", "studies/s")
    assert table.answer("r", "B") == Answer("reason", "why")
    assert table.answer("q", "A") == Answer("reason", "no")
    assert [(row, column.name) for row, column in table.printed()] == [("r", "A"), ("r", "B"), ("q", "A"), ("p", "B")]
    assert [table.score_of(c) for c in table.columns] == ["other", "spearman"]
    assert [table.metric_of(c) for c in table.columns] == ["n", "m"]
    alone = table.model_copy(update={"study": None})
    assert alone.answer("r", "A") == Answer("recipe", "x")

"""Every printed cell, and every drawn experiment, has an answer that exists and computes it, or a reason."""

from functools import cache

import pytest

from cse_cli.recipe.cells import cells
from cse_cli.recipe.load import load
from cse_cli.recipe.study import load_study
from registry import EVALUATORS, papers
from registry.papers import AVERAGE, Answer, Table
from registry.resources import catalog
from registry.resources.models import known

STS = ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"]
TABLES = [(key, identifier) for key in papers.names() for identifier in papers.load(key).tables]
FIGURES = [(key, identifier) for key in papers.names() for identifier in papers.load(key).figures]


@cache
def recipe(name):
    return load(name).recipe


def metrics(found):
    """Evaluator → what it reports, of a recipe."""
    return {name: EVALUATORS[part.name].cls.metrics for name, part in found.evaluators.items()}


def scores(table, row, column, found):
    """Whether a recipe's runs have the score of a column."""
    column = next((other for other in table.columns if other.name == column.of), column)
    known = metrics(found)
    wanted = [column.evaluator]
    if column.evaluator == AVERAGE:
        wanted = [c.evaluator for c in table.columns if c.evaluator not in (None, AVERAGE)] or STS
    return all(table.score_of(column, row) in known.get(name, ()) for name in wanted)


@pytest.mark.parametrize(("key", "identifier"), TABLES)
def test_every_cell_is_answered(key, identifier):
    table = papers.load(key).tables[identifier]
    study = cells(load_study(table.study)) if table.study else []
    for row, column in table.printed():
        answer = table.answer(row, column.name)
        where = f"{key}/{identifier} · {row} · {column.name}"
        assert answer.text.strip(), where
        if answer.kind == "recipe" and table.kind == "scores":
            assert scores(table, row, column, recipe(answer.text)), where
        if answer.kind == "study":
            computing = [c for c in study if c.row == row and (not c.columns or column.name in c.columns)]
            assert len(computing) == 1, where
            (cell,) = computing
            assert scores(table, row, column, cell.resolved), where


@pytest.mark.parametrize(
    ("key", "identifier"), [place for place in TABLES if papers.load(place[0]).tables[place[1]].study]
)
def test_the_study_says_which_table_it_answers(key, identifier):
    assert load_study(papers.load(key).tables[identifier].study).paper == f"{key}/{identifier}"


def held(table, row, column, found):
    """A setting of a recipe, or of the checkpoint that it starts from."""
    if column.checkpoint is not None:
        return getattr(known(found.encoders[found.evaluate.encoder].params["model"]), column.checkpoint)
    return found.values()[table.rows[row].setting or column.setting]


def test_recipes_hold_the_settings_that_are_reported():
    """A misprint is held as what the rest of the paper implies."""
    checked = 0
    for key, identifier in TABLES:
        table = papers.load(key).tables[identifier]
        for row, column in table.printed() if table.kind == "settings" else ():
            answer = table.answer(row, column.name)
            if answer.kind == "recipe":
                implied = [f.implied for f in table.flags if (f.row, f.column) == (row, column.name)]
                printed = table.values(row)[column.name]
                where = (key, row, column.name)
                assert held(table, row, column, recipe(answer.text)) == (implied[0] if implied else printed), where
                checked += 1
    assert checked


def rows_of(answer):
    """How many rows the catalog has of "name/split", or of all splits of "name"; none of a split it lacks."""
    name, _, split = answer.partition("/")
    splits = catalog.entry(name).splits
    return sum(part.rows for key, part in splits.items() if split in ("", key))


def test_the_catalog_counts_the_pairs_that_are_reported():
    """Pairs of each split, and both sentences of all pairs; ConSERT's code also reads pairs that nobody scored."""
    table = papers.load("conisi").tables["data_sizes"]
    implied = {(f.row, f.column): f.implied for f in table.flags if f.implied}
    unscored = {"STS15": 2 * 5500, "STS16": 2 * 7997, "Total": 2 * (5500 + 7997)}
    for row, column in table.printed():
        answer = table.answer(row, column.name)
        assert answer.kind == "data"
        sentences = 2 if row == "unlabeled texts" and column.name != "Total" else 1
        found = sentences * rows_of(answer.text) + (unscored.get(column.name, 0) if row == "unlabeled texts" else 0)
        assert found == implied.get((row, column.name), table.values(row)[column.name]), (row, column.name)
    assert table.answer("train", "STS12").text == "sts12/train"
    flagged = {f.column for f in table.flags if f.row == "unlabeled texts" and f.kind == "not_reproducible"}
    assert flagged == set(unscored)


@pytest.mark.data
def test_gold_scores_of_the_pairs_that_are_reported():
    table = papers.load("conisi").tables["samples"]
    gold = {}
    for pair in catalog.read_pairs("sts12", "test"):
        gold.setdefault(" | ".join(one.lower().replace(".", " .") for one in (pair.first, pair.second)), pair.score)
    for row, column in table.printed():
        assert table.answer(row, column.name) == Answer("data", "sts12/test")
        assert gold[row] == table.values(row)[column.name]


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


def test_what_answers_a_cell():
    table = Table.model_validate({
        "number": 1, "caption": "", "metric": "m", "varied": "", "study": "studies/s",
        "columns": [
            {"name": "A", "evaluator": "a", "score": "other", "metric": "n"},
            {"name": "B", "not_reproduced_because": "why"},
        ],
        "rows": {
            "r": {"cells": "1 2", "recipe": "x", "score": "own"}, "q": {"cells": "1 -", "not_reproduced_because": "no"},
            "p": {"cells": "- 3"},
        },
    })  # fmt: skip
    assert table.answer("r", "A") == Answer("study", "studies/s")
    assert table.answer("r", "B") == Answer("reason", "why")
    assert table.answer("q", "A") == Answer("reason", "no")
    assert [(row, column.name) for row, column in table.printed()] == [("r", "A"), ("r", "B"), ("q", "A"), ("p", "B")]
    assert [table.score_of(c) for c in table.columns] == ["other", "spearman"]
    assert [table.score_of(c, "r") for c in table.columns] == ["own", "own"]
    assert table.score_of(table.columns[0], "p") == "other"
    alone = table.model_copy(update={"study": None})
    assert alone.answer("r", "A") == Answer("recipe", "x")
    table = Table.model_validate({
        "number": 1, "caption": "", "metric": "pairs", "varied": "", "kind": "data",
        "columns": [{"name": "A", "dataset": "stsb"}],
        "rows": {"r": {"cells": "1", "split": "dev"}, "q": {"cells": "2"}},
    })  # fmt: skip
    assert table.answer("r", "A") == Answer("data", "stsb/dev")
    assert table.answer("q", "A") == Answer("data", "stsb")
    table = Table.model_validate({
        "number": 1, "caption": "", "metric": "settings", "varied": "", "kind": "settings",
        "columns": [{"name": "A", "held_by": "x"}, {"name": "B", "held_by": "y"}],
        "rows": {"r": {"cells": "1 2", "setting": "a.b", "held_by": {"B": "z"}}},
    })  # fmt: skip
    assert [table.answer("r", name).text for name in "AB"] == ["x", "z"]


ON = {
    "BERT-base": "bert-base-uncased", "BERT-large": "bert-large-uncased", "RoBERTa-base": "roberta-base",
    "RoBERTa-large": "roberta-large",
}  # fmt: skip
FIELD = [row for row in papers.listed_rows() if row.recipe]
OPEN: set[str] = set()
"""Methods of the field's list of which some row has neither a recipe nor a reason."""


def model(found, encoder):
    """The model that an encoder starts from, through the encoders it is made of."""
    params = found.encoders[encoder].params
    return params["model"] if "model" in params else model(found, params.get("of") or params["first"])


@pytest.mark.parametrize("row", FIELD, ids=lambda row: f"{row.encoder} {row.method} {row.list}")
def test_a_listed_row_has_a_recipe_with_its_encoder(row):
    found = recipe(row.recipe)
    assert all(row.score in metrics(found)[name] for name in row.cells)
    if row.method == "TNCSE":  # it starts from the authors' own encoders
        assert model(found, found.evaluate.encoder) == f"TNCSE_{row.encoder.removesuffix('-base')}_encoder1"
    elif row.method == "GloVe(avg.)":  # it stands among the rows of BERT base, and reads no such model
        assert found.encoders["online"].name == "word_vectors"
    else:
        start = model(found, found.evaluate.encoder)  # DCLR starts from a SimCSE of it, InfoCSE from a Condenser of it
        assert start.endswith(ON[row.encoder]) or (row.method == "InfoCSE" and "condenser" in start)


def test_every_listed_row_is_answered():
    """By a recipe of its own or a reason; a method without either is one of those that are known to be open."""
    listed = papers.field_rows()
    assert len({row.recipe for row in FIELD}) == len(FIELD) >= 105
    assert not [row for row in FIELD if row.not_reproduced_because]
    assert {row.method for row in listed if row.answer is None} <= OPEN
    reasons = {row.method for row in listed if row.answer is not None and row.answer.kind == "reason"}
    assert reasons == {
        "USE", "PaSeR", "MCSE+coco", "MCSE+flickr", "EASE", "L2P-CSR", "Prompt+L2P-CSR", "VisualCSE", "AudioCSE",
        "RankEncoder",
    }  # fmt: skip

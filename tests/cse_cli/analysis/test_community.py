"""The public list: every row and its recipe, your runs next to the rows that they reproduce and among the others."""

from pathlib import Path

import pytest

from cse_cli.analysis import table_view
from cse_cli.analysis.leaderboard import COMMUNITY_SOURCE
from cse_cli.analysis.table_view import checked_recipes, remarks, text_table
from cse_cli.core.results import STS_TASKS
from cse_cli.recipe.load import load
from registry import papers
from registry.papers.audits import Code, Trajectory
from tests.cse_cli.analysis.leaderboard_runs import ours, planned, result, tables

pytestmark = pytest.mark.usefixtures("nothing_here")
ENCODERS = ["bert-base", "bert-large", "roberta-base", "roberta-large"]


def esimcse(seed, score, **changes):
    about = {"recipe": "esimcse_en", "recipe_hash": load("esimcse_en").recipe.hash(), "paper": None}
    return result(seed, score, **{**about, **changes})


THREE = planned([esimcse(seed, 77.0 + seed / 10) for seed in range(3)])


def field(results=(), status="current", **query):
    """Return encoder → table of the community leaderboard, and of encoders that it does not have."""
    found = tables(list(results), status, community=True, **query)
    return {table.encoder: table for table in found if table.kind != "community" or table.table == "community"}


def test_every_listed_row_is_in_its_encoder_table_the_best_first():
    found = field()
    assert list(found) == ENCODERS
    for encoder, table in found.items():
        listed = [row for row in papers.field_rows() if row.encoder.lower() == encoder]
        ranked = sorted(listed, key=lambda row: -row.avg)
        assert [(row.name, row.recipe) for row in table.rows] == [(row.method, row.recipe or None) for row in ranked]
    rows = [row for table in found.values() for row in table.rows]
    assert len(rows) == 113
    assert found["bert-base"].rows[0].scores["Avg"].mean == 80.36
    doubtful = [row for row in rows if row.scores["Avg"].marks]  # its average is wrong
    assert len(doubtful) == 8
    assert all(row.notes[0].startswith("the mean of the row is ") for row in doubtful)


def test_compared_recipes_are_counted(monkeypatch):
    code, trained = Code.model_construct(authors=True), Trajectory.model_construct()
    badges = {
        "esimcse_en": papers.Badge("esimcse_en", equations=("one",), code=(code,), trajectories=(trained,)),
        "dclr_en": papers.Badge("dclr_en", code=(Code.model_construct(authors=False),)),
        "simcse_en": papers.Badge("simcse_en", equations=("one",)),
    }
    monkeypatch.setattr(table_view, "badge_of", lambda name: badges.get(name, papers.Badge(name)))
    table = field()["bert-base"]
    names = {row.recipe for row in table.rows if row.recipe}
    assert remarks(table)[0] == f"source: {COMMUNITY_SOURCE}"
    assert COMMUNITY_SOURCE in Path(papers.__file__).with_name("field_leaderboard.tsv").read_text(encoding="utf-8")
    assert remarks(table)[1] == (
        f"{len(names)} recipes: 1 compared with the authors' code, 1 compared with code of others, "
        f"1 compared only with equations, {len(names) - 3} not compared; "
        "1 trained next to the authors' program (docs/fidelity.md)"
    )
    assert checked_recipes([row for row in table.rows if not row.recipe]) == []


@pytest.mark.slow
def test_other_data_is_in_other_tables():
    """Runs with labels or with sentences of a language model are never ranked among those without."""
    ran = [
        esimcse(0, score, recipe=name, recipe_hash=load(name).recipe.hash())
        for name, score in (("sup_simcse_en", 82.0), ("gcse_en", 82.5), ("distillcse_en", 78.5))
    ]
    found = {
        table.table: {row.recipe for row in ours(table)} for table in tables(ran, community=True, encoder="bert-base")
    }
    assert found == {
        "community": set(), "recent": {"distillcse_en"}, "llm_data": {"gcse_en"}, "labels": {"sup_simcse_en"},
    }  # fmt: skip
    (gcse,) = [row for table in tables(ran, community=True) for row in ours(table) if row.recipe == "gcse_en"]
    assert (gcse.reproduces, gcse.scores["Avg"].reference) == ("GCSE", 81.98)


def test_your_runs_are_below_the_row_they_reproduce_or_ranked_by_average():
    table = field(THREE)["bert-base"]
    place = [row.name for row in table.rows].index("ESimCSE")
    row = table.rows[place + 1]
    assert (row.source, row.recipe, row.seeds, row.reproduces) == ("measured", "esimcse_en", (0, 1, 2), "ESimCSE")
    average = row.scores["Avg"]
    assert (average.mean, average.std, average.n) == (pytest.approx(77.1), pytest.approx(0.1), 3)
    # printed 78.27; t(1 − 0.05/8, 2) · 0.1 · √(1 + 1/3) = 8.860 · 0.1155 = 1.023
    assert (average.reference, average.marks) == (78.27, ("below",))
    assert not ours(field(THREE)["bert-large"])
    table = field([result(seed, 78.20) for seed in range(2)])["bert-base"]
    names = [row.recipe if row.source == "measured" else row.name for row in table.rows]
    place = names.index("ifcl_en")
    assert (names[place - 1], names[place + 1]) == ("ESimCSE", "PCL")  # 78.27 and 78.14
    assert ours(table)[0].reproduces is None
    assert all(score.difference is None for score in ours(table)[0].scores.values())


def test_word_vectors_are_with_bert_base_as_in_the_list_and_another_model_answers_no_row():
    run = result(0, 61.3, recipe="glove_en", recipe_hash="b" * 16, model="glove.840B.300d.txt", paper=None)
    for query in ({}, {"encoder": "bert-base"}):
        (row,) = ours(field([run], **query)["bert-base"])
        assert row.reproduces == "GloVe(avg.)"
    found = field([esimcse(0, 60.0, model="mini_en")], "other_model")
    assert list(found) == [*ENCODERS, "mini_en"]
    assert not any(ours(found[encoder]) for encoder in ENCODERS)


def test_a_row_with_a_score_of_its_own_is_compared_by_it():
    """The list's BERT-Whitening of BERT large weights subsets by their pairs."""
    scores = {task: {"spearman": 50.0, "spearman_wmean": 70.0 + place} for place, task in enumerate(STS_TASKS)}
    run = result(0, recipe="bert_whitening_en_large", recipe_hash="b" * 16, model="bert-large-uncased", scores=scores)
    (row,) = ours(field([run.model_copy(update={"paper": None})])["bert-large"])
    assert (row.scores["STS13"].mean, row.scores["STS13"].reference) == (71.0, 74.6)
    assert row.scores["Avg"].mean == pytest.approx(73.0)


def test_a_narrow_table_has_the_average_alone():
    (table,) = field(THREE, encoder="bert-base").values()
    assert text_table(table, wide=False).headings == ("n", "Avg", "recipe")
    wide = text_table(table)
    assert wide.headings == ("n", *table.columns, "recipe")
    texts = {row.label: [cell.text for cell in row.cells] for row in wide.rows}
    assert texts["ESimCSE"][-2:] == ["78.27", "esimcse_en"]
    assert texts["your runs"][0] == "3"
    assert texts["to ESimCSE"][-2:] == ["−1.17▼", ""]
    assert texts["USE"][-1] == ""

"""Cells with another quantity than the measured one are never compared. Cells that are differences of others."""

import pytest

from cse_cli.analysis.leaderboard import FinishedRuns, LeaderboardQuery, score_tables
from cse_cli.analysis.leaderboard_view import legend_lines, text_table
from cse_cli.analysis.papers import reported_rows, table_of
from cse_cli.analysis.score_table import SYMBOLS, score_against_reported
from cse_cli.core.results import STS_TASKS, PaperRow
from cse_cli.recipe.cells import cells
from cse_cli.recipe.load import load
from cse_cli.recipe.study import load_study
from registry import papers
from tests.cse_cli.analysis.leaderboard_runs import result, tables

OTHER = {"other_split", "other_aggregate", "other_metric"}


def flagged(table, row, column):
    own = {"other_aggregate"} if table.rows[row].score else set()  # our score then is the aggregate that is printed
    kinds = {flag.kind for flag in table.flags if flag.row in (None, row) and flag.column in (None, column)}
    return bool(kinds & (OTHER - own))


def test_cells_of_another_quantity_are_never_significant():
    answered = 0
    for printed in reported_rows():
        table = table_of(printed)
        for column, theirs in printed.scores.items():
            values = [theirs.target + 100 + change for change in (0.0, 0.1, 0.2)]
            score = score_against_reported(values, theirs, "planned").marked()
            other = flagged(table, printed.name, column)
            assert (score.significant, score.marks) == (not other, ("incomparable",) if other else ("above",))
            assert score.difference == pytest.approx(100.1)
            scored = table.kind == "scores" and table.answer(printed.name, column).kind != "reason"
            answered += other and scored
    assert answered == 24


@pytest.mark.parametrize(
    ("study", "address", "rows"),
    [
        ("studies/mocose_transfer", "mocose/2", {"MoCoSE": "bert-base", "MoCoSE-BERT (large)": "bert-large"}),
        (
            "studies/ifcl_mutual_information",
            "ifcl/4",
            {"IFCL-BERT": "bert-base", "IFCL-BERT w/o TL": "bert-base", "SimCSE": "bert-base"},
        ),
    ],
)
def test_a_study_of_another_quantity_has_no_marks(study, address, rows):
    key, _, number = address.partition("/")
    table = next(one for one in papers.load(key).tables.values() if one.number == int(number))
    names = [column.evaluator for column in table.columns if column.evaluator != "avg"]
    ran = [
        result(
            seed,
            recipe=cell.recipe,
            recipe_hash=cell.hash,
            model=f"{rows[cell.row]}-uncased",
            paper=None,
            scores={name: {table.score: 10.0 + seed / 100} for name in names},
        )
        for cell in cells(load_study(study))
        if cell.row in rows
        for seed in range(3)
    ]
    (block,) = score_tables(FinishedRuns(ran, {}, "current"), LeaderboardQuery(table=address))
    ours = [score for row in block.rows if row.source == "measured" for score in row.scores.values()]
    printed = sum(number is not None for row in rows for number in table.values(row).values())
    ours = [score for score in ours if score.reference is not None]
    assert len(ours) == printed
    assert {score.marks for score in ours} == {("incomparable",)}
    assert not any(score.significant for score in ours)
    shown = [cell for line in text_table(block).rows for cell in line.cells if SYMBOLS["incomparable"] in cell.text]
    assert len(shown) == len(ours)
    assert not any(cell.strong for cell in shown)
    assert any(line.startswith("≠") for line in legend_lines([block]))


def ablation_runs(seeds=(0, 1, 2)):
    """Averages 76, 78.5, 77 and 67, each seed 0.1 higher than the one before; ConIsI's own twice that."""
    found = []
    for cell, (score, step) in zip(
        cells(load_study("studies/conisi_ablation")), [(76, 0.1), (78.5, 0.2), (77, 0.1), (67, 0.1)], strict=True
    ):
        for seed in seeds:
            scores = {task: {"spearman": score + step * seed} for task in STS_TASKS}
            found.append(result(seed, recipe=cell.recipe, recipe_hash=cell.hash, scores=scores, paper=None))
    return found


def test_a_column_of_differences_is_taken_seed_by_seed():
    (table,) = tables(ablation_runs(), table="conisi/5")
    ours = {row.name: row.scores for row in table.rows if row.source == "measured"}
    without = ours["w/o fine-grained classification loss"]
    assert without["to ConIsI"].mean == pytest.approx(77 - 78.5 - 0.1)  # −1.5, −1.6, −1.7
    assert without["to ConIsI"].std == pytest.approx(0.1)
    assert without["to SimCSE"].mean == pytest.approx(1.0)
    assert without["to SimCSE"].std is None, "every seed has the same difference"
    assert (without["to ConIsI"].reference, without["to ConIsI"].n) == (-1.3, 3)
    assert "to SimCSE" not in ours["w/o contrastive loss"]  # nothing is printed there
    assert set(ours["SimCSE-BERT-base"]) == {"Avg"}


def test_differences_need_seeds_that_both_have():
    ran = [r for r in ablation_runs() if r.recipe != "simcse_en"]
    (table,) = tables(ran, table="conisi/5")
    ours = {row.name: row.scores for row in table.rows if row.source == "measured"}
    assert set(ours["w/o fine-grained classification loss"]) == {"Avg", "to ConIsI"}


def test_a_row_with_a_metric_of_its_own_is_compared_by_it():
    """BERT large of IFCL's Table 1 weights subsets by their pairs."""
    recipe = load("bert_avg_en_large").recipe
    scores = {task: {"spearman": 50.0, "spearman_wmean": 60.0 + place} for place, task in enumerate(STS_TASKS)}
    about = {"recipe": "bert_avg_en_large", "recipe_hash": recipe.hash(), "model": "bert-large-uncased"}
    ran = [result(0, scores=scores, paper=PaperRow(key="ifcl", table="sts_en", row="BERT large"), **about)]
    (own,) = tables(ran, table="ifcl/1")
    (encoder,) = tables(ran)
    for table in (own, encoder):
        (row,) = [row for row in table.rows if row.source == "measured" and row.scores]
        assert (row.scores["STS13"].mean, row.scores["STS13"].reference) == (61.0, 61.17)
        assert row.scores["Avg"].mean == pytest.approx(63.0)


def on(data, seed=0, score=70.0, **changes):
    """Return a run with a digest for the data of each evaluator: {"test": "own.tsv/test"}."""
    scored = {name: {named: f"{named} read"} for name, named in data.items()}
    changes = {"paper": None, "scores": {name: {"spearman": score} for name in data}, **changes}
    return result(seed, score, scored_on=scored, **changes)


def test_a_score_of_other_data_is_not_in_the_column_of_a_data_set():
    seven = {task: f"{task}/test" for task in STS_TASKS}
    for other in ("stsb_open/test", "stsb/dev", "own.tsv/test"):
        right, wrong = on(seven), on({**seven, "stsb": other}, recipe_hash="b" * 16, recipe="other")
        found = {row.recipe: row.scores for row in rows_of(tables([right, wrong])[0])}
        assert set(found["ifcl_en"]) > {"STS-B", "STS12", "Avg"}
        assert set(found["other"]) == {  # nor an average of it
            "STS12", "STS13", "STS14", "STS15", "STS16", "SICK-R", f"stsb ({other})",
        }  # fmt: skip
        alone = tables([on({"stsb": other})])
        assert [(table.heading, table.columns) for table in alone] == [(f"bert-base (en) [stsb: {other}]", ("stsb",))]


def rows_of(table):
    return [row for row in table.rows if row.source == "measured"]


def test_a_column_has_the_aggregate_of_the_paper():
    scores = {task: {"spearman": 60.0, "spearman_all": 70.0, "spearman_mean": 60.0} for task in STS_TASKS}
    (row,) = rows_of(tables([result(scores=scores)])[0])
    assert {score.mean for score in row.scores.values()} == {70.0}


def test_equal_names_of_other_data_are_two_tables():
    first, second = on({"test": "one.tsv/test"}), on({"test": "two.tsv/test"}, recipe="other", recipe_hash="b" * 16)
    shown = [(table.heading, len(rows_of(table))) for table in tables([first, second])]
    assert shown == [("bert-base (en) [test: one.tsv/test]", 1), ("bert-base (en) [test: two.tsv/test]", 1)]
    (together,) = tables([first, on({"test": "one.tsv/test"}, recipe="other", recipe_hash="b" * 16)])
    assert (together.heading, len(rows_of(together))) == ("bert-base (en)", 2)


def test_equal_names_of_other_data_are_two_columns():
    seven = {task: f"{task}/test" for task in STS_TASKS}
    both = [on({**seven, "more": f"{name}.tsv/test"}, recipe=name, recipe_hash=name[0] * 16) for name in ("one", "two")]
    (table,) = tables(both)
    assert table.columns[-2:] == ("more (one.tsv/test)", "more (two.tsv/test)")
    assert [list(row.scores)[-1] for row in rows_of(table)] == list(table.columns[-2:])


@pytest.mark.parametrize("dev", ["one.tsv/dev", "two.tsv/dev"])
def test_a_configuration_is_not_chosen_by_other_dev_data(dev):
    def tried(value, dev, score):
        data, metric = {"dev": dev, "test": "one.tsv/test"}, "dev.spearman"
        return on(data, score=score, recipe_hash=value * 16, metric_for_best_model=metric, model="mini_en")

    runs = [tried("a", "one.tsv/dev", 50.0), tried("b", "one.tsv/dev", 60.0), tried("c", dev, 70.0)]
    hashes = [row.recipe_hash for table in tables(runs) for row in rows_of(table)]
    assert hashes == (["c" * 16] if dev == "one.tsv/dev" else ["b" * 16, "c" * 16])

"""Cells that print another quantity than ours, by metric, split, aggregate or N: shown beside ours, never compared."""

import pytest

from cse_cli.analysis.leaderboard import FinishedRuns, LeaderboardQuery, score_tables
from cse_cli.analysis.leaderboard_view import legend_lines, text_table
from cse_cli.analysis.papers import reported_rows
from cse_cli.analysis.score_table import SYMBOLS, score_against_reported
from cse_cli.recipe.cells import cells
from cse_cli.recipe.study import load_study
from registry import papers
from tests.cse_cli.analysis.leaderboard_runs import current, result

OTHER = {"other_split", "other_aggregate", "other_metric"}


def flagged(table, row, column):
    own = {"other_aggregate"} if table.rows[row].score else set()  # our score then is the aggregate that is printed
    kinds = {flag.kind for flag in table.flags if flag.row in (None, row) and flag.column in (None, column)}
    return bool(kinds & (OTHER - own))


def test_cells_of_another_quantity_are_never_significant():
    answered = 0
    for printed in reported_rows():
        for column, theirs in printed.score_row().scores.items():
            values = [theirs.target + 100 + change for change in (0.0, 0.1, 0.2)]
            score = score_against_reported(values, theirs, "planned").marked()
            other = flagged(printed.table, printed.name, column)
            assert (score.significant, score.marks) == (not other, ("incomparable",) if other else ("above",))
            assert score.difference == pytest.approx(100.1)
            scored = printed.table.kind == "scores" and printed.table.answer(printed.name, column).kind != "reason"
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
    (block,) = score_tables(FinishedRuns(ran, {}, current), LeaderboardQuery(table=address))
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

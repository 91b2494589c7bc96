"""A paper's table with the runs of a study: cell by cell, the trend, and what is missing."""

from datetime import UTC, datetime

import pytest
from scipy.stats import spearmanr

from cse_cli.analysis.leaderboard import FinishedRuns, LeaderboardQuery, score_tables
from cse_cli.analysis.paper_tables import trend
from cse_cli.core.identity import Identity, Plan
from cse_cli.core.results import STS_TASKS
from cse_cli.recipe.cells import cell_tag, cells
from cse_cli.recipe.study import load_study
from registry.errors import CseError
from tests.cse_cli.analysis.leaderboard_runs import result, written

STUDY, MINI = "studies/ifcl_queue_length", "studies/mini/ifcl_queue_length"


@pytest.fixture(scope="module")
def asked_for():
    return {name: {(cell.row, *cell.columns): cell for cell in cells(load_study(name))} for name in (STUDY, MINI)}


def run(cell, seed, score, **changes):
    scores = {task: {"spearman": score} for task in (*STS_TASKS, "cstsb")}
    values = {"recipe": cell.recipe, "recipe_hash": cell.hash, "scores": scores, "paper": None}
    return result(seed, **{**values, **changes})


def english(cells_of, number):
    (found,) = [cell for key, cell in cells_of.items() if key[0] == f"M={number}" and "C-STS-B" not in key[1:]]
    return found


def filled(asked_for, name, model, scores):
    return [
        run(english(asked_for[name], number), seed, score + seed / 10, model=model, **small(name, score + seed / 10))
        for number, score in scores.items()
        for seed in range(3)
    ]


def small(name, score):
    """Return the scores of a small recipe, which has its own evaluators."""
    return {"scores": {"dev": {"spearman": 0.0}, "test": {"spearman": score}}} if name == MINI else {}


SCORES = {320: 78.0, 384: 79.0, 416: 80.0, 448: 79.5, 512: 77.0}
"""In the order of the paper's column: 78.76 79.15 80.27 79.79 78.13, but for its ends."""


def shown(results, tags=None, table="ifcl/5"):
    return score_tables(FinishedRuns(results, tags or {}, "current"), LeaderboardQuery(table=table))


def ours(block):
    return {row.name: row.scores for row in block.rows if row.source == "measured"}


@pytest.mark.slow
@pytest.mark.parametrize("address", ["ifcl/5", "ifcl/queue_length", "queue_length"])
def test_our_cells_stand_beside_the_papers(asked_for, address):
    (block,) = shown(filled(asked_for, STUDY, "bert-base-uncased", SCORES), table=address)
    assert (block.kind, block.study, block.columns) == ("study", STUDY, ("STS-B", "C-STS-B"))
    score = ours(block)["M=416"]["STS-B"]
    assert (score.n, score.mean, score.reference) == (3, pytest.approx(80.1), 80.27)
    assert score.marks == ("within",)


@pytest.mark.slow
def test_the_trend_is_a_rank_correlation(asked_for):
    (block,) = shown(filled(asked_for, STUDY, "bert-base-uncased", SCORES))
    (trend,) = block.trends
    # paper's ranks 2 3 5 4 1, ours 2 3 5 4 1
    assert (trend.along, trend.n, trend.rho) == ("STS-B", 5, pytest.approx(1.0))
    assert trend.p == pytest.approx(2 / 120)


@pytest.mark.slow
def test_what_is_missing_is_told_with_the_command(asked_for):
    few = [r for r in filled(asked_for, STUDY, "bert-base-uncased", {320: 78.0, 384: 79.0}) if r.seed < 2]
    (block,) = shown(few)
    assert block.command == f"cse run {STUDY}"
    lacking = {(cell.row, *cell.columns): (cell.seeds, cell.requested) for cell in block.missing}
    assert lacking["M=320", "STS-B"] == (2, 3)
    assert lacking["M=448", "STS-B"] == (0, 3)
    text = written("md", few, table="ifcl/5")
    assert f"missing, cse run {STUDY}: " in text
    assert "M=320 · STS-B (2 of 3 seeds)" in text


def test_a_small_encoder_has_a_trend_and_no_difference(asked_for):
    (block,) = shown(filled(asked_for, MINI, "mini_en", SCORES))
    assert block.study == MINI
    assert all(score.difference is None for scores in ours(block).values() for score in scores.values())
    assert block.trends[0].rho == pytest.approx(1.0)
    assert any("not the paper's encoder" in remark for remark in block.remarks)
    assert "the measured scores are test.spearman, the paper's are stsb" in block.remarks
    assert ours(block)["M=320"]["STS-B"].mean == pytest.approx(78.1)


@pytest.mark.slow
def test_a_studys_own_score_fills_averages_and_differences():
    cells_of = {cell.row: cell for cell in cells(load_study("studies/mini/conisi_ablation"))}
    scores = {"SimCSE-BERT-base": 40.0, "ConIsI-s-BERT-base": 43.0, "w/o fine-grained classification loss": 41.5}
    ran = [run(cells_of[row], 0, 0.0, model="mini_en", **small(MINI, score)) for row, score in scores.items()]
    (block,) = shown(ran, table="conisi/5")
    found = {row: {name: round(score.mean, 2) for name, score in of_row.items()} for row, of_row in ours(block).items()}
    assert {row: of_row["Avg"] for row, of_row in found.items()} == scores
    assert found["w/o fine-grained classification loss"]["to SimCSE"] == 1.5
    assert found["w/o fine-grained classification loss"]["to ConIsI"] == -1.5
    assert block.remarks.count("the measured scores are test.spearman, the paper's are avg") == 1
    (full,) = shown([run(cell, 0, 0.0) for cell in cells(load_study("studies/conisi_ablation"))], table="conisi/5")
    assert not [remark for remark in full.remarks if "the measured scores" in remark]


def test_both_variants_have_a_table_the_papers_encoder_first(asked_for):
    both = [*filled(asked_for, MINI, "mini_en", SCORES), *filled(asked_for, STUDY, "bert-base-uncased", SCORES)]
    assert [block.study for block in shown(both)] == [STUDY, MINI]


@pytest.mark.slow
def test_runs_of_a_changed_cell_are_stale(asked_for):
    cell = english(asked_for[STUDY], 416)
    old = [run(cell, seed, 10.0, recipe_hash="0" * 16, run_id=f"run{seed}") for seed in range(3)]
    tags = {r.run_id: cell_tag(load_study(STUDY), cell) for r in old}
    (block,) = shown(old, tags)
    score = ours(block)["M=416"]["STS-B"]
    assert (score.marks, score.significant) == (("stale",), False)
    assert any((cell.row, cell.seeds) == ("M=416", 0) for cell in block.missing)
    (block,) = shown([*old, *(run(cell, seed, 80.0) for seed in range(3))], tags)
    assert ours(block)["M=416"]["STS-B"].mean == 80.0


def test_cells_of_a_study_are_variants_and_not_stale(asked_for):
    cell = english(asked_for[STUDY], 320)
    ran = [run(cell, seed, 77.0, run_id=f"run{seed}") for seed in range(3)]
    changes = {one.run_id: tuple(map(str, cell.overrides)) for one in ran}
    for made, stale in ((changes, False), ({}, True)):
        (block,) = score_tables(FinishedRuns(ran, changes=made), LeaderboardQuery())
        (row,) = [row for row in block.rows if row.source == "measured"]
        assert ({score.marks for score in row.scores.values()} == {("stale",)}) is stale


def test_a_cell_shows_the_newest_of_two_experiments(asked_for):
    cell = english(asked_for[STUDY], 416)
    identities = [Identity(settings=cell.hash, text=letter * 64) for letter in "ab"]
    old = [run(cell, seed, 10.0, identity=identities[0]) for seed in range(3)]
    later = datetime(2026, 2, 1, tzinfo=UTC)
    new = [run(cell, seed, 80.0, identity=identities[1], finished=later) for seed in range(2)]
    (block,) = shown([*old, *new])
    (row,) = [row for row in block.rows if row.source == "measured"]
    assert (row.scores["STS-B"].mean, row.seeds) == (80.0, (0, 1))
    assert any("text aaaaaaaa / bbbbbbbb" in note for note in row.notes)
    assert ("M=416", 2) in {(cell.row, cell.seeds) for cell in block.missing}


@pytest.mark.slow
def test_seeds_of_a_complete_plan_are_tested_at_once(asked_for):
    plan = Plan(seeds=(0, 1, 2), made=datetime(2025, 1, 1, tzinfo=UTC))
    ran = filled(asked_for, STUDY, "bert-base-uncased", {416: 80.8})
    (free,) = shown(ran)
    (planned,) = shown([one.model_copy(update={"plan": plan}) for one in ran])
    assert ours(free)["M=416"]["STS-B"].marks == ("within",)
    assert ours(planned)["M=416"]["STS-B"].marks == ("above",)


@pytest.mark.slow
def test_a_table_without_runs_has_the_commands():
    (block,) = shown([])
    assert (block.kind, ours(block)) == ("table", {})
    assert block.command == f"cse run {STUDY}; cse run {MINI}; cse run studies/open/queue_length"
    assert f"no runs yet: {block.command}" in " ".join(written("table", [], table="ifcl/5").split())


def test_a_table_printed_sideways_has_its_trend_along_the_row():
    study = load_study("studies/conisi_lambda")
    ran = [
        run(cell, 0, 70.0 + place, model="bert-base-uncased") for place, cell in enumerate(cells(study)) if place < 4
    ]
    (block,) = shown(ran, table="conisi/7")
    (trend,) = block.trends
    # the paper's first four: 77.00 77.97 77.42 77.78, ranks 1 4 2 3; ours rise: Σd² = 0+4+1+1, ρ = 1 − 36/60
    assert (trend.along, trend.n, trend.rho) == ("Avg", 4, pytest.approx(0.4))


def test_an_unknown_number_lists_the_known():
    with pytest.raises(CseError, match="no table '9' in IFCL"):
        shown([], table="ifcl/9")
    with pytest.raises(CseError, match="different papers"):
        score_tables(FinishedRuns([]), LeaderboardQuery(paper="mocose", table="ifcl/5"))


def test_a_number_may_mean_two_tables():
    assert [block.table for block in shown([], table="mocose/6")] == ["width", "batch_size"]


# Rank correlation of short columns, with p-values that count every order.


def test_three_cells_in_the_same_order_prove_nothing():
    found = trend("x", [1.0, 2.0, 3.0], [10.0, 20.0, 30.0])
    assert (found.rho, found.n, found.exact) == (pytest.approx(1.0), 3, True)
    assert found.p == pytest.approx(2 / 6)  # of six orders, this one and its reverse


def test_five_cells_by_hand():
    # ranks 1 2 3 4 5 and 2 1 3 4 5: Σd² = 2, ρ = 1 − 6·2 / (5·24) = 0.9; of 120 orders 1 has Σd² 0 and 4 have 2
    found = trend("x", [1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 1.0, 3.0, 4.0, 5.0])
    assert found.rho == pytest.approx(0.9)
    assert found.p == pytest.approx(2 * (1 + 4) / 120)


def test_ties_share_their_ranks():
    ours, paper = [1.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 3.0]
    assert trend("x", ours, paper).rho == pytest.approx(spearmanr(ours, paper).statistic)


def test_many_cells_are_approximated():
    ours = [float(value) for value in (1, 3, 2, 5, 4, 7, 6, 9, 8)]
    found = trend("x", ours, sorted(ours))
    assert not found.exact
    assert found.p == pytest.approx(spearmanr(ours, sorted(ours)).pvalue)


def test_two_cells_are_no_trend_and_a_constant_has_none():
    assert trend("x", [1.0, 2.0], [1.0, 2.0]) is None
    assert trend("x", [1.0, 1.0, 1.0], [1.0, 2.0, 3.0]).rho is None

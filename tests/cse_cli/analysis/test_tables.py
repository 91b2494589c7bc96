"""A paper's table with your runs and those of a study: trends, missing cells, other quantities and other data."""

from datetime import UTC, datetime

import pytest
from scipy.stats import spearmanr

from cse_cli.analysis.experiments import FinishedRuns
from cse_cli.analysis.leaderboard import LeaderboardQuery, score_tables
from cse_cli.analysis.papers import reported_rows, table_of
from cse_cli.analysis.score_table import MARKS, measure
from cse_cli.analysis.table_view import legend_lines, text_table
from cse_cli.core.identity import Identity, Plan
from cse_cli.core.results import STS_TASKS, PaperRow
from cse_cli.core.stats import trend
from cse_cli.recipe.cells import cell_tag, cells
from cse_cli.recipe.load import load
from cse_cli.recipe.study import load_study
from registry import papers
from registry.errors import CseError
from tests.cse_cli.analysis.leaderboard_runs import ours as rows_of
from tests.cse_cli.analysis.leaderboard_runs import result, tables, written

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
    return {row.name: row.scores for row in rows_of(block)}


@pytest.mark.slow
def test_our_cells_stand_beside_the_papers_with_their_trend(asked_for):
    ran = filled(asked_for, STUDY, "bert-base-uncased", SCORES)
    (block,) = shown(ran)
    assert [shown(ran, table=address) for address in ("ifcl/queue_length", "queue_length")] == [[block]] * 2
    assert (block.kind, block.study, block.columns) == ("study", STUDY, ("STS-B", "C-STS-B"))
    score = ours(block)["M=416"]["STS-B"]
    assert (score.n, score.mean, score.reference) == (3, pytest.approx(80.1), 80.27)
    assert score.marks == ("within",)
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


@pytest.mark.slow
def test_a_small_encoder_has_a_trend_and_no_difference(asked_for):
    small_runs = filled(asked_for, MINI, "mini_en", SCORES)
    (block,) = shown(small_runs)
    assert block.study == MINI
    assert all(score.difference is None for scores in ours(block).values() for score in scores.values())
    assert block.trends[0].rho == pytest.approx(1.0)
    assert any("not the paper's encoder" in remark for remark in block.remarks)
    assert "the measured scores are test.spearman, the paper's are stsb" in block.remarks
    assert ours(block)["M=320"]["STS-B"].mean == pytest.approx(78.1)
    both = [*small_runs, *filled(asked_for, STUDY, "bert-base-uncased", SCORES)]
    assert [block.study for block in shown(both)] == [STUDY, MINI]  # the paper's encoder first


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


@pytest.mark.slow
def test_cells_of_a_study_are_variants_and_not_stale(asked_for):
    cell = english(asked_for[STUDY], 320)
    ran = [run(cell, seed, 77.0, run_id=f"run{seed}") for seed in range(3)]
    changes = {one.run_id: tuple(map(str, cell.overrides)) for one in ran}
    for made, stale in ((changes, False), ({}, True)):
        (block,) = score_tables(FinishedRuns(ran, changes=made), LeaderboardQuery())
        (row,) = rows_of(block)
        assert ({score.marks for score in row.scores.values()} == {("stale",)}) is stale


@pytest.mark.slow
def test_a_cell_shows_the_newest_of_two_experiments(asked_for):
    cell = english(asked_for[STUDY], 416)
    identities = [Identity(settings=cell.hash, text=letter * 64) for letter in "ab"]
    old = [run(cell, seed, 10.0, identity=identities[0]) for seed in range(3)]
    later = datetime(2026, 2, 1, tzinfo=UTC)
    new = [run(cell, seed, 80.0, identity=identities[1], finished=later) for seed in range(2)]
    (block,) = shown([*old, *new])
    (row,) = rows_of(block)
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


@pytest.mark.slow
def test_a_table_printed_sideways_has_its_trend_along_the_row():
    study = load_study("studies/conisi_lambda")
    ran = [
        run(cell, 0, 70.0 + place, model="bert-base-uncased") for place, cell in enumerate(cells(study)) if place < 4
    ]
    (block,) = shown(ran, table="conisi/7")
    (trend,) = block.trends
    # the paper's first four: 77.00 77.97 77.42 77.78, ranks 1 4 2 3; ours rise: Σd² = 0+4+1+1, ρ = 1 − 36/60
    assert (trend.along, trend.n, trend.rho) == ("Avg", 4, pytest.approx(0.4))


@pytest.mark.slow
def test_a_number_may_be_unknown_or_mean_two_tables():
    with pytest.raises(CseError, match="no table '9' in IFCL"):
        shown([], table="ifcl/9")
    with pytest.raises(CseError, match="different papers"):
        score_tables(FinishedRuns([]), LeaderboardQuery(paper="mocose", table="ifcl/5"))
    assert [block.table for block in shown([], table="mocose/6")] == ["width", "batch_size"]


@pytest.mark.parametrize(
    ("ours", "paper", "rho", "p"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0, 2 / 6),  # of six orders, this one and its reverse
        # Σd² = 2, ρ = 1 − 6·2 / (5·24) = 0.9; of 120 orders 1 has Σd² 0 and 4 have 2
        ([1, 2, 3, 4, 5], [2, 1, 3, 4, 5], 0.9, 2 * (1 + 4) / 120),
        ([1, 1, 2, 3], [1, 2, 3, 3], spearmanr([1, 1, 2, 3], [1, 2, 3, 3]).statistic, None),  # ties share ranks
        ([1, 3, 2, 5, 4, 7, 6, 9, 8], list(range(9)), *spearmanr([1, 3, 2, 5, 4, 7, 6, 9, 8], range(9))),  # approximate
    ],
)
def test_the_rank_correlation_of_columns_and_its_p_value(ours, paper, rho, p):
    found = trend("x", ours, paper)
    assert (found.rho, found.n, found.exact) == (pytest.approx(rho), len(ours), len(ours) < 9)
    assert p is None or found.p == pytest.approx(p)
    assert trend("x", [1.0, 2.0], [1.0, 2.0]) is None
    assert trend("x", [1.0, 1.0, 1.0], [1.0, 2.0, 3.0]).rho is None


OTHER = {"other_split", "other_aggregate", "other_metric"}


def flagged(table, row, column):
    own = {"other_aggregate"} if table.rows[row].score else set()  # our score then is the aggregate that is printed
    kinds = {flag.kind for flag in table.flags if flag.row in (None, row) and flag.column in (None, column)}
    return bool(kinds & (OTHER - own))


@pytest.mark.slow
def test_cells_of_another_quantity_are_never_significant():
    answered = 0
    for printed in reported_rows():
        table = table_of(printed)
        for column, theirs in printed.scores.items():
            values = [theirs.target + 100 + change for change in (0.0, 0.1, 0.2)]
            score = measure(values, theirs, "planned").marked()
            other = flagged(table, printed.name, column)
            assert (score.significant, score.marks) == (not other, ("incomparable",) if other else ("above",))
            assert score.difference == pytest.approx(100.1)
            scored = table.kind == "scores" and table.answer(printed.name, column).kind != "reason"
            answered += other and scored
    assert answered == 24


@pytest.mark.slow
def test_a_study_of_another_quantity_has_no_marks():
    models = {"MoCoSE": "bert-base", "MoCoSE-BERT (large)": "bert-large"}
    table = next(one for one in papers.load("mocose").tables.values() if one.number == 2)
    names = [column.evaluator for column in table.columns if column.evaluator != "avg"]
    ran = []
    for cell in (cell for cell in cells(load_study("studies/mocose_transfer")) if cell.row in models):
        about = {"recipe": cell.recipe, "recipe_hash": cell.hash, "model": f"{models[cell.row]}-uncased", "paper": None}
        ran += [result(s, **about, scores={name: {table.score: 10.0 + s / 100} for name in names}) for s in range(3)]
    (block,) = shown(ran, table="mocose/2")
    scores = [score for row in rows_of(block) for score in row.scores.values() if score.reference is not None]
    assert len(scores) == sum(number is not None for row in models for number in table.values(row).values())
    assert {(score.marks, score.significant) for score in scores} == {(("incomparable",), False)}
    marked = [cell for line in text_table(block).rows for cell in line.cells if MARKS["incomparable"][0] in cell.text]
    assert (len(marked), any(cell.strong for cell in marked)) == (len(scores), False)
    assert any(line.startswith("≠") for line in legend_lines(block.rows))


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


@pytest.mark.slow
def test_a_column_of_differences_is_taken_seed_by_seed():
    (table,) = tables(ablation_runs(), table="conisi/5")
    found = ours(table)
    without = found["w/o fine-grained classification loss"]
    assert without["to ConIsI"].mean == pytest.approx(77 - 78.5 - 0.1)  # −1.5, −1.6, −1.7
    assert without["to ConIsI"].std == pytest.approx(0.1)
    assert without["to SimCSE"].mean == pytest.approx(1.0)
    assert without["to SimCSE"].std is None, "every seed has the same difference"
    assert (without["to ConIsI"].reference, without["to ConIsI"].n) == (-1.3, 3)
    assert "to SimCSE" not in found["w/o contrastive loss"]  # nothing is printed there
    assert set(found["SimCSE-BERT-base"]) == {"Avg"}
    (table,) = tables([one for one in ablation_runs() if one.recipe != "simcse_en"], table="conisi/5")
    assert set(ours(table)["w/o fine-grained classification loss"]) == {"Avg", "to ConIsI"}  # no common seeds


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


@pytest.mark.slow
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


def test_a_column_has_the_aggregate_of_the_paper():
    scores = {task: {"spearman": 60.0, "spearman_all": 70.0, "spearman_mean": 60.0} for task in STS_TASKS}
    (row,) = rows_of(tables([result(scores=scores)])[0])
    assert {score.mean for score in row.scores.values()} == {70.0}


def test_equal_names_of_other_data_are_two_tables_or_two_columns():
    first, second = on({"test": "one.tsv/test"}), on({"test": "two.tsv/test"}, recipe="other", recipe_hash="b" * 16)
    shown = [(table.heading, len(rows_of(table))) for table in tables([first, second])]
    assert shown == [("bert-base (en) [test: one.tsv/test]", 1), ("bert-base (en) [test: two.tsv/test]", 1)]
    (together,) = tables([first, on({"test": "one.tsv/test"}, recipe="other", recipe_hash="b" * 16)])
    assert (together.heading, len(rows_of(together))) == ("bert-base (en)", 2)
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

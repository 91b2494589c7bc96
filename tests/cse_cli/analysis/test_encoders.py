"""One table an encoder: the best configuration of each recipe by dev, beside all that is known of the encoder."""

import pytest

from cse_cli.core.results import STS_TASKS, PaperRow
from tests.cse_cli.analysis.leaderboard_runs import mini, planned, result, tables


def scored(seed, test, dev, **changes):
    scores = {"stsb_dev": {"spearman": dev}, **{task: {"spearman": test} for task in STS_TASKS}}
    return result(seed, **{"scores": scores, "metric_for_best_model": "stsb_dev.spearman", **changes})


def row(block, name):
    (found,) = [row for row in block.rows if row.name == name or (row.recipe == name and row.source == "measured")]
    return found


def test_a_table_has_every_paper_with_the_encoder():
    (block,) = tables([scored(0, 77.0, 80.0)])
    printed = [row for row in block.rows if row.source == "paper"]
    assert (block.encoder, block.language) == ("bert-base", "en")
    assert {paper for row in printed for paper in (place.split(" Table")[0] for place in row.reported_in)} >= {
        "IFCL", "MoCoSE", "Focal-InfoNCE", "ConIsI",
    }  # fmt: skip
    assert {row.model for row in printed} == {"bert-base"}
    assert row(block, "ConIsI-s-BERT-base").scores["Avg"].mean == 78.30


def test_rows_that_papers_copy_from_each_other_are_one():
    (block,) = tables([scored(0, 77.0, 80.0)])
    (simcse,) = [row for row in block.rows if "Avg" in row.scores and row.scores["Avg"].mean == 76.25]
    assert set(simcse.reported_in) == {"ConIsI Table 4", "IFCL Table 1", "MoCoSE Table 1"}
    (own,) = [row for row in block.rows if row.reported_in == ("Focal-InfoNCE Table 2",) and row.recipe == "simcse_en"]
    assert own.scores["Avg"].mean == 75.68


def test_rows_are_ranked_by_average_and_dev_is_first():
    (block,) = tables([scored(0, 77.0, 80.0)])
    assert block.columns == ("dev", "STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "Avg")
    averages = [row.scores["Avg"].mean for row in block.rows if "Avg" in row.scores]
    assert averages == sorted(averages, reverse=True)
    assert row(block, "ifcl_en").scores["dev"].mean == 80.0
    assert "stsb_dev.spearman" in block.remarks[0]


def test_several_seeds_precede_one_lucky_seed():
    lucky = scored(0, 77.0, 85.0, recipe_hash="b" * 16)
    (block,) = tables([lucky, *(scored(seed, 77.0, 80.0) for seed in range(2))])
    assert row(block, "ifcl_en").seeds == (0, 1)


def test_current_settings_precede_stale_ones(one_is_stale):
    old = [scored(seed, 77.0, 85.0, recipe_hash="b" * 16) for seed in range(2)]
    new = [scored(seed, 77.0, 80.0) for seed in range(2)]
    (block,) = tables([*old, *new], None)
    ours = row(block, "ifcl_en")
    assert (ours.recipe_hash, ours.configurations) == ("a" * 16, 1)


def test_all_configurations_of_a_recipe_that_is_asked_for():
    ran = [scored(0, 77.0, 80.0), scored(0, 77.0, 81.0, recipe_hash="b" * 16), scored(0, 70.0, 80.0, recipe="other")]
    (block,) = tables(ran, recipes=["ifcl_en"])
    assert sorted(row.recipe_hash[0] for row in block.rows if row.source == "measured") == ["a", "b"]


def test_a_state_chosen_on_test_data_never_stands_for_its_recipe():
    picked = [scored(seed, 90.0, 99.0, recipe_hash="b" * 16, test_selected=True) for seed in range(2)]
    (block,) = tables([*picked, *(scored(seed, 77.0, 80.0) for seed in range(2))])
    ours = {row.recipe_hash[0]: row for row in block.rows if row.source == "measured"}
    assert ours["a"].scores["Avg"].marks == ("below",) or ours["a"].scores["Avg"].marks == ("within",)
    assert ours["b"].scores["Avg"].marks == ("test-selected",)
    assert not any(score.significant for score in ours["b"].scores.values())


@pytest.mark.parametrize(
    ("values", "mark"),
    [
        # Three planned seeds: limit = t(0.975, 2) · std · √(1 + 1/3) = 4.3027 · 1 · 1.1547 = 4.968 around IFCL's
        # printed average of 77.80
        ((77.8 + 4.9 - 1, 77.8 + 4.9, 77.8 + 4.9 + 1), "within"),
        ((77.8 + 5.0 - 1, 77.8 + 5.0, 77.8 + 5.0 + 1), "above"),
        ((77.8 - 5.0 - 1, 77.8 - 5.0, 77.8 - 5.0 + 1), "below"),
    ],
)
def test_a_cell_says_within_above_or_below(values, mark):
    (block,) = tables(planned([scored(seed, value, 80.0) for seed, value in enumerate(values)]))
    assert row(block, "ifcl_en").scores["Avg"].marks == (mark,)


def test_a_misprint_is_compared_with_the_intended_value():
    focal = PaperRow(key="focal_infonce", table="sts", row="SimCSE-BERT-base + Focal")
    (block,) = tables([scored(0, 75.0, 80.0, recipe="focal_infonce_en", paper=focal)])
    printed = row(block, "SimCSE-BERT-base + Focal").scores["STS14"]
    assert (printed.mean, printed.implied, printed.marks, printed.std) == (79.00, 75.13, ("doubtful",), 0.15)
    assert row(block, "focal_infonce_en").scores["STS14"].reference == 75.13


def test_what_others_measured_is_a_row_with_its_spread():
    (block,) = tables([scored(0, 77.0, 80.0)])
    (fifty,) = [row for row in block.rows if row.source == "reproduction" and row.scores["Avg"].n == 50]
    score = fifty.scores["Avg"]
    assert (score.mean, score.low, score.high) == (75.11, 73.16, 76.70)
    assert fifty.recipe == "simcse_en"


def test_an_unknown_encoder_starts_with_its_untrained_row():
    scores = {task: {"spearman": 50.0} for task in STS_TASKS}
    ran = [
        mini(seed, scores=scores | {"dev": {"spearman": 60.0 + seed}}, metric_for_best_model="dev.spearman")
        for seed in range(3)
    ]
    (block,) = tables(ran)
    assert [row.source for row in block.rows] == ["untrained", "measured"]
    assert block.encoder == "mini_en"
    assert block.rows[0].scores["dev"].mean == 45.0
    assert block.rows[1].scores["dev"].difference == pytest.approx(16.0)
    assert block.rows[1].scores["Avg"].mean == pytest.approx(50.0)


def test_recipes_that_read_the_encoder_alike_share_its_row():
    scores = {task: {"spearman": 50.0} for task in STS_TASKS}
    one, two, other = (
        mini(0, recipe=name, recipe_hash=name * 16, scores=scores, untrained={"stsb": {"spearman": before}})
        for name, before in (("a", 45.0), ("b", 45.001), ("c", 47.0))
    )
    (block,) = tables([one, two, other])
    untrained = [row for row in block.rows if row.source == "untrained"]
    assert [row.name for row in untrained] == ["mini_en, before training (a, b)", "mini_en, before training (c)"]
    assert [row.scores["STS-B"].mean for row in untrained] == [45.0, 47.0]


def test_unreported_evaluators_have_a_separate_table():
    (block,) = tables([mini(seed, scores={"own": {"accuracy": 60.0}}, untrained={}) for seed in range(2)])
    assert block.columns == ("own",)
    assert block.rows[0].scores["own"].mean == 60.0


def test_alignment_and_uniformity_are_ranked_by_spearman():
    plane = {"plane": {"alignment": 0.1, "uniformity": -2.0}}
    ran = [scored(0, 77.0, 80.0), scored(1, 77.0, 80.0)]
    ran = [one.model_copy(update={"scores": one.scores | plane}) for one in ran]
    averages, both = tables(ran)
    assert both.columns[1:] == ("ALGN", "UNIF", "SpCorr")
    assert row(both, "ifcl_en").scores["UNIF"].mean == -2.0
    ranked = [row.scores["SpCorr"].mean for row in both.rows if "SpCorr" in row.scores]
    assert ranked == sorted(ranked, reverse=True)
    assert averages.columns[-1] == "Avg"


@pytest.mark.parametrize("name", ["bert-base", "bert-base-uncased", "google-bert/bert-base-uncased"])
def test_an_encoder_is_asked_for_by_any_of_its_names(name):
    (block,) = tables([scored(0, 77.0, 80.0), mini()], encoder=name)
    assert block.encoder == "bert-base"


def test_a_run_with_another_model_stands_with_that_model():
    (block,) = tables([scored(0, 60.0, 70.0, model="mini_en")], "other_model")
    assert block.encoder == "mini_en"
    assert [row.source for row in block.rows] == ["measured"]
    assert "stale" in block.rows[0].scores["Avg"].marks

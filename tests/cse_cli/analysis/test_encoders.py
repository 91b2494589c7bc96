"""One table for each encoder: dev scores choose the configuration of a recipe and judge nothing, test scores judge."""

from datetime import UTC, datetime, timedelta

import pytest

from cse_cli.core.identity import Plan
from cse_cli.core.results import STS_TASKS, PaperRow
from tests.cse_cli.analysis.leaderboard_runs import measured, mini, planned, result, tables


def scored(seed, test, dev, **changes):
    scores = {"stsb_dev": {"spearman": dev}, **{task: {"spearman": test} for task in STS_TASKS}}
    return result(seed, **{"scores": scores, "metric_for_best_model": "stsb_dev.spearman", **changes})


def row(block, name):
    (found,) = [row for row in block.rows if row.name == name or (row.recipe == name and row.source == "measured")]
    return found


def test_a_table_has_every_paper_with_the_encoder_ranked_by_average():
    (block,) = tables([scored(0, 77.0, 80.0)])
    printed = [row for row in block.rows if row.source == "paper"]
    assert (block.encoder, block.language) == ("bert-base", "en")
    assert {paper for row in printed for paper in (place.split(" Table")[0] for place in row.reported_in)} >= {
        "IFCL", "MoCoSE", "Focal-InfoNCE", "ConIsI",
    }  # fmt: skip
    assert {row.model for row in printed} == {"bert-base"}
    assert row(block, "ConIsI-s-BERT-base").scores["Avg"].mean == 78.30
    # Rows that papers copy from each other are one.
    (simcse,) = [row for row in block.rows if "Avg" in row.scores and row.scores["Avg"].mean == 76.25]
    assert set(simcse.reported_in) == {"ConIsI Table 4", "IFCL Table 1", "MoCoSE Table 1"}
    (own,) = [row for row in block.rows if row.reported_in == ("Focal-InfoNCE Table 2",) and row.recipe == "simcse_en"]
    assert own.scores["Avg"].mean == 75.68
    assert block.columns == ("dev", "STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "Avg")
    averages = [row.scores["Avg"].mean for row in block.rows if "Avg" in row.scores]
    assert averages == sorted(averages, reverse=True)
    assert row(block, "ifcl_en").scores["dev"].mean == 80.0
    assert "stsb_dev.spearman" in block.remarks[0]
    (fifty,) = [row for row in block.rows if row.source == "reproduction" and row.scores["Avg"].n == 50]
    score = fifty.scores["Avg"]
    assert (fifty.recipe, score.mean, score.low, score.high) == ("simcse_en", 75.11, 73.16, 76.70)


def test_several_seeds_precede_one_lucky_seed_and_current_settings_stale_ones(one_is_stale):
    lucky = scored(0, 77.0, 85.0, recipe_hash="ab" * 8)
    two = [scored(seed, 77.0, 80.0) for seed in range(2)]
    (block,) = tables([lucky, *two], None)
    assert (row(block, "ifcl_en").seeds, row(block, "ifcl_en").configurations) == ((0, 1), 2)
    old = [scored(seed, 77.0, 85.0, recipe_hash="b" * 16) for seed in range(2)]
    (block,) = tables([*old, *two], None)
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


def test_an_encoder_is_asked_for_by_any_of_its_names():
    for name in ("bert-base", "google-bert/bert-base-uncased"):
        (block,) = tables([scored(0, 77.0, 80.0), mini()], encoder=name)
        assert block.encoder == "bert-base"


def test_a_run_with_another_model_stands_with_that_model():
    (block,) = tables([scored(0, 60.0, 70.0, model="mini_en")], "other_model")
    assert block.encoder == "mini_en"
    assert [row.source for row in block.rows] == ["measured"]
    assert "stale" in block.rows[0].scores["Avg"].marks


EARLIER = datetime(2025, 1, 1, tzinfo=UTC)


def own(seed, dev, test=60.0, before=(45.0, 50.0), **changes):
    """Return a run that scores what no paper prints: a dev set, which selects, and a test set."""
    values = {
        "scores": {"own_dev": {"spearman": dev}, "own": {"spearman": test}},
        "untrained": {"own_dev": {"spearman": before[0]}, "own": {"spearman": before[1]}},
        "metric_for_best_model": "own_dev.spearman",
    }
    return mini(seed, **{**values, **changes})


def test_best_of_is_the_best_on_dev_not_the_newest():
    better = [own(seed, 58.42, 50.0, finished=EARLIER, recipe_hash="b" * 16) for seed in range(2)]
    newest = [own(seed, 57.12, 70.0, recipe_hash="c" * 16) for seed in range(2)]  # its test score counts for nothing
    (row,) = measured([*better, *newest])
    assert (row.recipe_hash, row.configurations) == ("b" * 16, 2)
    assert row.scores["own_dev"].mean == pytest.approx(58.42)


def test_the_best_of_several_is_tested_on_fresh_seeds_only():
    """Its own seeds chose it. Seeds that were planned after all others did not."""
    other = [own(seed, 50.0, 60.0 + seed, finished=EARLIER, started=EARLIER, recipe_hash="c" * 16) for seed in range(3)]
    chosen = [own(seed, 55.0, 62.0 + seed, finished=EARLIER, started=EARLIER) for seed in range(3)]
    (row,) = measured([*other, *chosen])
    assert (row.configurations, row.scores["own"].marks, row.scores["own"].p) == (2, (), None)
    assert any(note.startswith("the best of 2 configurations by the dev scores of these seeds") for note in row.notes)
    later = Plan(seeds=(7, 8, 9), made=EARLIER + timedelta(days=1))
    times = {"started": EARLIER + timedelta(days=2), "finished": EARLIER + timedelta(days=3), "plan": later}
    (row,) = measured([*other, *chosen, *(own(seed, 55.0, 62.0 + seed / 10, **times) for seed in later.seeds)])
    assert (row.configurations, row.seeds) == (2, (7, 8, 9))
    assert row.scores["own"].marks == ("above",)
    assert not any("best of" in note for note in row.notes)


@pytest.mark.parametrize("dev", [55.0, 45.0])
def test_new_seeds_do_not_choose_and_a_new_configuration_has_none(dev):
    """The dev scores of new seeds do not change the choice. The seeds of the last configuration choose it."""
    first = Plan(seeds=(0, 1, 2), made=EARLIER)
    times = {"started": EARLIER, "finished": EARLIER, "plan": first}
    other = [own(seed, 50.0, 60.0 + seed, recipe_hash="c" * 16, **times) for seed in first.seeds]
    chosen = [own(seed, 55.0, 62.0 + seed, **times) for seed in first.seeds]
    later = Plan(seeds=(7, 8, 9), made=EARLIER + timedelta(days=1))
    times = {"started": EARLIER + timedelta(days=2), "finished": EARLIER + timedelta(days=3), "plan": later}
    new = [own(seed, dev, 62.0 + seed / 10, **times) for seed in later.seeds]
    (row,) = measured([*other, *chosen, *new])
    assert (row.recipe_hash, row.seeds, row.scores["own"].marks) == ("d" * 16, (7, 8, 9), ("above",))
    (row,) = measured([*other, *new])
    assert (row.recipe_hash, row.scores["own"].marks) == (("d" if dev > 50 else "c") * 16, ())


def test_a_test_gain_is_judged_though_the_dev_gain_is_noise():
    noise = (45.0, 44.0, 46.5)
    (row,) = measured([own(seed, dev, 56.0 + seed, (45.0, 50.0 + seed)) for seed, dev in enumerate(noise)])
    assert row.scores["own"].difference == pytest.approx(6.0)
    assert row.scores["own"].marks == ("above",)
    # However large its gain, the selecting metric has no mark.
    (row,) = measured([own(seed, 90.0 + seed, 50.0 + seed / 10, (45.0 + seed, 50.0)) for seed in range(5)])
    assert row.scores["own_dev"].difference == pytest.approx(45.0)
    assert (row.scores["own_dev"].marks, row.scores["own_dev"].p) == ((), None)


def test_the_test_score_or_the_average_of_several_ranks():
    dev_first = [own(seed, 99.0, 60.0, recipe="a", recipe_hash="a" * 16) for seed in range(2)]
    test_first = [own(seed, 50.0, 70.0, recipe="b", recipe_hash="b" * 16) for seed in range(2)]
    assert [row.recipe for row in measured([*dev_first, *test_first])] == ["b", "a"]

    def two(seed, first, second, **changes):
        scores = {"own_dev": {"spearman": 60.0}, "one": {"spearman": first}, "two": {"spearman": second}}
        return own(seed, 60.0, scores=scores, **changes)

    (table,) = tables([two(0, 90.0, 10.0, recipe="a", recipe_hash="a" * 16), two(0, 60.0, 60.0, recipe="b")])
    rows = [row for row in table.rows if row.source == "measured"]
    assert table.columns == ("own_dev", "one", "two", "Avg")
    assert [(row.recipe, row.scores["Avg"].mean) for row in rows] == [("b", 60.0), ("a", 50.0)]


def test_a_selecting_metric_does_not_rank_or_judge_and_without_one_nothing_is_chosen():
    alone = {"scores": {"dev": {"spearman": 60.0}}, "metric_for_best_model": "dev.spearman"}
    worse = [mini(seed, **alone, recipe="a", recipe_hash="a" * 16) for seed in range(3)]
    better = [mini(seed, 80.0 + seed, metric_for_best_model="dev.spearman", recipe="b") for seed in range(3)]
    rows = measured([*better, *worse])
    assert [row.recipe for row in rows] == ["a", "b"]
    assert {score.marks for row in rows for score in row.scores.values()} == {()}
    assert not any(score.significant for row in rows for score in row.scores.values())
    plain = {"scores": {"own": {"spearman": 60.0}}, "untrained": {}, "metric_for_best_model": None}
    rows = measured([mini(0, **plain, recipe_hash="b" * 16), mini(0, **plain, recipe_hash="c" * 16)])
    assert sorted((row.recipe_hash[0], row.configurations) for row in rows) == [("b", 1), ("c", 1)]

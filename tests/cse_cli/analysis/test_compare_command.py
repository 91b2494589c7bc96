"""`cse compare` from the command line, over recorded runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cse_cli.core.identity import Plan
from cse_cli.core.results import SERIES_FOLDER, STS_TASKS, write_series
from cse_cli.runs.record import folder_of
from tests.cse_cli.analysis.recorded import pairs, record
from tests.support.command import cse, refused
from tests.support.command import document as json_of
from tests.support.records import recorded

A, B, C = "simcse_en", "ifcl_en", "mocose_en"
MADE = datetime(2026, 11, 21, tzinfo=UTC)


def document(capsys, *arguments: str) -> dict:
    return json_of(capsys, "compare", *arguments, "--bootstrap", "200")


def two(seeds=(0, 1, 2)) -> None:
    for seed in seeds:
        record(A, seed, noise=1.5)
        record(B, seed, noise=1.0)


@pytest.mark.slow
def test_one_versioned_document_with_everything(capsys):
    two()
    found = document(capsys, A, B)
    assert found["schema_version"] == 5
    sides = [(side["letter"], side["name"], side["seeds"]) for side in found["sides"]]
    assert sides == [("A", A, [0, 1, 2]), ("B", B, [0, 1, 2])]
    (comparison,) = found["comparisons"]
    assert (comparison["first"], comparison["second"], comparison["left_out"]) == ("A", "B", {})
    metrics = ["stsb_dev.spearman", *(f"{task}.spearman" for task in STS_TASKS), "avg"]
    assert [one["metric"] for one in comparison["metrics"]] == metrics
    for one in comparison["metrics"]:
        over, on = one["over_seeds"], one["on_pairs"]
        differences = [b - a for a, b in zip(over["first"], over["second"], strict=True)]
        assert over["difference"] == pytest.approx(sum(differences) / 3)
        assert on["difference"] == pytest.approx(over["difference"], abs=0.01)  # the papers' average rounds first
        assert on["low"] < on["difference"] < on["high"]
        assert [seed["seed"] for seed in on["of_seeds"]] == [0, 1, 2]
        assert (one["more_is_better"], one["selecting"]) == (True, one["metric"] == "stsb_dev.spearman")
    main = comparison["metrics"][-1]
    assert (comparison["primary"], main["on_pairs"]["pairs"]) == ("avg", 7 * 80)
    # The others are not tested, so that nothing follows.
    assert comparison["headline"] == f"avg, compared with {A}: " + main["verdict"].replace("B is", f"{B} is")


@pytest.mark.slow
def test_the_selecting_metric_is_shown_and_not_tested(capsys):
    for seed in range(4):
        for recipe in (A, B):
            score = 60.0 + seed + (5 + seed / 10) * (recipe == B)
            record(recipe, seed, scores={"stsb_dev": {"spearman": score}}, keep=False, steps=60 if recipe == A else 4)
    (comparison,) = document(capsys, A, B)["comparisons"]
    (one,) = comparison["metrics"]
    assert (comparison["primary"], one["metric"], one["finding"]) == ("", "stsb_dev.spearman", "selecting")
    assert one["over_seeds"]["difference"] == pytest.approx(5.15)
    assert [one["over_seeds"][name] for name in ("p_adjusted", "low", "high", "seeds_needed")] == [None] * 4
    assert "better" not in comparison["headline"]
    assert comparison["headline"].endswith(". Their budgets differ: 60 and 4 training steps")


def test_green_is_better_and_red_is_worse(capsys, monkeypatch):
    for seed in range(4):
        for recipe in (A, B):
            scores = {"stsb": {"spearman": 60.0 + seed + (5.0 + seed / 10) * (recipe == B)}}
            record(recipe, seed, evaluators=(), scores=scores, metric_for_best_model="dev.spearman")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for first, second, color, other in ((A, B, "32", "31"), (B, A, "31", "32")):
        _, out, _ = cse("compare", first, second, capsys=capsys)
        assert out.startswith(f"\x1b[1;{color}mstsb.spearman, compared with {first}: {second} is ")
        assert f"\x1b[{other}m" not in out
        assert "green: the second method is better" in out


@pytest.mark.slow
def test_only_what_differs_in_the_recipes(capsys):
    weights = {"encoders.online": "ab" * 32}
    first = record(A, 0, weights=weights)
    second = record(A, 0, overrides=["train.learning_rate=1e-4", 'title="Other"'], weights=weights)
    found = document(capsys, first, second)
    assert found["changes"] == [{"key": "train.learning_rate", "values": [3e-5, 1e-4]}]
    assert found["circumstances"] == []
    model, other = "encoders.online.model=prajjwal1/bert-tiny", {"encoders.online": "cd" * 32}
    found = document(capsys, first, record(A, 0, overrides=[model], weights=other))
    assert [change["key"] for change in found["changes"]] == ["encoders.online.model"]
    assert found["circumstances"] == []  # its weights are those of the model


@pytest.mark.parametrize(
    ("part", "first", "second", "key"),
    [
        ("weights", {"encoders.online": "ab" * 32}, {"encoders.online": "cd" * 32}, "weights of encoders.online"),
        ("weights", {"encoders.online": "ab" * 32}, {"encoders.other": "cd" * 32}, None),  # differs in the recipes
        ("text", "ab" * 32, "cd" * 32, "text"),
    ],
)
def test_other_text_weights_or_code_of_one_name(capsys, part, first, second, key):
    record(A, 0, **{part: first})
    record(B, 0, **{part: second}, device="cuda")
    *found, device = document(capsys, A, B)["circumstances"]
    assert device == {"key": "device", "values": ["cpu", "cuda"]}
    assert found == ([] if key is None else [{"key": key, "values": ["ab" * 4, "cd" * 4]}])


@pytest.mark.slow
def test_a_recipe_a_seed_of_it_and_a_run_by_its_id(capsys):
    two()
    record(A, 7)
    record(B, 9)
    one = record(C, 1)
    (comparison,) = document(capsys, A, B, "--metric", "stsb", "--metric", "avg")["comparisons"]
    assert [one["metric"] for one in comparison["metrics"]] == ["stsb.spearman", "avg"]
    assert (comparison["seeds"], comparison["left_out"]) == ([0, 1, 2], {"A": [7], "B": [9]})
    found = document(capsys, f"{A}@1", one[:10])
    assert [side["name"] for side in found["sides"]] == [f"{A}@1", f"{one[:8]} ({C})"]
    (comparison,) = found["comparisons"]
    assert comparison["seeds"] == [1]
    assert {one["finding"] for one in comparison["metrics"]} == {"one_seed", "selecting", "untested"}
    record(B, 10, text="ab" * 32, code={"losses.info_nce": "cd" * 32})
    record(A, 10)
    found = document(capsys, A, B)
    (note,) = [one for one in found["notes"] if "another experiment" in one]
    assert note.startswith("B: ")
    assert "text none / abababab; code of losses.info_nce" in note
    assert found["comparisons"][0]["seeds"] == [10]


def test_what_cannot_be_compared_is_refused(capsys):
    record(A, 0, evaluators=["stsb"])
    record(B, 0, evaluators=["sickr"])
    error = refused("compare", A, B)
    assert error.code == "compare.no_shared_metric"
    assert f"{A} has stsb and {B} has sickr" in str(error)
    assert "'sickr.spearman'" in str(refused("compare", A, B, "--metric", "sickr"))
    error = refused("compare", A, B, "--metric", "stsb.spearmann")
    assert error.code == "compare.unknown_metric"
    assert "Did you mean 'stsb.spearman'" in str(error)
    failed = recorded(end="failed", recipe=A).run_id
    error = refused("compare", A, failed)
    assert error.code == "compare.no_finished_run"
    assert f"{failed[:8]} has no scores: FAILED" in str(error)


def test_a_recipe_that_changed_or_is_gone_is_found_by_its_last_runs(capsys):
    record(A, 0, recipe_hash="b" * 16)
    record(A, 1, recipe_hash="c" * 16)
    record(B, 1, asked="gone/recipe")
    found = document(capsys, A, "gone/recipe")
    assert [(side["name"], side["seeds"]) for side in found["sides"]] == [(A, [1]), ("gone/recipe", [1])]
    since = "using the runs of 2026-11-21, hash"
    assert f"A: no run with the current settings has finished: {since} cccccccc" in found["notes"]
    assert any(note.startswith(f"B: the recipe does not exist: {since}") for note in found["notes"])


def test_a_recipe_that_cannot_be_read_is_no_missing_one_and_a_try_is_not_used(capsys, tmp_path, monkeypatch):
    """Its plug-in is not loaded, or its file has a typo: the message says so. The newest run is a try with --set."""
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own.toml"
    own.write_text('extends = "mini/simcse_en"\ntitle = "Own"\n')
    record(A, 0, steps=60)
    record("own.toml", 0, recipe_hash="b" * 16, steps=60, about={"source": str(own)}, source=str(own))
    record("own.toml", 0, recipe_hash="c" * 16, steps=4, about={"changes": ("train.steps=4",)}, source=str(own))
    own.write_text('extends = "mini/simcse_en"\ntitle = "Own"\n[losses.no_such_loss]\n')
    found = document(capsys, A, "own.toml")
    (note,) = [note for note in found["notes"] if note.startswith("B: ")]
    assert note.startswith("B: it cannot be read: own.toml:3")
    assert "no_such_loss" in note
    assert note.endswith("hash bbbbbbbb")
    assert "budgets differ" not in found["comparisons"][0]["headline"]


def plan(*seeds: int, made: datetime = MADE) -> Plan:
    return Plan(seeds=seeds, made=made)


def planned(first: Plan | None, second: Plan | None, seeds: Sequence[int] = range(3), **changes: Any) -> None:
    for seed in seeds:
        record(A, seed, noise=1.5, **{"plan": first, "started": MADE, **changes})
        record(B, seed, noise=1.0, **{"plan": second, "started": MADE, **changes})


@pytest.mark.slow
def test_a_recorded_plan_is_one_t_test(capsys):
    planned(plan(0, 1, 2), plan(0, 1, 2, made=MADE - timedelta(days=1)))
    found = document(capsys, A, B, "--metric", "avg")
    assert [(side["mode"], side["planned"]) for side in found["sides"]] == [("planned", [0, 1, 2])] * 2
    (comparison,) = found["comparisons"]
    over = comparison["metrics"][0]["over_seeds"]
    assert (comparison["mode"], over["p_adjusted"], over["level"]) == ("planned", over["p"], 0.05)
    assert "(3 seeds, planned, p " in comparison["metrics"][0]["verdict"]
    assert document(capsys, A, B, "--planned", "3")["comparisons"][0]["mode"] == "planned"
    assert refused("compare", A, B, "--planned", "2").code == "compare.wrong_plan"


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [(None, None), (plan(0, 1, 2), None)])
def test_without_a_plan_the_test_holds_at_any_number_or_a_plan_is_assumed(capsys, first, second):
    planned(first, second)
    (comparison,) = document(capsys, A, B, "--metric", "avg")["comparisons"]
    over = comparison["metrics"][0]["over_seeds"]
    assert (comparison["mode"], over["p_adjusted"]) == ("anytime", over["p_anytime"])
    assert over["p_anytime"] > over["p"]
    assert "3 seeds, anytime test" in comparison["metrics"][0]["verdict"]
    if first is None:
        found = document(capsys, A, B, "--metric", "avg", "--planned", "3")
        (comparison,) = found["comparisons"]
        over = comparison["metrics"][0]["over_seeds"]
        assert (found["assumed_plan"], comparison["mode"], over["p_adjusted"]) == (3, "assumed", over["p"])
        assert "assumed plan, given at analysis time, not recorded" in comparison["headline"]
        assert refused("compare", A, B, "--planned", "5").code == "compare.wrong_plan"
        assert "share 3 seeds" in str(refused("compare", A, B, "--planned", "2"))


@pytest.mark.slow
def test_the_test_waits_for_the_planned_seeds(capsys):
    planned(plan(0, 1, 2, 3, 7), plan(0, 1, 2, 3, 7))
    found = document(capsys, A, B)
    (comparison,) = found["comparisons"]
    assert comparison["mode"] == "incomplete"
    assert {one["finding"] for one in comparison["metrics"]} == {"incomplete", "selecting", "untested"}
    for one in comparison["metrics"]:
        assert [one["over_seeds"][name] for name in ("p_adjusted", "low", "seeds_needed")] == [None] * 3
    assert "3 of 5 planned seeds are finished; the test waits for the others" in comparison["headline"]
    assert any(f"`cse run {B} --seeds 0,1,2,3,7`" in note for note in found["notes"])
    assert refused("compare", A, B, "--planned", "3").code == "compare.wrong_plan"


@pytest.mark.slow
def test_no_metric_is_tested_without_a_primary_difference(capsys):
    for seed, change in enumerate((0.3, -0.2, 0.1)):
        shared = {task: {"spearman": 60.0 + seed} for task in STS_TASKS}
        record(A, seed, scores=shared, keep=False)
        other = {task: {"spearman": 60.0 + seed + change} for task in STS_TASKS[:-1]}
        steady = {STS_TASKS[-1]: {"spearman": 61.0 + seed + change / 1000}}
        record(B, seed, scores={**other, **steady}, keep=False)
    asked = [word for task in ("avg", *STS_TASKS) for word in ("--metric", task)]
    (comparison,) = document(capsys, A, B, *asked)["comparisons"]
    (last,) = [one for one in comparison["metrics"] if one["metric"].startswith(f"{STS_TASKS[-1]}.")]
    assert last["over_seeds"]["p"] < 1e-4
    assert {one["finding"] for one in comparison["metrics"]} == {"undecided"}
    assert comparison["headline"].endswith("it shows no difference, so the 7 other metrics are not tested")


@pytest.mark.slow
def test_metrics_that_nobody_asked_for_cost_the_primary_one_nothing(capsys):
    """Verdicts and intervals of the default are those of the primary metric alone, for every comparison."""
    for recipe, gain in ((A, 0.0), (B, 0.4), (C, 0.9)):
        for seed, change in enumerate((0.3, -0.2, 0.1, -0.3)):
            score = 60.0 + seed + gain + (recipe != A) * change
            record(recipe, seed, scores={task: {"spearman": score} for task in STS_TASKS}, keep=False)
    whole, alone = document(capsys, A, B, C), document(capsys, A, B, C, "--metric", "avg")
    for one, other in zip(whole["comparisons"], alone["comparisons"], strict=True):
        (primary,) = [metric for metric in one["metrics"] if metric["metric"] == "avg"]
        assert primary == other["metrics"][0]
        others = [metric for metric in one["metrics"] if metric["metric"] != "avg"]
        assert {(metric["finding"], metric["over_seeds"]["p_adjusted"]) for metric in others} == {("untested", None)}
        assert others[0]["verdict"] == f"not tested: --metric {others[0]['metric']}"


@pytest.mark.slow
def test_a_comparison_with_one_seed_keeps_its_share_of_the_level(capsys):
    two()
    record(C, 0)
    first, second = document(capsys, A, B, C, "--metric", "stsb")["comparisons"]
    over = first["metrics"][0]["over_seeds"]
    assert over["p_adjusted"] == pytest.approx(2 * over["p_anytime"])  # C may get more seeds later
    assert second["metrics"][0]["over_seeds"]["p_adjusted"] is None


@pytest.mark.slow
def test_seeds_without_pairs_are_compared_over_seeds_only(capsys):
    two((0, 1))
    old = record(A, 2, keep=False)
    record(B, 2)
    (one,) = document(capsys, A, B, "--metric", "stsb")["comparisons"][0]["metrics"]
    assert one["over_seeds"]["seeds"] == [0, 1, 2]
    assert [seed["seed"] for seed in one["on_pairs"]["of_seeds"]] == [0, 1]
    assert one["pairs_note"] == f"without seed 2: run {old[:8]} recorded no sentence pairs"
    scores = {"stsb": {"spearman": 61.0, "pearson": 50.0}}
    names = [f"{A}@2", record(C, 2, evaluators=["stsb"], scores=scores)]
    (one,) = document(capsys, *names)["comparisons"][0]["metrics"]
    assert (one["on_pairs"], one["pairs_note"], one["more_is_better"]) == (
        None,
        f"run {old[:8]} recorded no sentence pairs",
        True,
    )
    _, out, _ = cse("compare", *names, capsys=capsys)
    assert "no comparison of sentence pairs for stsb.spearman: run " in out
    assert "bootstrap" not in out
    (one,) = document(capsys, f"{B}@2", names[1])["comparisons"][0]["metrics"]
    assert one["pairs_note"] == "it is not Spearman's correlation over all pairs together"


@pytest.mark.slow
def test_other_data_are_not_compared_pair_by_pair_or_if_it_is_known_not_at_all(capsys):
    record(A, 0)
    other = {name: values[::-1] for name, values in pairs("stsb", 0, 1.0).items()}
    write_series({"stsb": other}, folder_of(record(B, 0)) / SERIES_FOLDER)
    metrics = {one["metric"]: one for one in document(capsys, A, B)["comparisons"][0]["metrics"]}
    assert metrics["stsb.spearman"]["on_pairs"] is None
    assert metrics["stsb.spearman"]["pairs_note"] == "the runs used different data for stsb"
    assert metrics["avg"]["on_pairs"] is None
    assert metrics["sickr.spearman"]["on_pairs"] is not None
    for recipe, digest in ((A, "e" * 64), (B, "rows:" + "f" * 64)):
        record(recipe, 1, scored_on={"stsb": {"stsb/test": digest}, "sickr": {"sickr/test": "d" * 64}})
    found = document(capsys, f"{A}@1", f"{B}@1")
    metrics = {one["metric"] for one in found["comparisons"][0]["metrics"]}
    assert "sickr.spearman" in metrics
    assert not {"stsb.spearman", "avg"} & metrics
    why = f"the data of 'stsb' differ, {A}@1 scored stsb/test (eeeeeeee) and {B}@1 scored stsb/test (ffffffff)"
    assert f"not compared: {why}" in found["notes"]
    assert why in str(refused("compare", f"{A}@1", f"{B}@1", "--metric", "stsb"))
    assert why in str(refused("compare", f"{A}@1", f"{B}@1", "--metric", "avg"))


@pytest.mark.slow
@pytest.mark.parametrize("tried", [0.5, 4.0])
def test_the_best_configuration_by_dev_has_a_note(capsys, tried):
    two()
    for seed in (0, 1, 2):
        record(B, seed, noise=tried, overrides=["train.learning_rate=0.001"])
    notes = [note for note in document(capsys, A, B)["notes"] if "dev score" in note]
    assert [note.partition(" configurations")[0] for note in notes] == ["B: it has the best dev score of 2"] * (
        tried > 1
    )


def test_a_metric_of_unknown_direction_is_only_higher(capsys):
    for recipe, value in ((A, 2.0), (B, 3.0)):
        record(recipe, 0, evaluators=(), scores={"spectrum": {"effective_rank": value}}, metric_for_best_model=None)
    (one,) = document(capsys, A, B)["comparisons"][0]["metrics"]
    assert not one["more_is_better"]
    assert "B is 1.00 higher" in one["verdict"]


def test_without_any_store_nothing_is_made(capsys, home, monkeypatch, tmp_path):
    monkeypatch.setenv("CSE_HOME", str(tmp_path / "none"))
    assert refused("compare", A, B).code == "compare.no_finished_run"
    assert refused("compare", "abc123", "def456").code == "compare.unknown_method"
    assert not (tmp_path / "none").exists()

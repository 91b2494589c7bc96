"""The table after a run: a row a seed, the untrained encoder, mean and spread, what was learned."""

from __future__ import annotations

import shlex

import pytest

from cse_cli.core.identity import Identity
from cse_cli.core.paths import runs
from cse_cli.core.results import STS_TASKS, Result
from cse_cli.jobs.request import RunRequest, options_of
from cse_cli.jobs.screen import end_line, next_steps, print_results
from cse_cli.recipe.load import load
from registry import EVALUATORS
from tests.support.records import result


def scored(seed: int, dev: float, **changes: object) -> Result:
    values = {"dev": {"spearman": dev, "pearson": 0.0}, "test": {"spearman": 50.0, "pearson": 0.0}}
    return result(seed=seed, scores=values, **changes)


def rows(out: str) -> list[list[str]]:
    return [line.split() for line in out.rstrip().split("\n")]


def test_what_test_data_chose_says_so(capsys):
    """The usual table is a snapshot in `test_screens.py`."""
    print_results([scored(1, 70.0, test_selected=True, selected_step=None)])
    assert rows(capsys.readouterr().out)[2] == ["seed", "1", "(test-selected)", "70.00", "50.00", "12", "s"]


def test_experiments_of_one_name_stand_apart(capsys):
    text = scored(1, 65.0, identity=Identity(settings="0123456789abcdef", text="ab" * 32))
    settings = scored(1, 60.0, recipe_hash="f" * 16)
    print_results([scored(1, 70.0), text, settings])
    out = capsys.readouterr().out
    assert out.count("mini/simcse_en · SimCSE") == out.count("\nseed 1") == 3
    assert "mean" not in out
    assert rows(out)[-1] == ["seed", "1", "60.00", "50.00", "250", "12", "s"]


def test_the_first_metric_of_an_evaluator_is_shown(capsys):
    assert [entry.cls.metrics[0] for entry in EVALUATORS] == [entry.cls.metric for entry in EVALUATORS]
    print_results([result(scores={"retrieval": {"recall_at_1": 40.0, "mrr": 50.0}})])
    assert rows(capsys.readouterr().out)[2] == ["seed", "1", "40.00", "250", "12", "s"]


def of_seven(value: float, before: float | None = None, **changes: object) -> Result:
    """Return a run with the papers' seven sets, all with one score."""
    untrained = {} if before is None else {name: {"spearman": before} for name in STS_TASKS}
    return result(scores={name: {"spearman": value} for name in STS_TASKS}, untrained=untrained, **changes)


def test_a_line_says_what_came_of_a_run():
    assert end_line("one", of_seven(61.2, 58.1, seconds=41.4)) == "one · avg 61.20 (+3.10 over untrained) · 41 s"
    assert end_line("one", of_seven(57.0, 58.1), 130.0) == (
        "one · avg 57.00 (1.10 below untrained) · 12 s · about 2 min left"
    )


def test_a_gain_on_dev_is_added_to_a_test_score():
    one = scored(1, 70.0, metric_for_best_model="dev.spearman", untrained={"dev": {"spearman": 66.5}})
    assert " · test 50.00 · dev 70.00 (+3.50 over untrained) · " in end_line("one", one)


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (of_seven(57.0, 58.1), "avg 57.00, untrained 58.10"),
        (scored(1, 58.0, metric_for_best_model="dev.spearman", curve={0: 60.0}), "dev 58.00, untrained 60.00"),
    ],
)
def test_a_run_below_its_untrained_encoder_says_so(one, told, capsys):
    print_results([one])
    assert f"seed 1 scores lower than its untrained encoder: {told}\n" in capsys.readouterr().out


def test_the_next_command_scores_what_is_on_this_machine(home, monkeypatch):
    english, chinese = scored(1, 60.0, run_id="a" * 32), scored(2, 60.0, run_id="b" * 32, language="zh")
    for one in (english, chinese):
        (runs() / str(one.run_id) / "model").mkdir(parents=True)
    offline = "  cse evaluate aaaaaaaa --tasks stsb_open  score it on the test set of the package"
    assert offline in next_steps([english])
    assert any(line.startswith("  cse evaluate bbbbbbbb  ") for line in next_steps([chinese]))
    monkeypatch.setattr("cse_cli.jobs.screen.has_data", lambda _: True)
    assert any(line.startswith("  cse evaluate aaaaaaaa  ") for line in next_steps([english]))


def test_a_long_command_does_not_move_the_others(home):
    lines = next_steps([scored(1, 60.0)], ["--set", f"title={'a' * 80}"])
    assert "  cse leaderboard  compare with published results" in lines


def test_a_command_repeats_its_request():
    asked = RunRequest(
        recipes=["quickstart"], overrides=["title='a b'"], unset=["queue"], seeds="11,12,13", device="cpu", workers=2,
        name="n", tags=["for=paper"],
    )  # fmt: skip
    assert shlex.split(asked.command()) == [
        "cse", "run", "quickstart", "--set", "title='a b'", "--unset", "queue", "--seeds", "11,12,13", "--name", "n",
        "--workers", "2", "--device", "cpu", "--tag", "for=paper",
    ]  # fmt: skip
    assert RunRequest(recipes=["quickstart"]).command() == "cse run quickstart"


def test_recorded_changes_become_options():
    changed = ["train.steps=5", "losses.identical.temperature=0.1"], ["losses.fraternal.queue"]
    loaded = load("quickstart", *changed)
    words = options_of(loaded.changes)
    pairs = list(zip(words[::2], words[1::2], strict=True))
    again = ([word for option, word in pairs if option == kind] for kind in ("--set", "--unset"))
    assert load("quickstart", *again).recipe == loaded.recipe


def test_what_to_do_next(home):
    bad, good = scored(1, 60.0, run_id="a" * 32, curve={250: 60.0}), scored(2, 70.0, run_id="b" * 32, curve={250: 70.0})
    folder = runs() / ("b" * 32) / "model"
    folder.mkdir(parents=True)
    lines = next_steps([bad, good])
    assert lines[0] == f"model with the best dev score, mini/simcse_en seed 2: {folder}"
    assert lines[2:4] == ['  model = load_model("bbbbbbbb")', '  model.encode(["A man is singing.", "Someone sings."])']
    assert [line.split("  ")[1] for line in lines[5:]] == ["cse evaluate bbbbbbbb --tasks stsb_open", "cse leaderboard"]
    other = good.model_copy(update={"recipe": "mini/ifcl_en"})
    assert "  cse compare mini/simcse_en mini/ifcl_en  test the difference" in next_steps([bad, other])
    assert next_steps([bad]) == [
        "next:",
        "  cse leaderboard                   compare with published results",
        "  cse run mini/simcse_en --seeds 3  add seeds",
    ]


def test_other_seeds_are_asked_for_with_the_settings_of_the_run(home):
    asked = RunRequest(recipes=["x"], overrides=["queue.length=128", "title='a b'"], unset=["tune"])
    assert next_steps([scored(1, 60.0, run_id="a" * 32, curve={250: 60.0})], asked.settings())[-1] == (
        "  cse run mini/simcse_en --set queue.length=128 --set 'title='\"'\"'a b'\"'\"'' --unset tune --seeds 3  "
        "add seeds"
    )

"""The budget loop with trials that cost nothing: exact budgets, what repeats, what is refused."""

from __future__ import annotations

import time

import psutil
import pytest
from optuna.trial import TrialState

from cse_cli.tuning import samplers
from cse_cli.tuning import study as studies
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.objective import TrialFailed
from cse_cli.tuning.observer import SearchObserver
from cse_cli.tuning.results import read_trials
from cse_cli.tuning.storage import address
from cse_cli.tuning.study import budget, load_study, open_study, retry_stale_trials, stored_config
from registry.errors import CseError, RunFailedError
from tests.cse_cli.tuning.fake import good, knob, plan, share, trials


class Notes(SearchObserver):
    """Remembers what it hears."""

    def __init__(self):
        self.heard = []

    def trial_began(self, number, values, budget):
        self.heard.append(("began", number, dict(values)))

    def trial_ended(self, trial, best):
        self.heard.append(("ended", trial.number, trial.state, best))

    def retried(self, number, lost):
        self.heard.append(("repeats", number, lost))


def test_the_first_trial_has_the_recipes_own_values_and_the_budget_is_exact(tmp_path):
    asked = plan(tmp_path, trials=6)
    ending, worker = share(asked)
    found = trials(asked)
    assert (ending, worker.ran, len(found)) == ("budget", 6, 6)
    assert found[0].params == {"train.learning_rate": 3e-5}
    assert found[0].user_attrs["own"] is True
    assert all(1e-5 <= trial.params["train.learning_rate"] <= 1e-3 for trial in found)


def test_going_on_adds_nothing_to_a_full_study_and_fills_a_raised_budget(tmp_path):
    share(plan(tmp_path, trials=3))
    assert share(plan(tmp_path))[1].ran == 0
    assert budget(load_study(None, "search")) == 3
    assert share(plan(tmp_path, trials=5))[1].ran == 2
    assert len(trials(plan(tmp_path))) == 5


def test_one_worker_searches_the_same_values_each_time_also_after_an_interruption(tmp_path):
    whole = plan(tmp_path, trials=14, storage=str(tmp_path / "whole.journal"))
    parts = plan(tmp_path, trials=7, storage=str(tmp_path / "parts.journal"))
    share(whole)
    share(parts)
    share(plan(tmp_path, trials=14, storage=parts.storage))
    wanted, found = ([t.params for t in trials(one)][:10] for one in (whole, parts))
    assert found == wanted


def test_a_failed_trial_counts_and_keeps_its_reason(tmp_path):
    def objective(trial):
        if trial.number == 1:
            raise TrialFailed("the loss is nan at step 3")
        return good(trial)

    notes = Notes()
    share(plan(tmp_path, trials=3), objective, notes)
    ended = read_trials(load_study(None, "search"))
    assert [(t.number, t.state, t.reason) for t in ended] == [
        (0, "complete", None),
        (1, "failed", "the loss is nan at step 3"),
        (2, "complete", None),
    ]
    assert ("ended", 1, "failed", False) in notes.heard


def test_a_search_whose_trials_all_fail_ends_early(tmp_path):
    def objective(trial):
        raise TrialFailed("out of memory")

    with pytest.raises(RunFailedError, match=r"last 5 trials failed.*out of memory"):
        share(plan(tmp_path, trials=30), objective)
    assert len(trials(plan(tmp_path))) == 5


def test_an_interrupted_trial_is_repeated_and_that_is_no_loss(tmp_path):
    def objective(trial):
        if trial.number == 2:
            raise KeyboardInterrupt
        return good(trial)

    asked = plan(tmp_path, trials=4)
    with pytest.raises(KeyboardInterrupt):
        share(asked, objective)
    notes = Notes()
    share(asked, watcher=notes)
    found = trials(asked)
    assert len(studies.settled(found)) == 4
    assert notes.heard[0] == ("repeats", 3, 2)
    assert found[3].params == found[2].params
    assert found[3].user_attrs["losses"] == 0


def dead_trial(asked: SearchConfig) -> int:
    """Take a trial as a process does that is then killed; return its number."""
    study = open_study(asked)
    trial = study.ask()
    samplers.suggest(trial, "train.learning_rate", samplers.distributions(asked.parameters)["train.learning_rate"])
    studies.sign(trial)
    trial.set_user_attr("owner", [studies._host(), 2**22 + 7, "0"])  # beyond what Linux gives
    return trial.number


def test_a_trial_of_a_dead_process_is_repeated_once(tmp_path):
    asked = plan(tmp_path, trials=3)
    assert dead_trial(asked) == 0
    study = open_study(asked)
    assert retry_stale_trials(study) == [(1, 0)]
    assert retry_stale_trials(study) == []
    share(asked)
    found = trials(asked)
    assert [t.state for t in found] == [TrialState.FAIL, *[TrialState.COMPLETE] * 3]
    assert found[1].params == found[0].params == {"train.learning_rate": 3e-5}
    assert found[1].user_attrs["own"] is True
    assert studies.counts(found) == {"complete": 3, "pruned": 0, "failed": 0}


def test_a_trial_taken_but_not_signed_is_repeated(tmp_path):
    """The process died between the two, so that no values had been chosen yet."""
    asked = plan(tmp_path, trials=2)
    open_study(asked).ask()
    share(asked)
    assert trials(asked)[1].params == {"train.learning_rate": 3e-5}
    assert len(studies.settled(trials(asked))) == 2


def test_a_trial_that_ends_its_process_again_and_again_is_given_up(tmp_path):
    asked = plan(tmp_path, trials=2)
    for number in range(3):
        assert dead_trial(asked) == number
        retry_stale_trials(open_study(asked))
    found = trials(asked)
    assert len(found) == 3
    assert read_trials(open_study(asked))[0].reason == "its process was ended 3 times"
    share(asked)
    assert studies.counts(trials(asked)) == {"complete": 1, "pruned": 0, "failed": 1}


def test_a_living_process_of_this_or_another_machine_keeps_its_trial(tmp_path):
    asked = plan(tmp_path, trials=3)
    study = open_study(asked)
    init = f"{psutil.Process(1).create_time():.2f}"
    for owner in ([studies._host(), 1, init], ["elsewhere", 2**22 + 7, "0"]):
        study.ask().set_user_attr("owner", owner)
    assert retry_stale_trials(study) == []
    assert study.ask().number == 2
    assert retry_stale_trials(study) == [(3, 2)]


def test_values_that_another_worker_is_at_are_not_tried_twice(tmp_path):
    asked = plan(tmp_path, trials=3)
    share(plan(tmp_path, trials=1))
    study = open_study(asked)
    values = {"train.learning_rate": 2e-4}
    study.enqueue_trial(values)
    at_work = study.ask()
    at_work.suggest_float("train.learning_rate", 1e-5, 1e-3, log=True)
    at_work.set_user_attr("owner", ["elsewhere", 2**22 + 7, "0"])
    study.enqueue_trial(values)

    def last(trial):  # nothing is left to wait for
        study.tell(at_work.number, 1.0)
        return good(trial)

    assert share(asked, last)[0] == "budget"
    found = trials(asked)
    assert found[2].user_attrs[studies.SAME_AS] == at_work.number
    assert [trial.number for trial in studies.settled(found)] == [0, 1, 3]
    assert found[3].params != values


def test_no_trial_begins_after_the_time(tmp_path):
    def slow(trial):
        time.sleep(0.3)
        return good(trial)

    ending, worker = share(plan(tmp_path, trials=50, timeout=0.1), slow)
    assert (ending, worker.ran) == ("timeout", 1)
    assert len(trials(plan(tmp_path))) == 1


@pytest.mark.parametrize("sampler", ["tpe", "grid", "random"])
def test_a_small_space_is_searched_to_its_end_and_no_point_twice(tmp_path, sampler):
    knobs = (
        knob("train.batch_size", low=8.0, high=32.0, log=False, step=8.0, whole=True, default=16),
        knob("train.schedule", low=None, high=None, log=False, choices=("linear", "constant"), default="linear"),
    )
    asked = plan(tmp_path, parameters=knobs, sampler=sampler, trials=40)
    ending, _ = share(asked)
    done = [tuple(trial.params.values()) for trial in studies.settled(trials(asked))]
    assert ending == "exhausted"
    assert done[0] == (16, "linear")
    assert sorted(done) == [(b, s) for b in (8, 16, 24, 32) for s in ("constant", "linear")]


@pytest.mark.parametrize("sampler", samplers.SAMPLERS)
def test_every_sampler_stays_in_the_range(tmp_path, sampler):
    knobs = (knob(), knob("train.weight_decay", low=0.0, high=0.1, log=False, default=0.0))
    asked = plan(tmp_path, parameters=knobs, sampler=sampler, trials=16)
    ending, _ = share(asked)
    done = studies.settled(trials(asked))
    assert ending in ("budget", "exhausted")
    assert len(done) == 16
    assert len({tuple(t.params.values()) for t in done}) == 16
    assert all(0 <= t.params["train.weight_decay"] <= 0.1 for t in done)


def test_the_recipes_own_value_may_lie_beside_the_range(tmp_path):
    asked = plan(tmp_path, parameters=(knob(low=1e-4),), trials=12)
    share(asked)
    values = [trial.params["train.learning_rate"] for trial in trials(asked)]
    assert values[0] == 3e-5
    assert all(1e-4 <= value <= 1e-3 for value in values[1:])


def test_zero_has_no_place_on_a_log_scale_so_the_first_trial_has_no_value(tmp_path):
    knobs = (knob(), knob("train.weight_decay", low=1e-6, high=1e-1, default=0.0))
    asked = plan(tmp_path, parameters=knobs, trials=14)
    share(asked)
    found = trials(asked)
    assert found[0].params == {"train.learning_rate": 3e-5}
    assert all(len(trial.params) == 2 for trial in found[1:])
    with pytest.raises(CseError, match=r"--sampler gp: the recipe's own train.weight_decay"):
        open_study(plan(tmp_path, name="other", parameters=knobs, sampler="gp"))


@pytest.mark.parametrize(("option", "value"), [("sampler", "tpee"), ("pruner", "medain")])
def test_unknown_samplers_and_pruners_are_refused(tmp_path, option, value):
    with pytest.raises(
        CseError, match=f"unknown '{value}'. Did you mean '{'tpe' if option == 'sampler' else 'median'}'"
    ):
        open_study(plan(tmp_path, **{option: value}))


def test_a_plan_survives_its_storage_without_password_or_place(tmp_path):
    asked = plan(tmp_path, trials=7, seeds=(1, 2), device="cpu", timeout=3.0, workers=4)
    kept = stored_config(open_study(asked))
    assert kept == SearchConfig(
        name=asked.name, recipe=asked.recipe, parameters=asked.parameters, trials=7, seeds=(1, 2)
    )


def test_test_data_is_never_tuned_on(tmp_path):
    test = ("evaluators.dev.split=test", "evaluate.allow_test_selection=true")
    with pytest.raises(CseError, match="tuning takes dev metrics only"):
        open_study(plan(tmp_path, overrides=test))
    assert not (address(None, "search")).exists()


def test_half_a_line_of_a_killed_process_does_not_harm_the_journal(tmp_path):
    asked = plan(tmp_path, trials=3)
    share(asked)
    journal = address(None, "search").file
    with journal.open("ab") as file:
        file.write(b'{"op_code":4,"worker_id":"x')
    share(plan(tmp_path, trials=5))
    assert len(studies.settled(trials(asked))) == 5
    assert all(line.endswith(b"}\n") for line in journal.open("rb"))


def test_an_unreadable_address_is_refused_without_its_password(tmp_path):
    for storage, message in {
        "mysql://me:secret@host/db": "'mysql' is not supported",
        "notes.txt": "neither an address nor a journal",
    }.items():
        with pytest.raises(CseError, match=message) as told:
            address(storage, "x")
        assert "secret" not in str(told.value)
    assert address("postgresql://me:secret@host/db", "x").shown == "postgresql://me:***@host/db"

"""The driver with runs that cost nothing: exact budgets, what goes on, what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import optuna
import pytest
from optuna.trial import TrialState
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError

from cse_cli.runs.record import STOP, folder_of
from cse_cli.tuning import driver as drivers
from cse_cli.tuning import results, samplers
from cse_cli.tuning import study as studies
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.observer import SearchObserver
from cse_cli.tuning.results import read_search, read_trials
from cse_cli.tuning.storage import address
from cse_cli.tuning.study import budget, load_study, open_study, stored_config
from registry.errors import CseError, DiskError, MissingError, RunFailedError, StopRequested, TrackingError
from tests.cse_cli.jobs.running import cse
from tests.cse_cli.tuning.fake import drive, good, knob, number, plan, trials


class Notes(SearchObserver):
    """Remembers what it hears."""

    def __init__(self):
        self.heard = []

    def trial_began(self, number, values):
        self.heard.append(("began", number, dict(values)))

    def trial_ended(self, trial, best, done):
        self.heard.append(("ended", trial.number, trial.state, best))

    def resumed(self, number):
        self.heard.append(("resumed", number))

    def warned(self, text):
        self.heard.append(text)


def test_the_first_trial_has_the_recipes_own_values_and_the_budget_is_exact(tmp_path):
    asked = plan(tmp_path, trials=6)
    ending, driver, _ = drive(asked)
    found = trials(asked)
    assert (ending, driver.ran, len(found)) == ("budget", 6, 6)
    assert found[0].params == {"train.learning_rate": 3e-5}
    assert found[0].user_attrs["own"] is True
    assert all(1e-5 <= trial.params["train.learning_rate"] <= 1e-3 for trial in found)


@pytest.mark.parametrize("slots", [3, 9])
def test_several_at_once_do_exactly_the_budget(slots, tmp_path):
    asked = plan(tmp_path, trials=7)
    ending, driver, executor = drive(asked, slots=slots)
    assert (ending, driver.ran, len(trials(asked))) == ("budget", 7, 7)
    assert executor.most == min(slots, 7)
    assert sorted(map(number, executor.jobs)) == list(range(7))


def test_going_on_adds_nothing_to_a_full_study_and_fills_a_raised_budget(tmp_path):
    drive(plan(tmp_path, trials=3))
    assert drive(plan(tmp_path))[1].ran == 0
    assert budget(load_study(None, "search")) == 3
    assert drive(plan(tmp_path, trials=5))[1].ran == 2
    assert len(trials(plan(tmp_path))) == 5


@pytest.mark.exhaustive
def test_the_values_are_the_same_each_time_also_after_an_interruption(tmp_path):
    whole = plan(tmp_path, trials=14, storage=f"sqlite:///{tmp_path}/whole.db")
    parts = plan(tmp_path, trials=7, storage=f"sqlite:///{tmp_path}/parts.db")
    drive(whole)
    drive(parts)
    drive(plan(tmp_path, trials=14, storage=parts.storage))
    wanted, found = ([t.params for t in trials(one)][:10] for one in (whole, parts))
    assert found == wanted


def test_a_failed_trial_counts_and_keeps_its_reason(tmp_path):
    def score(job, observer):
        if number(job) == 1:
            raise RunFailedError("the loss is nan at step 3")
        return good(job, observer)

    notes = Notes()
    drive(plan(tmp_path, trials=3), score, notes)
    ended = read_trials(load_study(None, "search"))
    assert [(t.number, t.state, t.reason) for t in ended] == [
        (0, "complete", None),
        (1, "failed", "the loss is nan at step 3"),
        (2, "complete", None),
    ]
    assert ("ended", 1, "failed", False) in notes.heard


@pytest.mark.parametrize("slots", [1, 3])
def test_a_search_whose_trials_all_fail_ends_early(slots, tmp_path):
    def score(job, observer):
        raise RuntimeError("out of memory")

    with pytest.raises(RunFailedError, match=r"last 5 trials failed.*RuntimeError: out of memory"):
        drive(plan(tmp_path, trials=30), score, slots=slots)
    assert studies.counts(trials(plan(tmp_path)))["failed"] == 5


@pytest.mark.parametrize(
    "error",
    [TrackingError("no store"), DiskError("no room"), MissingError("no data"), OperationalError("", {}, OSError())],
)
def test_what_no_trial_could_do_ends_the_search(error, tmp_path):
    def score(job, observer):
        if number(job) == 1:
            raise error
        return good(job, observer)

    with pytest.raises(TrackingError if isinstance(error, OperationalError) else type(error)):
        drive(plan(tmp_path, trials=30), score)
    assert studies.counts(trials(plan(tmp_path))) == {"complete": 1, "pruned": 0, "failed": 0}


def test_the_recipes_own_values_must_be_possible(tmp_path):
    def score(job, observer):
        raise CseError("no such part")

    with pytest.raises(CseError, match="no such part"):
        drive(plan(tmp_path, trials=3), score)
    assert studies.settled(trials(plan(tmp_path))) == []


def test_a_search_that_is_requested_to_stop_ends_after_its_trial(tmp_path):
    def score(job, observer):
        (folder_of(job.parent)).mkdir(parents=True)
        (folder_of(job.parent) / STOP).touch()
        return good(job, observer)

    with pytest.raises(StopRequested, match="search 'search' was stopped"):
        drive(plan(tmp_path, trials=3), score)
    assert studies.counts(trials(plan(tmp_path)))["complete"] == 1


# A driver that is gone.


def interrupt_at(*numbers):
    """Return a score that is interrupted in these trials, after a first dev score."""

    def score(job, observer):
        if number(job) in numbers and job.resume is None:
            observer.evaluated(2, {"dev.spearman": 7.0}, True)
            raise KeyboardInterrupt
        return good(job, observer)

    return score


def test_an_interrupted_trial_goes_on_under_its_number_with_the_run_it_was_at(tmp_path):
    asked = plan(tmp_path, trials=4)
    with pytest.raises(KeyboardInterrupt):
        drive(asked, interrupt_at(2))
    left = trials(asked)[2]
    assert left.state == TrialState.RUNNING
    assert left.intermediate_values == {2: 7.0}
    assert [trial.state for trial in read_search(load_study(None, "search")).trials] == [
        *["complete"] * 2,
        "interrupted",
    ]
    notes = Notes()
    _, driver, executor = drive(asked, observer=notes)
    assert notes.heard[0] == ("resumed", 2)
    assert [job.resume for job in executor.jobs] == [left.user_attrs["runs"]["42"], None]
    assert (executor.jobs[0].may_restart, driver.ran) == (True, 2)
    found = trials(asked)
    assert [trial.state for trial in found] == [TrialState.COMPLETE] * 4
    assert (found[2].params, found[2].intermediate_values) == (left.params, left.intermediate_values)
    assert read_trials(load_study(None, "search"))[2].seconds < (found[2].duration.total_seconds())


@pytest.mark.exhaustive
@pytest.mark.parametrize("slots", [1, 2])
def test_several_interrupted_trials_go_on_before_new_ones_begin(slots, tmp_path):
    asked = plan(tmp_path, trials=6)
    study = open_study(asked)
    drive(plan(tmp_path, trials=1))
    for value in (1e-4, 2e-4, 3e-4):
        study.enqueue_trial({"train.learning_rate": value})
        samplers.suggest(
            study.ask(), "train.learning_rate", samplers.distributions(asked.parameters)["train.learning_rate"]
        )
    ending, _, executor = drive(asked, slots=slots)
    assert (ending, list(map(number, executor.jobs))) == ("budget", [1, 2, 3, 4, 5])
    assert [trial.state for trial in trials(asked)] == [TrialState.COMPLETE] * 6


def test_a_trial_killed_before_it_had_values_gets_them(tmp_path):
    asked = plan(tmp_path, trials=2)
    open_study(asked).ask()
    drive(asked)
    assert trials(asked)[0].params == {"train.learning_rate": 3e-5}
    assert len(studies.settled(trials(asked))) == 2


def test_a_trial_whose_driver_was_killed_before_it_told_the_end_is_not_run_again(tmp_path):
    asked = plan(tmp_path, trials=6)
    with pytest.raises(KeyboardInterrupt):
        drive(asked, interrupt_at(2))
    study = open_study(asked)
    left = trials(asked)[2]
    study._storage.set_trial_user_attr(left._trial_id, "reason", "the loss is nan")
    _, _, executor = drive(asked)
    assert 2 not in map(number, executor.jobs)
    assert read_trials(study)[2].reason == "the loss is nan"


def test_several_seeds_of_a_trial_follow_each_other(tmp_path):
    asked = plan(tmp_path, trials=4, seeds=(5, 6, 7))

    def score(job, observer):
        if number(job) == 1 and job.seed == 6 and job.resume is None:
            raise KeyboardInterrupt
        return good(job, observer) + job.seed

    with pytest.raises(KeyboardInterrupt):
        drive(asked, score)
    _, _, executor = drive(asked, lambda job, observer: good(job, observer) + job.seed, slots=2)
    did = [(number(job), job.seed) for job in executor.jobs]
    assert did[:2] == [(1, 6), (2, 5)]
    assert executor.jobs[0].resume is not None
    assert sorted(did) == [(1, 6), (1, 7), *((n, seed) for n in (2, 3) for seed in (5, 6, 7))]
    found = trials(asked)
    assert executor.most == 2
    assert found[1].value == pytest.approx(6 - found[1].params["train.learning_rate"] - 64)
    assert [trial.state for trial in found] == [TrialState.COMPLETE] * 4


def test_values_that_an_interrupted_trial_has_are_not_tried_twice(tmp_path):
    asked = plan(tmp_path, trials=3)
    drive(plan(tmp_path, trials=1))
    study = open_study(asked)
    study.enqueue_trial({"train.learning_rate": 2e-4})
    at_work = study.ask()
    at_work.suggest_float("train.learning_rate", 1e-5, 1e-3, log=True)
    study.enqueue_trial({"train.learning_rate": 2e-4})
    assert drive(asked, slots=2)[0] == "budget"
    found = trials(asked)
    assert found[2].user_attrs[studies.SAME_AS] == at_work.number
    assert [trial.number for trial in studies.settled(found)] == [0, 1, 3]
    assert found[3].params != found[1].params


def test_no_trial_begins_after_the_time(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(drivers, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow(job, observer):
        now[0] += 3.0
        return good(job, observer)

    ending, driver, _ = drive(plan(tmp_path, trials=50, timeout=5.0), slow, slots=2)
    assert (ending, driver.ran) == ("timeout", 3)  # the third began after 3 s, and none after 6 s
    assert len(trials(plan(tmp_path))) == 3


def test_a_warning_of_one_among_several_says_whose_it_is(tmp_path):
    def score(job, observer):
        observer.warned("slow disk")
        return good(job, observer)

    for slots, said in ((1, "slow disk"), (2, "trial 0: slow disk")):
        notes = Notes()
        drive(plan(tmp_path, trials=2, name=f"search{slots}"), score, notes, slots)
        assert said in notes.heard


@pytest.mark.exhaustive
@pytest.mark.parametrize("sampler", ["tpe", "grid", "random"])
def test_a_small_space_is_searched_to_its_end_and_no_point_twice(tmp_path, sampler):
    knobs = (
        knob("train.batch_size", low=8.0, high=32.0, log=False, step=8.0, whole=True, default=16),
        knob("train.schedule", low=None, high=None, log=False, choices=("linear", "constant"), default="linear"),
    )
    asked = plan(tmp_path, parameters=knobs, sampler=sampler, trials=40)
    ending, _, _ = drive(asked)
    done = [tuple(trial.params.values()) for trial in studies.settled(trials(asked))]
    assert ending == "exhausted"
    assert done[0] == (16, "linear")
    assert sorted(done) == [(b, s) for b in (8, 16, 24, 32) for s in ("constant", "linear")]


@pytest.mark.exhaustive
@pytest.mark.parametrize("sampler", samplers.SAMPLERS)
def test_every_sampler_stays_in_the_range(tmp_path, sampler):
    knobs = (knob(), knob("train.weight_decay", low=0.0, high=0.1, log=False, default=0.0))
    asked = plan(tmp_path, parameters=knobs, sampler=sampler, trials=16)
    ending, _, _ = drive(asked)
    done = studies.settled(trials(asked))
    assert ending in ("budget", "exhausted")
    assert len(done) == 16
    assert len({tuple(t.params.values()) for t in done}) == 16
    assert all(0 <= t.params["train.weight_decay"] <= 0.1 for t in done)


def test_the_recipes_own_value_may_lie_beside_the_range(tmp_path):
    asked = plan(tmp_path, parameters=(knob(low=1e-4),), trials=12)
    drive(asked)
    values = [trial.params["train.learning_rate"] for trial in trials(asked)]
    assert values[0] == 3e-5
    assert all(1e-4 <= value <= 1e-3 for value in values[1:])


def test_zero_has_no_place_on_a_log_scale_so_the_first_trial_has_no_value(tmp_path):
    knobs = (knob(), knob("train.weight_decay", low=1e-6, high=1e-1, default=0.0))
    asked = plan(tmp_path, parameters=knobs, trials=14)
    drive(asked)
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
    assert not address(None, "search").exists()


def test_a_study_killed_while_it_was_made_is_made_again(tmp_path):
    asked = plan(tmp_path, trials=2)
    optuna.create_study(study_name="search", storage=address(None, "search").open(), direction="maximize")
    with pytest.raises(CseError, match="not made"):
        load_study(None, "search")
    drive(asked)
    assert studies.counts(trials(asked))["complete"] == 2


def test_an_unusable_address_is_refused_without_its_password(tmp_path):
    for storage, message in {
        "redis://me:secret@host/db": "'redis' is not supported",
        "notes.txt": "'notes.txt' is not an address",
        "old": r"use sqlite:///old.db, or leave out --storage",
        "sqlite://": "names no file",
    }.items():
        with pytest.raises(CseError) as told:
            address(storage, "x")
        assert message in str(told.value)
        assert "secret" not in str(told.value)
    assert address("postgresql://me:secret@host/db", "x").shown == "postgresql://me:***@host/db"
    assert address("sqlite:///x.db", "x").file.is_absolute()


def test_a_database_that_is_away_is_told_without_its_password(tmp_path):
    from tests.ports import unused_port

    with pytest.raises(TrackingError, match=r"mysql://me:\*\*\*@127.0.0.1.*(cannot be opened|driver)"):
        open_study(plan(tmp_path, storage=f"mysql+pymysql://me:secret@127.0.0.1:{unused_port()}/db"))
    with pytest.raises(TrackingError, match="cannot be opened"):
        open_study(plan(tmp_path, storage=f"sqlite:///{tmp_path}/no/folder/x.db"))


def test_a_file_of_another_program_is_left_alone(tmp_path):
    import sqlite3

    with sqlite3.connect(tmp_path / "runs.db") as database:
        database.execute("CREATE TABLE alembic_version (version_num varchar(32) PRIMARY KEY)")
        database.execute("INSERT INTO alembic_version VALUES ('b7c8d9e0f1a2')")
    with pytest.raises(TrackingError, match="database of its own"):
        open_study(plan(tmp_path, storage=f"sqlite:///{tmp_path}/runs.db"))


@pytest.mark.parametrize("asked_for", ["ls", "--best"])
def test_a_storage_that_goes_away_is_one_message_whatever_it_is_asked(asked_for, tmp_path, monkeypatch, capsys):
    drive(plan(tmp_path, trials=1, name="away"))

    def refuse(connection, *_):
        if "tuning" in str(connection.engine.url):
            raise OperationalError("", {}, OSError("the server closed the connection"))

    read = results.read_trials

    def read_without(*of, **how):
        event.listen(Engine, "before_cursor_execute", refuse)
        try:
            return read(*of, **how)
        finally:
            event.remove(Engine, "before_cursor_execute", refuse)

    monkeypatch.setattr(results, "read_trials", read_without)
    code, out, err = cse("tune", *(["ls"] if asked_for == "ls" else ["--best", "away"]), capsys=capsys)
    assert (code, out) == (4, "")
    assert err.startswith("error: --storage: ")
    assert "does not answer any more: (builtins.OSError) the server closed the connection" in " ".join(err.split())
    assert "the study is kept there: the same command goes on with it" in err

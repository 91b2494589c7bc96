"""The driver with runs that cost nothing: exact budgets, resumption, errors."""

from __future__ import annotations

from types import SimpleNamespace

import optuna
import pytest
from optuna.trial import TrialState
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError

from cse_cli.core.events import Evaluated, Warned
from cse_cli.jobs.request import RunRequest
from cse_cli.runs.record import STOP, folder_of
from cse_cli.tuning import driver as drivers
from cse_cli.tuning import results, samplers
from cse_cli.tuning import study as studies
from cse_cli.tuning.config import SearchConfig
from cse_cli.tuning.record import take_search_record
from cse_cli.tuning.results import read_search, read_trials
from cse_cli.tuning.search import stopped_searches
from cse_cli.tuning.storage import address
from cse_cli.tuning.study import budget, load_study, open_study, stored_config
from registry.errors import CseError, DiskError, MissingError, RunFailedError, TrackingError
from tests.cse_cli.tuning.fake import (
    BATCHES,
    SCHEDULES,
    Notes,
    config,
    drive,
    good,
    number,
    parameter,
    raising,
    trials,
)
from tests.support.command import cse
from tests.support.errors import refuses

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("slots", [1, 3, 9])
def test_the_first_trial_is_the_recipe_and_the_budget_exact(slots, tmp_path):
    asked = config(tmp_path, trials=7)
    ending, driver, executor = drive(asked, slots=slots)
    found = trials(asked)
    assert (ending, driver.ran, len(found), executor.most) == ("budget", 7, 7, min(slots, 7))
    assert sorted(map(number, executor.jobs)) == list(range(7))
    assert (found[0].params, found[0].user_attrs["own"]) == ({"train.learning_rate": 3e-5}, True)
    assert all(1e-5 <= trial.params["train.learning_rate"] <= 1e-3 for trial in found)


def test_a_raised_budget_is_filled(tmp_path):
    drive(config(tmp_path, trials=3))
    assert drive(config(tmp_path))[1].ran == 0
    assert budget(load_study(None, "search")) == 3
    assert drive(config(tmp_path, trials=5))[1].ran == 2
    assert len(trials(config(tmp_path))) == 5


@pytest.mark.exhaustive
def test_an_interruption_does_not_change_the_values(tmp_path):
    whole = config(tmp_path, trials=14, storage=f"sqlite:///{tmp_path}/whole.db")
    parts = config(tmp_path, trials=7, storage=f"sqlite:///{tmp_path}/parts.db")
    drive(whole)
    drive(parts)
    drive(config(tmp_path, trials=14, storage=parts.storage))
    wanted, found = ([t.params for t in trials(one)][:10] for one in (whole, parts))
    assert found == wanted


def test_a_failed_trial_counts_and_keeps_its_reason(tmp_path):
    notes = Notes()
    drive(config(tmp_path, trials=3), raising(RunFailedError("the loss is nan at step 3"), 1), notes)
    ended = read_trials(load_study(None, "search"))
    assert [(t.number, t.state, t.reason) for t in ended] == [
        (0, "complete", None),
        (1, "failed", "the loss is nan at step 3"),
        (2, "complete", None),
    ]
    assert ("ended", 1, "failed", False) in notes.heard


@pytest.mark.parametrize("slots", [1, 3])
def test_a_search_whose_trials_all_fail_ends_early(slots, tmp_path):
    with refuses("tune.all_trials_failed", 5, "RuntimeError: out of memory"):
        drive(config(tmp_path, trials=30), raising(RuntimeError("out of memory"), *range(30)), slots=slots)
    assert studies.counts(trials(config(tmp_path)))["failed"] == 5


@pytest.mark.parametrize(
    "error",
    [TrackingError("no store"), DiskError("no room"), MissingError("no data"), OperationalError("", {}, OSError())],
)
def test_errors_that_all_trials_share_end_the_search(error, tmp_path):
    with pytest.raises(TrackingError if isinstance(error, OperationalError) else type(error)):
        drive(config(tmp_path, trials=30), raising(error, 1))
    assert studies.counts(trials(config(tmp_path))) == {"complete": 1, "pruned": 0, "failed": 0}


def test_the_recipes_own_values_must_be_possible(tmp_path):
    with pytest.raises(CseError, match="no such part"):
        drive(config(tmp_path, trials=3), raising(CseError("no such part"), 0))
    assert studies.settled(trials(config(tmp_path))) == []


def test_a_search_that_is_requested_to_stop_ends_after_its_trial(tmp_path):
    def score(job, observer):
        (folder_of(job.parent)).mkdir(parents=True)
        (folder_of(job.parent) / STOP).touch()
        return good(job, observer)

    with refuses("tune.stopped", "'search'", "cse tune --resume search"):
        drive(config(tmp_path, trials=3), score)
    assert studies.counts(trials(config(tmp_path)))["complete"] == 1


# Interrupted drivers.


def test_an_interrupted_trial_is_resumed_with_its_run(tmp_path):
    asked = config(tmp_path, trials=4)

    def score(job, observer):
        if number(job) == 2:
            observer.observe(Evaluated(2, {"dev.spearman": 7.0}, True))
        return raising(KeyboardInterrupt(), 2)(job, observer)

    with pytest.raises(KeyboardInterrupt):
        drive(asked, score)
    left = trials(asked)[2]
    assert left.state == TrialState.RUNNING
    assert left.intermediate_values == {2: 7.0}
    assert [trial.state for trial in read_search(load_study(None, "search")).trials] == [
        *["complete"] * 2,
        "interrupted",
    ]
    notes = Notes()
    _, driver, executor = drive(asked, screen=notes)
    assert notes.heard[0] == ("resumed", 2)
    assert [job.resume for job in executor.jobs] == [left.user_attrs["runs"]["42"], None]
    assert (executor.jobs[0].may_restart, driver.ran) == (True, 2)
    found = trials(asked)
    assert [trial.state for trial in found] == [TrialState.COMPLETE] * 4
    assert (found[2].params, found[2].intermediate_values) == (left.params, left.intermediate_values)
    assert read_trials(load_study(None, "search"))[2].seconds < (found[2].duration.total_seconds())


@pytest.mark.exhaustive
@pytest.mark.parametrize("slots", [1, 2])
def test_interrupted_trials_come_before_new_ones(slots, tmp_path):
    asked = config(tmp_path, trials=6)
    study = open_study(asked)
    drive(config(tmp_path, trials=1))
    for value in (1e-4, 2e-4, 3e-4):
        study.enqueue_trial({"train.learning_rate": value})
        samplers.suggest(
            study.ask(), "train.learning_rate", samplers.distributions(asked.parameters)["train.learning_rate"]
        )
    ending, _, executor = drive(asked, slots=slots)
    assert (ending, list(map(number, executor.jobs))) == ("budget", [1, 2, 3, 4, 5])
    assert [trial.state for trial in trials(asked)] == [TrialState.COMPLETE] * 6


def test_a_trial_killed_before_it_had_values_gets_them(tmp_path):
    asked = config(tmp_path, trials=2)
    open_study(asked).ask()
    drive(asked)
    assert trials(asked)[0].params == {"train.learning_rate": 3e-5}
    assert len(studies.settled(trials(asked))) == 2


def test_a_failure_stored_before_a_kill_is_not_run_again(tmp_path):
    asked = config(tmp_path, trials=6)
    with pytest.raises(KeyboardInterrupt):
        drive(asked, raising(KeyboardInterrupt(), 2))
    study = open_study(asked)
    left = trials(asked)[2]
    study._storage.set_trial_user_attr(left._trial_id, "reason", "the loss is nan")
    _, _, executor = drive(asked)
    assert 2 not in map(number, executor.jobs)
    assert read_trials(study)[2].reason == "the loss is nan"


def test_seeds_of_a_trial_run_one_after_another(tmp_path):
    asked = config(tmp_path, trials=4, seeds=(5, 6, 7))

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


def test_values_of_an_interrupted_trial_are_not_repeated(tmp_path):
    asked = config(tmp_path, trials=3)
    drive(config(tmp_path, trials=1))
    study = open_study(asked)
    study.enqueue_trial({"train.learning_rate": 2e-4})
    running = study.ask()
    running.suggest_float("train.learning_rate", 1e-5, 1e-3, log=True)
    study.enqueue_trial({"train.learning_rate": 2e-4})
    assert drive(asked, slots=2)[0] == "budget"
    found = trials(asked)
    assert found[2].user_attrs[studies.SAME_AS] == running.number
    assert [trial.number for trial in studies.settled(found)] == [0, 1, 3]
    assert found[3].params != found[1].params


def test_no_trial_starts_after_the_timeout(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(drivers, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow(job, observer):
        now[0] += 3.0
        return good(job, observer)

    ending, driver, _ = drive(config(tmp_path, trials=50, timeout=5.0), slow, slots=2)
    assert (ending, driver.ran) == ("timeout", 3)  # the third began after 3 s, and none after 6 s
    assert len(trials(config(tmp_path))) == 3


def test_warnings_of_parallel_runs_name_their_trial(tmp_path):
    def score(job, observer):
        observer.observe(Warned("slow disk"))
        return good(job, observer)

    for slots, said in ((1, "slow disk"), (2, "trial 0: slow disk")):
        notes = Notes()
        drive(config(tmp_path, trials=2, name=f"search{slots}"), score, notes, slots)
        assert said in notes.heard


@pytest.mark.exhaustive
@pytest.mark.parametrize("sampler", ["tpe", "grid", "random"])
def test_every_point_of_a_small_space_is_tried_once(tmp_path, sampler):
    asked = config(tmp_path, parameters=(BATCHES, SCHEDULES), sampler=sampler, trials=40)
    ending, _, _ = drive(asked)
    done = [tuple(trial.params.values()) for trial in studies.settled(trials(asked))]
    assert ending == "exhausted"
    assert done[0] == (16, "linear")
    assert sorted(done) == [(b, s) for b in (8, 16, 24, 32) for s in ("constant", "linear")]


@pytest.mark.exhaustive
@pytest.mark.parametrize("sampler", samplers.SAMPLERS)
def test_every_sampler_stays_in_the_range(tmp_path, sampler):
    parameters = (parameter(), parameter("train.weight_decay", low=0.0, high=0.1, log=False, default=0.0))
    asked = config(tmp_path, parameters=parameters, sampler=sampler, trials=16)
    ending, _, _ = drive(asked)
    done = studies.settled(trials(asked))
    assert ending in ("budget", "exhausted")
    assert len(done) == 16
    assert len({tuple(t.params.values()) for t in done}) == 16
    assert all(0 <= t.params["train.weight_decay"] <= 0.1 for t in done)


def test_the_recipes_value_may_be_outside_the_range(tmp_path):
    asked = config(tmp_path, parameters=(parameter(low=1e-4),), trials=12)
    drive(asked)
    values = [trial.params["train.learning_rate"] for trial in trials(asked)]
    assert values[0] == 3e-5
    assert all(1e-4 <= value <= 1e-3 for value in values[1:])


def test_zero_on_a_log_scale_is_missing_in_the_first_trial(tmp_path):
    parameters = (parameter(), parameter("train.weight_decay", low=1e-6, high=1e-1, default=0.0))
    asked = config(tmp_path, parameters=parameters, trials=14)
    drive(asked)
    found = trials(asked)
    assert found[0].params == {"train.learning_rate": 3e-5}
    assert all(len(trial.params) == 2 for trial in found[1:])
    with refuses("tune.own_outside", "--sampler gp", "'train.weight_decay'"):
        open_study(config(tmp_path, name="other", parameters=parameters, sampler="gp"))


@pytest.mark.parametrize(("option", "value", "near"), [("sampler", "tpee", "tpe"), ("pruner", "medain", "median")])
def test_unknown_samplers_and_pruners_are_refused(tmp_path, option, value, near):
    with refuses(f"tune.unknown_{option}", f"'{value}'", f"Did you mean '{near}'?"):
        open_study(config(tmp_path, **{option: value}))


def test_stored_settings_have_no_storage_and_no_device(tmp_path):
    request = RunRequest(device="cpu", workers=4)
    asked = config(tmp_path, trials=7, seeds=(1, 2), timeout=3.0, request=request)
    kept = stored_config(open_study(asked))
    assert kept == SearchConfig(
        name=asked.name, recipe=asked.recipe, parameters=asked.parameters, trials=7, seeds=(1, 2)
    )


def test_a_half_created_study_is_created_again(tmp_path):
    asked = config(tmp_path, trials=2)
    optuna.create_study(study_name="search", storage=address(None, "search").open(), direction="maximize")
    with refuses("tune.foreign_study", "'search'"):
        load_study(None, "search")
    drive(asked)
    assert studies.counts(trials(asked))["complete"] == 2


def test_an_emptied_database_is_a_warning(tmp_path):
    drive(config(tmp_path, trials=1))
    address(None, "search").file.write_bytes(b"")
    with refuses("tune.unknown_search", "'search'"):
        load_study(None, "search")
    with pytest.warns(UserWarning, match="is empty: its trials are lost, and the search restarts"):
        open_study(config(tmp_path))


def test_an_unusable_address_is_shown_without_password(tmp_path):
    for storage, value in {
        "redis://me:secret@host/db": "'redis'",
        "notes.txt": "'notes.txt'",
        "old": "sqlite:///old.db",
        "sqlite://": "'sqlite://'",
    }.items():
        with refuses("tune.bad_storage", value) as error:
            address(storage, "x")
        assert "secret" not in str(error.value)
    assert address("postgresql://me:secret@host/db", "x").shown == "postgresql://me:***@host/db"
    assert address("sqlite:///x.db", "x").file.is_absolute()


def test_an_unreachable_database_is_shown_without_password(tmp_path):
    from tests.support.ports import unused_port

    with pytest.raises(TrackingError, match=r"mysql://me:\*\*\*@127.0.0.1"):
        open_study(config(tmp_path, storage=f"mysql+pymysql://me:secret@127.0.0.1:{unused_port()}/db"))
    with refuses("tune.storage_not_opened", "no/folder/x.db"):
        open_study(config(tmp_path, storage=f"sqlite:///{tmp_path}/no/folder/x.db"))


def test_a_database_of_another_program_is_refused(tmp_path):
    import sqlite3

    with sqlite3.connect(tmp_path / "runs.db") as database:
        database.execute("CREATE TABLE alembic_version (version_num varchar(32) PRIMARY KEY)")
        database.execute("INSERT INTO alembic_version VALUES ('b7c8d9e0f1a2')")
    with refuses("tune.foreign_database", "runs.db"):
        open_study(config(tmp_path, storage=f"sqlite:///{tmp_path}/runs.db"))


@pytest.mark.parametrize("form", ["ls", "--best"])
def test_a_lost_storage_is_one_message(form, tmp_path, monkeypatch, capsys):
    drive(config(tmp_path, trials=1, name="away"))

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
    code, out, err = cse("tune", *(["ls"] if form == "ls" else ["--best", "away"]), capsys=capsys)
    assert (code, out) == (4, "")
    assert err.startswith("error: --storage: ")
    assert "no longer responds: (builtins.OSError) the server closed the connection" in " ".join(err.split())
    assert "run the same command again to continue the search" in err


def test_a_stopped_search_of_the_same_parameters_is_named(tmp_path):
    for name, end in (("stopped", "stopped"), ("done", "finished")):
        asked = config(tmp_path, name=name, trials=2)
        drive(asked)
        study = load_study(None, name)
        record = take_search_record(study, asked, asked.load_base())[1]
        record.started()
        record.end(end)
    assert list(stopped_searches(config(tmp_path, name="new"))) == [("stopped", "2 of 2 trials")]
    assert not list(stopped_searches(config(tmp_path, name="stopped")))
    assert not list(stopped_searches(config(tmp_path, name="new", parameters=(BATCHES,))))


def test_trials_count_from_0_without_repetitions(tmp_path):
    """A random search over two batch sizes repeats values often."""
    few = parameter("train.batch_size", low=8.0, high=16.0, log=False, step=8.0, whole=True, default=16)
    asked = config(tmp_path, trials=4, sampler="random", parameters=(few, SCHEDULES))
    drive(asked)
    study = load_study(None, asked.name)
    assert len(study.trials) > 4  # Optuna's numbers have gaps
    assert [trial.number for trial in read_search(study).trials] == [0, 1, 2, 3]

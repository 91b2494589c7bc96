"""The driver with runs that cost nothing: exact budgets, resumption, errors."""

from __future__ import annotations

import errno
from io import StringIO
from types import SimpleNamespace

import optuna
import pytest
from optuna.exceptions import StorageInternalError
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from cse_cli.core.console import Console
from cse_cli.jobs.request import RunRequest
from cse_cli.runs.claim import BusyError
from cse_cli.runs.index import all_runs, read_run
from cse_cli.runs.record import STOP, About, folder_of
from cse_cli.tuning import driver as drivers
from cse_cli.tuning import study as studies
from cse_cli.tuning.results import read_trials
from cse_cli.tuning.study import SearchConfig, directory, driving, journal, load_study, open_study, stored_config
from registry.errors import CseError, DiskError, MissingError, RunFailedError, TrackingError
from tests.cse_cli.tuning.fake import BATCHES, SCHEDULES, Notes, config, counts, drive, good, parameter, raising, trials
from tests.support.command import cse
from tests.support.errors import refuses
from tests.support.records import recorded

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("slots", [1, 3, 9])
def test_the_first_trial_is_the_recipe_and_the_budget_exact(slots, tmp_path):
    asked, notes = config(tmp_path, trials=7), Notes()
    notes.console = Console(file=StringIO())

    def score(job, tell):
        tell("warning", {"text": "slow disk"})
        return good(job, tell)

    ending, driver, engine = drive(asked, score, notes, slots)
    found = trials(asked)
    assert (ending, driver.ran, len(found), engine.most) == ("budget", 7, 7, min(slots, 7))
    assert sorted(job.trial for job in engine.jobs) == list(range(7))
    assert (found[0].params, found[0].user_attrs["own"]) == ({"train.learning_rate": 3e-5}, True)
    assert all(1e-5 <= trial.params["train.learning_rate"] <= 1e-3 for trial in found)
    heard = [*notes.heard, *notes.console.file.getvalue().splitlines()]  # parallel runs name their trial
    assert ("slow disk" if slots == 1 else "[trial 0] warning: slow disk") in heard
    assert drive(config(tmp_path))[1].ran == 0
    assert stored_config(load_study("search")).trials == 7
    assert drive(config(tmp_path, trials=9))[1].ran == 2


def test_a_failed_trial_counts_and_keeps_its_reason(tmp_path):
    open_study(config(tmp_path)).ask().set_user_attr(studies.REASON, "stored before a kill")
    notes = Notes()
    drive(config(tmp_path, trials=4), raising(RunFailedError("the loss is nan at step 3"), 2), notes)
    ended = read_trials(load_study("search"))
    assert [(one.state, one.reason) for one in ended] == [
        ("failed", "stored before a kill"), ("complete", None), ("failed", "the loss is nan at step 3"),
        ("complete", None),
    ]  # fmt: skip
    assert ("ended", 2, "failed", False) in notes.heard


@pytest.mark.parametrize("slots", [1, 3])
def test_a_search_whose_trials_all_fail_ends_early(slots, tmp_path):
    with refuses("tune.all_trials_failed", 5, "RuntimeError: out of memory"):
        drive(config(tmp_path, trials=30), raising(RuntimeError("out of memory"), *range(30)), slots=slots)
    assert counts()["failed"] == 5


@pytest.mark.parametrize(
    "error",
    [TrackingError("x"), DiskError("x"), OSError(28, "No space left"), MissingError("x"), StorageInternalError()],
)
def test_errors_that_all_trials_share_end_the_search(error, tmp_path):
    with pytest.raises(type(error)):
        drive(config(tmp_path, trials=30), raising(error, 1))
    assert counts() == {"complete": 1, "pruned": 0, "failed": 0}


def test_the_recipes_own_values_must_be_possible(tmp_path):
    with pytest.raises(CseError, match="no such part"):
        drive(config(tmp_path, trials=3), raising(CseError("no such part"), 0))
    assert studies.settled(trials(config(tmp_path))) == []


def test_a_search_that_is_requested_to_stop_ends_after_its_trial(tmp_path):
    def score(job, tell):
        (folder_of(job.parent)).mkdir(parents=True)
        (folder_of(job.parent) / STOP).touch()
        return good(job, tell)

    with refuses("tune.stopped", "'search'", "cse tune --resume search"):
        drive(config(tmp_path, trials=3), score)
    assert counts()["complete"] == 1


# Interrupted drivers.


def test_an_interrupted_trial_is_resumed_with_its_run(tmp_path):
    """A new trial has its values and continues its run, which keeps the number with which it was created."""
    asked, interrupt = config(tmp_path, trials=4), raising(KeyboardInterrupt(), 2)

    def score(job, tell):
        if job.trial == 2:
            tell("evaluated", {"step": 2, "scores": {"dev.spearman": 7.0}, "best": True})
        return interrupt(job, tell)

    with pytest.raises(KeyboardInterrupt):
        drive(asked, score)
    left = trials(asked)[2]
    assert (left.state, left.intermediate_values) == (TrialState.RUNNING, {2: 7.0})
    assert [trial.state for trial in read_trials(load_study("search"))] == [*["complete"] * 2, "interrupted"]
    notes = Notes()
    _, driver, engine = drive(asked, screen=notes)
    assert notes.heard[0] == "[dim]resuming interrupted trial 2[/dim]"
    assert (engine.resumed, driver.ran) == ([True, False], 2)
    *_, failed, again, last = trials(asked)
    assert (failed.number, failed.state) == (2, TrialState.FAIL)
    assert (again.params, again.intermediate_values) == (left.params, left.intermediate_values)
    assert again.user_attrs["run"] == left.user_attrs["run"]
    assert sorted(run.about.trial for run in all_runs()) == [0, 1, 2, 4]
    shown = read_trials(load_study("search"))
    assert [(trial.number, trial.state) for trial in shown] == [(number, "complete") for number in (0, 1, 3, 4)]
    assert (shown[2].values, shown[3].values) == (again.params, last.params)


@pytest.mark.parametrize("sampler", ["tpe", "grid", "random"])
def test_kills_change_no_values_and_no_scores(tmp_path, monkeypatch, sampler):
    asked = config(tmp_path, trials=12, sampler=sampler, parameters=(parameter(), BATCHES))
    drive(asked)
    whole = read_trials(load_study("search"))
    monkeypatch.setenv("CSE_HOME", str(tmp_path / "killed"))
    for runs, slots in ((1, 1), (3, 1), (4, 1), (2, 3)):
        left = iter(range(runs - 1))

        def score(job, tell, left=left):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return good(job, tell)

        with pytest.raises(KeyboardInterrupt):
            drive(asked, score, slots=slots)
        open_study(asked).ask()  # killed before it had values
    drive(asked)
    found = read_trials(load_study("search"))
    kept = {"state", "score", "values", "own"}
    assert [one.model_dump(include=kept) for one in found[:9]] == [one.model_dump(include=kept) for one in whole[:9]]
    assert [one.state for one in found] == ["complete"] * 12
    assert len(all_runs()) == 12


def test_a_full_disk_at_a_claim_ends_the_search_and_loses_no_trial(tmp_path, monkeypatch):
    asked = config(tmp_path, trials=4, sampler="grid")
    drive(asked)
    whole = [(trial.values, trial.score) for trial in read_trials(load_study("search"))]
    monkeypatch.setenv("CSE_HOME", str(tmp_path / "full"))
    write, left = About.write, iter([False, False, True])

    def full(about, *rest):
        if next(left, False):
            raise OSError(errno.ENOSPC, "No space left on device", str(about.path))
        write(about, *rest)

    monkeypatch.setattr(About, "write", full)
    with pytest.raises(OSError, match="No space left"):
        drive(asked)
    assert counts() == {"complete": 2, "pruned": 0, "failed": 0}
    drive(asked)
    assert [(trial.values, trial.score) for trial in read_trials(load_study("search"))] == whole
    assert len(all_runs()) == 4


def test_a_trial_whose_checkpoints_are_damaged_starts_again(tmp_path):
    damaged, notes = RunFailedError("no usable checkpoint", code="training.no_usable_checkpoint"), Notes()
    drive(config(tmp_path, trials=3), raising(damaged, 1), notes)
    assert counts() == {"complete": 3, "pruned": 0, "failed": 0}
    assert "trial 1 starts again from its first step: no usable checkpoint" in notes.heard
    assert len(all_runs()) == 3


def test_a_run_that_a_worker_of_a_killed_process_still_ends(tmp_path, monkeypatch):
    asked, busy = config(tmp_path, trials=2), [True, True]
    other = recorded(name="other", end="stopped")

    def score(job, tell):
        if busy:
            busy.pop()
            raise BusyError(read_run(other.run_id))
        return good(job, tell)

    monkeypatch.setattr(drivers, "POLL_SECONDS", 0)
    _, driver, engine = drive(asked, score)
    assert (driver.ran, [job.trial for job in engine.jobs]) == (2, [0, 0, 0, 1])
    assert counts() == {"complete": 2, "pruned": 0, "failed": 0}


def test_seeds_of_a_trial_run_one_after_another(tmp_path):
    asked = config(tmp_path, trials=4, seeds=(5, 6, 7))

    def score(job, tell):
        if job.trial == 1 and job.seed == 6:
            raise KeyboardInterrupt
        return good(job, tell) + job.seed

    with pytest.raises(KeyboardInterrupt):
        drive(asked, score)
    _, _, engine = drive(asked, lambda job, tell: good(job, tell) + job.seed, slots=2)
    did = [(job.trial, job.seed) for job in engine.jobs]
    assert did[:2] == [(1, 6), (3, 5)]
    assert engine.resumed[0]
    assert sorted(did) == [(1, 6), (1, 7), *((n, seed) for n in (3, 4) for seed in (5, 6, 7))]
    found = read_trials(load_study("search"))
    assert engine.most == 2
    assert found[1].score == pytest.approx(6 - found[1].values["train.learning_rate"] - 64)
    assert [trial.state for trial in found] == ["complete"] * 4


def test_no_trial_starts_after_the_timeout(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(drivers, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow(job, tell):
        now[0] += 3.0
        return good(job, tell)

    ending, driver, _ = drive(config(tmp_path, trials=50, timeout=5.0), slow, slots=2)
    assert (ending, driver.ran) == ("timeout", 3)  # the third began after 3 s, and none after 6 s
    assert len(trials(config(tmp_path))) == 3


# Values.


@pytest.mark.exhaustive
@pytest.mark.parametrize("sampler", ["tpe", "grid", "random"])
def test_every_point_of_a_small_space_is_tried_once(tmp_path, sampler):
    asked = config(tmp_path, parameters=(BATCHES, SCHEDULES), sampler=sampler, trials=40)
    ending, _, _ = drive(asked)
    done = [tuple(trial.values.values()) for trial in read_trials(load_study("search"))]
    assert ending == "exhausted"
    assert done[0] == (16, "linear")
    assert sorted(done) == [(b, s) for b in (8, 16, 24, 32) for s in ("constant", "linear")]
    if sampler == "random":
        assert len(trials(asked)) > len(done)  # Optuna numbers the repeated values, which are no trials


@pytest.mark.parametrize("sampler", studies.SAMPLERS)
def test_only_the_recipes_own_values_may_be_outside_the_range(tmp_path, sampler):
    rate, decay = parameter(low=1e-4), parameter("train.weight_decay", low=1e-6, high=1e-1, default=0.0)
    asked = config(tmp_path, parameters=(rate, decay), sampler=sampler, trials=14)
    if sampler == "gp":
        with refuses("tune.own_outside", "--sampler gp", "'train.weight_decay'"):
            studies.check_settings(asked)
        asked = config(tmp_path, parameters=(rate,), sampler=sampler, trials=14)
    drive(asked)
    first, *others = [trial.values for trial in read_trials(load_study("search"))]
    assert first == {"train.learning_rate": 3e-5}  # 0 is not on a log scale
    assert len({tuple(one.values()) for one in others}) == len(others) == (9 if sampler == "grid" else 13)
    for one in others:
        assert set(one) == {parameter.name for parameter in asked.parameters}
        assert 1e-4 <= one["train.learning_rate"] <= 1e-3
        assert 1e-6 <= one.get("train.weight_decay", 0.1) <= 0.1


# Studies.


@pytest.mark.parametrize(("option", "value", "near"), [("sampler", "tpee", "tpe"), ("pruner", "medain", "median")])
def test_unknown_samplers_and_pruners_are_refused(tmp_path, option, value, near):
    with refuses(f"tune.unknown_{option}", f"'{value}'", f"Did you mean '{near}'?"):
        studies.check_settings(config(tmp_path, **{option: value}))


def test_stored_settings_have_no_device(tmp_path):
    request = RunRequest(device="cpu", workers=4)
    asked = config(tmp_path, trials=7, seeds=(1, 2), timeout=3.0, request=request)
    kept = stored_config(open_study(asked))
    assert kept == SearchConfig(
        name=asked.name, recipe=asked.recipe, parameters=asked.parameters, trials=7, seeds=(1, 2)
    )


def test_a_half_created_study_is_created_again(tmp_path):
    asked = config(tmp_path, trials=2)
    directory("search").mkdir(parents=True)
    storage = JournalStorage(JournalFileBackend(str(journal("search"))))
    optuna.create_study(study_name="search", storage=storage, direction="maximize")
    with refuses("tune.unknown_search", "'search'"):
        load_study("search")
    drive(asked)
    assert counts()["complete"] == 2


def test_a_damaged_journal_is_one_error(tmp_path, capsys):
    drive(config(tmp_path, trials=2))
    file = journal("search")
    whole = file.read_bytes()
    file.write_bytes(whole[: whole.rfind(b"{") + 9])  # a full disk: the last line is incomplete
    assert len(trials(config(tmp_path))) == 2
    drive(config(tmp_path, trials=3))
    assert counts()["complete"] == 3
    file.write_bytes(whole.replace(b"{", b"[", 1))
    with refuses("tune.damaged_journal", "'search'", file, "cse runs ls"):
        open_study(config(tmp_path))
    code, out, err = cse("tune", "ls", capsys=capsys)
    assert (code, len(out.splitlines()), "warning: search 'search' is omitted" in err) == (0, 1, True)
    file.write_bytes(b"")
    with refuses("tune.unknown_search", "'search'"):
        load_study("search")
    with pytest.warns(UserWarning, match="is empty: its trials are lost, and the search restarts"):
        open_study(config(tmp_path))
    _, driver, engine = drive(config(tmp_path, trials=3))
    assert (driver.ran, engine.jobs) == (3, [])  # their runs are recorded


def test_a_second_process_is_refused(tmp_path):
    open_study(config(tmp_path)).ask()
    assert [trial.state for trial in read_trials(load_study("search"))] == ["interrupted"]
    with driving("search"):
        assert [trial.state for trial in read_trials(load_study("search"))] == ["running"]
        with refuses("tune.already_running", "'search'", "--workers", "cse tune --best search"), driving("search"):
            pass
    with driving("search"):
        pass

"""Trials of a real, tiny recipe: records, pruning, resumption."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass

import optuna
import pytest
from optuna.trial import TrialState

from cse_cli.core.paths import runs
from cse_cli.data.identity import identify
from cse_cli.jobs.request import RunRequest
from cse_cli.recipe.load import load
from cse_cli.runs.events import read_history
from cse_cli.runs.index import all_runs, finished_results, read_run
from cse_cli.runs.record import folder_of, read_about
from cse_cli.tuning.driver import TrialRuns
from cse_cli.tuning.results import read_trials
from cse_cli.tuning.search import run_search
from cse_cli.tuning.study import RECORD, SearchConfig, load_study, search_names
from cse_cli.tuning.view import TuneScreen
from registry.errors import CseError, RunFailedError
from tests.cse_cli.tuning.fake import Notes, counts, parameter
from tests.support.command import cse
from tests.support.forked import Forked
from tests.support.shrunken import recipe

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_pairs", "undrawn")]


@pytest.fixture
def asked(tmp_path, parts):
    """Three trials of a tiny SimCSE."""
    return SearchConfig(
        name="search", recipe=str(recipe(tmp_path, parts, steps=4)), parameters=(parameter(default=3e-5),), trials=3,
        seeds=(3,), request=RunRequest(device="cpu"),
    )  # fmt: skip


@dataclass
class Outcome:
    ran: int
    ending: str
    counts: dict[str, int]
    run_id: str


def search(asked, screen=None, **changes):
    """Run a search and return its outcome."""
    config = asked.model_copy(update=changes)
    ran, ending = run_search(config, screen or TuneScreen(quiet=True))
    study = load_study(config.name)
    return Outcome(ran, ending, counts(config.name), study.user_attrs[RECORD])


def below(run_id):
    """Return the runs below one, oldest first."""
    return [run for run in reversed(all_runs()) if run.about.parent == run_id]


def raise_in_runs(monkeypatch, error, where):
    """Raise an error at a step of a run for which `where(about, step)` is true."""
    real = TrialRuns.listener

    def listener(self, run_id, show):
        inner = real(self, run_id, show)

        def listen(kind, data):
            inner(kind, data)
            if kind == "metrics" and "train/loss" in data["values"] and where(read_about(run_id), data["step"]):
                raise error

        return listen

    monkeypatch.setattr(TrialRuns, "listener", listener)


def test_a_search_is_a_run_and_each_trial_a_run_below_it(asked, home):
    notes = Notes()
    outcome = search(asked, notes, tags={"for": "the paper"})
    assert (outcome.ran, outcome.ending, outcome.counts["complete"]) == (3, "budget", 3)
    trials = below(outcome.run_id)
    assert trials[0].about.identity == identify(load(asked.recipe).recipe)
    assert len({run.about.identity.experiment for run in trials}) == 3
    assert finished_results() == []  # trials are not results of the recipe
    assert {(run.about.group, run.about.tags["for"]) for run in trials} == {("tune/search", "the paper")}
    assert [(run.name, run.state, run.about.search, run.about.trial) for run in trials] == [
        (f"trial {number} of search", "FINISHED", "search", number) for number in range(3)
    ]
    ended = read_trials(load_study("search"))
    for run, trial in zip(trials, ended, strict=True):
        assert run.result is not None
        assert trial.run_id == run.run_id
        assert (
            trial.score
            == run.result.curve[run.result.selected_step]
            == max(value for step, value in run.result.curve.items() if step)
        )
    parent, history = read_run(outcome.run_id), read_history(folder_of(outcome.run_id))
    assert (parent.state, parent.about.summary, parent.about.search) == ("FINISHED", "tuning", "search")
    assert (parent.about.seed, parent.about.tags, parent.tags["metric"]) == (None, {"for": "the paper"}, "dev.spearman")
    assert parent.tags["space.train.learning_rate"] == "1e-05 … 0.001 on a log scale"
    assert list(history.metrics["score/best"].values()) == [max(trial.score for trial in ended)]
    assert not list(runs().glob("*/*.pt"))
    assert not list(runs().glob("*/model"))


@pytest.mark.exhaustive
def test_a_pruned_and_a_failed_trial_keep_no_checkpoint(asked, monkeypatch, capsys):
    class Always(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            return trial.number == 1

    monkeypatch.setattr("cse_cli.tuning.driver.make_pruner", lambda *_: Always())
    error = RunFailedError("the loss is nan at step 3\n  view anchor")
    raise_in_runs(monkeypatch, error, lambda about, step: about.trial == 2)
    outcome = search(asked)
    assert outcome.counts == {"complete": 1, "pruned": 1, "failed": 1}
    _, pruned, failed = below(outcome.run_id)
    assert (pruned.state, pruned.result, pruned.unreadable) == ("PRUNED", None, None)
    assert list(read_history(folder_of(pruned.run_id)).metrics["dev/spearman"]) == [0, 2]
    assert (failed.state, failed.reason.startswith("the loss is nan at step 3")) == ("FAILED", True)
    assert read_trials(load_study("search"))[2].reason.startswith("the loss is nan at step 3")
    assert not list(runs().glob("*/*.pt"))
    assert finished_results() == []
    assert capsys.readouterr().err == ""


def test_a_collapse_ends_only_its_trial(asked, monkeypatch):
    monkeypatch.setattr("cse_cli.training.health.PATIENCE", 1)
    outcome = search(asked, None, overrides=("train.collapse_cosine=0.0001",), trials=1)
    assert outcome.counts["failed"] == 1
    reason = read_trials(load_study("search"))[0].reason
    assert reason.startswith("step 1: collapse: mean cosine")


@pytest.mark.exhaustive
def test_the_score_is_the_mean_of_the_seeds_runs_also_of_a_resumed_one(asked, monkeypatch):
    with monkeypatch.context() as patch:
        raise_in_runs(patch, KeyboardInterrupt(), lambda about, step: about.seed == 1 and step == 4)
        with pytest.raises(KeyboardInterrupt):
            search(asked, notes := Notes(), seeds=(0, 1), trials=1)
    assert notes.heard[-1] == "stopped. To continue: cse tune --resume search"
    (record,) = [run for run in all_runs() if run.about.summary == "tuning"]
    (summary,) = below(record.run_id)
    assert (record.state, summary.state) == ("STOPPED", "STOPPED")
    assert [run.state for run in below(summary.run_id)] == ["FINISHED", "STOPPED"]
    outcome = search(asked, None, seeds=(0, 1), trials=1)
    assert outcome.counts["complete"] == 1
    ((again,), (trial,)) = below(outcome.run_id), read_trials(load_study("search"))
    assert (again.name, again.state, again.about.summary) == ("trial 0 of search", "FINISHED", "seeds")
    assert again.run_id == summary.run_id == trial.run_id
    seeds = below(summary.run_id)
    assert [run.name for run in seeds] == ["seed 0 of trial 0 of search", "seed 1 of trial 0 of search"]
    assert [run.state for run in seeds] == ["FINISHED", "FINISHED"]
    scores = [run.result.curve[run.result.selected_step] for run in seeds]
    assert trial.score == pytest.approx(sum(scores) / 2)
    metrics = read_history(folder_of(summary.run_id)).metrics
    assert (metrics["score/seed"], metrics["score/mean"]) == (dict(enumerate(scores)), {2: trial.score})


def test_a_trial_whose_first_seeds_lose_is_pruned(asked, monkeypatch):
    scores = iter([5.0, 6.0, 7.0, 8.0, 1.0, 2.0, 3.0])
    real = TrialRuns.take

    def take(self, result):
        real(self, result.model_copy(update={"selected_step": 0, "curve": {0: next(scores)}}))

    monkeypatch.setattr(TrialRuns, "take", take)
    outcome = search(asked, None, seeds=(0, 1, 2, 3), trials=2)
    assert outcome.counts == {"complete": 1, "pruned": 1, "failed": 0}
    pruned = below(outcome.run_id)[1]
    assert (pruned.state, pruned.reason) == ("PRUNED", "mean 2.00 over 3 seeds")


@pytest.mark.process
@pytest.mark.usefixtures("forked_children")
def test_two_workers_share_the_trials(asked):
    notes = Notes()
    outcome = search(asked, notes, request=RunRequest(device="cpu", workers=2), trials=4)
    assert (outcome.ran, outcome.counts["complete"]) == (4, 4)
    assert sorted(heard[1] for heard in notes.heard if heard[0] == "ended") == [0, 1, 2, 3]
    processes = {read_history(folder_of(run.run_id)).starts[-1].data["pid"] for run in below(outcome.run_id)}
    assert len(processes) == 4  # each run has a process of its own
    assert os.getpid() not in processes


@pytest.mark.process
@pytest.mark.exhaustive
def test_ctrl_c_ends_all_workers_and_can_be_continued(asked, tmp_path, capsys):
    # Two sentences a batch: more would count as collapsed in a random model.
    settings = ("train.steps=150", "train.evaluate_every=50", "train.batch_size=2", "train.collapse_cosine=1.0")
    options = ["--range", "learning_rate=1e-5..1e-3:log", "--trials", "4", "--workers", "2"]
    options += [part for setting in settings for part in ("--set", setting)]
    command = ["tune", asked.recipe, *options, "--name", "search"]
    process = Forked(["cse_cli", *command], tmp_path, joined=True)
    while not all_training(2):
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    study = load_study("search")
    assert "To continue: cse tune --resume search" in said
    assert sum(t.state == TrialState.RUNNING for t in study.get_trials()) == 2
    assert {run.state for run in all_runs()} <= {"STOPPED", "FINISHED"}
    (listed,) = json.loads(cse("tune", "ls", "--json", capsys=capsys)[1])["searches"]
    assert [trial["state"] for trial in listed["trials"]].count("interrupted") == 2
    code, _, said = cse(*command[:-2], "--workers", "1", *command[-2:], capsys=capsys)
    assert code == 0, said
    assert counts() == {"complete": 4, "pruned": 0, "failed": 0}
    assert {run.state for run in all_runs()} == {"FINISHED"}
    assert not list(runs().glob("*/*.pt"))


def all_training(count):
    """Return whether this many trials have a run that trains."""
    with suppress(CseError, KeyError):  # the study is being made
        running = [t for t in load_study("search").get_trials() if t.state == TrialState.RUNNING]
        return sum(bool(trial.user_attrs.get("run")) for trial in running) == count
    return False


def test_a_recipe_that_cannot_run_starts_no_search(asked):
    with pytest.raises(CseError, match="no-such-model"):
        search(asked, None, overrides=("encoders.online.model=./no-such-model",))
    assert (search_names(), all_runs()) == ([], [])

"""`train.patience` ends a training that no longer improves, also after a kill and on several processes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from cse_cli.core.results import EarlyStop
from cse_cli.training.checkpoint import Selection
from cse_cli.training.trainer import Trainer
from registry.types import Encode, Evaluator
from tests.cse_cli.training.test_loop import kill_at, prepared, text, trainer, weights
from tests.support.processes import on_ranks

__all__ = ["text"]

SCORES = (9.0, 1.0, 3.0, 2.0, 3.0, 8.0)
"""Score of the untrained state, then one for every five steps. The tie at step 20 is not better than step 10."""


class Listed(Evaluator):
    """Returns given scores."""

    metric = "listed"
    metrics = ("listed",)

    def __init__(self, scores: Iterable[float]) -> None:
        self.scores = iter(scores)

    def __call__(self, encode: Encode) -> dict[str, float]:
        encode(["a b"])
        return {"listed": next(self.scores)}


def patient(folder: Path, text: str, scores: Iterable[float] = SCORES, **train: object) -> Trainer:
    job = prepared(text, Listed(scores), **{"steps": 40, "patience": 2, **train})
    return trainer(folder, job)


def halts(running: Trainer) -> list[str]:
    return [data["reason"] for kind, data in running.record.heard.events if kind == "halted"]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_training_stops_after_evaluations_without_a_better_score(text: str, tmp_path: Path) -> None:
    running = patient(tmp_path / "run", text)
    running.run()
    assert running.progress.step == 20
    assert running.selection.curve == {0: 9.0, 5: 1.0, 10: 3.0, 15: 2.0, 20: 3.0}
    assert running.early_stop == EarlyStop(step=20, best_step=10, evaluations=2, metric="dev.listed")
    assert halts(running) == ["stopped early at step 20: no better dev.listed in 2 evaluations since step 10"]
    assert running.saved == 20


@pytest.mark.slow
def test_the_steps_before_the_stop_are_those_of_the_whole_schedule(text: str, tmp_path: Path) -> None:
    stopped, whole = patient(tmp_path / "stopped", text), patient(tmp_path / "whole", text, patience=None)
    stopped.run()
    kill_at(whole, 20)
    assert weights(stopped) == weights(whole)
    (rate,) = {group["lr"] for group in stopped.stepper.optimizer.param_groups}
    assert rate == pytest.approx(1e-2 * (1 - 19 / 40))


@pytest.mark.slow
def test_a_better_score_in_time_starts_the_count_again(text: str, tmp_path: Path) -> None:
    running = patient(tmp_path / "run", text, [9.0, 3.0, 1.0, 4.0, 2.0, 1.0], steps=30)
    running.run()
    assert running.early_stop == EarlyStop(step=25, best_step=15, evaluations=2, metric="dev.listed")


@pytest.fixture
def any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept NaN, as an evaluator that divides by the length of a diverged embedding would give it."""
    monkeypatch.setattr("registry.machinery.returned.scores", lambda *_: None)


@pytest.mark.usefixtures("any_number")
def test_scores_that_are_not_a_number_are_not_better(text: str, tmp_path: Path) -> None:
    running = patient(tmp_path / "run", text, [9.0, float("nan"), float("nan")])
    running.run()
    assert running.early_stop == EarlyStop(step=10, best_step=None, evaluations=2, metric="dev.listed")


@pytest.mark.slow
def test_the_last_step_is_not_early(text: str, tmp_path: Path) -> None:
    running = patient(tmp_path / "run", text, steps=20)
    running.run()
    assert (running.progress.step, running.early_stop) == (20, None)
    assert halts(running) == []


@pytest.mark.slow
@pytest.mark.parametrize(("at", "seen"), [(13, 3), (17, 4)])
def test_a_killed_run_counts_on_and_stops_with_the_same_weights(text: str, tmp_path: Path, at: int, seen: int) -> None:
    whole, broken = patient(tmp_path / "whole", text), patient(tmp_path / "broken", text)
    whole.run()
    kill_at(broken, at)
    again = patient(tmp_path / "broken", text, SCORES[seen:])
    again.restore()
    assert again.progress.step == at // 5 * 5
    again.run()
    assert (again.early_stop, again.selection.curve) == (whole.early_stop, whole.selection.curve)
    assert weights(again) == weights(whole)


@pytest.mark.slow
def test_a_run_that_is_killed_after_the_stop_trains_no_further(text: str, tmp_path: Path) -> None:
    whole = patient(tmp_path / "run", text)
    whole.run()
    again = patient(tmp_path / "run", text, [])
    again.restore()
    again.run()
    assert (again.early_stop, weights(again)) == (whole.early_stop, weights(whole))


def on_one_rank(folder: str, text: str) -> tuple[int, int, str]:
    running = patient(Path(folder), text)
    running.run()
    end = running.early_stop
    return running.progress.step, -1 if end is None else end.evaluations, weights(running)


@pytest.mark.process
def test_all_processes_stop_after_the_same_step(text: str, tmp_path: Path) -> None:
    first, second = on_ranks(on_one_rank, str(tmp_path / "run"), text)
    assert first == second
    assert first[:2] == (20, 2)


def test_the_untrained_state_does_not_count(tmp_path: Path) -> None:
    assert Selection(tmp_path, curve={0: 9.0}).evaluations_since_best == 0
    assert Selection(tmp_path, step=5, score=1.0, curve={0: 9.0, 5: 1.0, 10: 0.5}).evaluations_since_best == 1

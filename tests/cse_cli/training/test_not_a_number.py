"""On a GPU losses are looked at when something is recorded, and always before anything is scored or written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cse_cli.training import checkpoint
from cse_cli.training.train_step import StepOutput
from cse_cli.training.trainer import LOG_EVERY, Trainer
from registry.errors import RunFailedError
from tests.cse_cli.training.test_loop import prepared, text, trainer  # noqa: F401 - a fixture among them


def as_on_a_gpu(one: Trainer, bad: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have the trainer believe that looking waits, and give it a loss that is NaN; return steps looked at."""
    looked: list[int] = []
    take: Callable[..., StepOutput] = one.stepper.take

    def taken(done: int, look: Any = None) -> StepOutput:
        one.compute = SimpleNamespace(device=SimpleNamespace(type="cuda"))  # type: ignore[assignment]
        if look is not None:
            looked.append(done + 1)
        found = take(done, look)
        return replace(found, loss=torch.tensor(torch.nan)) if done + 1 == bad else found

    monkeypatch.setattr(one.stepper, "take", taken)
    return looked


def test_nothing_is_written_after_a_loss_that_is_no_number(
    text: str,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = trainer(tmp_path / "run", prepared(text, evaluate_every=0, checkpoint_every=5))
    looked = as_on_a_gpu(one, bad=3, monkeypatch=monkeypatch)
    with pytest.raises(RunFailedError, match="the loss is nan at step 3") as caught:
        one.run()
    assert looked == [1]
    assert one.progress.step == 5
    assert "last good checkpoint: step 0" in str(caught.value)
    assert checkpoint.load(tmp_path / "run" / checkpoint.FILE)["progress"]["step"] == 0


def test_a_record_looks_at_all_losses_since_the_last(
    text: str,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = trainer(tmp_path / "run", prepared(text, evaluate_every=0))
    looked = as_on_a_gpu(one, bad=7, monkeypatch=monkeypatch)
    with pytest.raises(RunFailedError, match="at step 7"):
        one.run()
    assert looked == [1, LOG_EVERY]
    assert one.progress.step == LOG_EVERY - 1

"""Batches made in advance are those made when asked for; the thread that makes them ends with the run."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from cse_cli.data.batches import AHEAD, Batches, Feed, each_tensor
from cse_cli.data.sources import open_text
from cse_cli.recipe.load import load
from cse_cli.training.build import resolve
from cse_cli.training.train_step import StepOutput, TrainStep
from registry.tokens import Tokens
from registry.types import Batch
from tests.cse_cli.training.test_loop import prepared, text, trainer  # noqa: F401 - a fixture among them
from tests.support.shrunken import Small

CPU = torch.device("cpu")


class Asked:
    """Makes batches that say which step they are of, and in which thread they were made."""

    def __init__(self, broken: int | None = None) -> None:
        self.steps: list[int] = []
        self.threads: set[str] = set()
        self.broken = broken

    def __call__(self, step: int) -> Batch:
        self.steps.append(step)
        self.threads.add(threading.current_thread().name)
        if step == self.broken:
            raise RuntimeError(f"step {step} cannot be made")
        row = torch.full((1, 1), step)
        return {"anchor": Tokens(row, torch.ones_like(row), row, row)}


def step_of(feed: Feed, step: int) -> int:
    return int(feed.take(step).batch["anchor"].ids)


def waiting() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("batches")]


@pytest.mark.parametrize("ahead", [True, False])
def test_each_step_gets_its_own_batch(ahead: bool) -> None:
    asked = Asked()
    feed = Feed(asked, 6, CPU, ahead)
    assert [step_of(feed, step) for step in range(6)] == list(range(6))
    feed.close()
    assert asked.steps == list(range(6))
    assert asked.threads == ({"batches_0"} if ahead else {"MainThread"})
    assert waiting() == []


def test_a_jump_starts_anew() -> None:
    asked = Asked()
    feed = Feed(asked, 100, CPU, True)
    assert [step_of(feed, step) for step in (3, 4, 50, 51, 4, 5)] == [3, 4, 50, 51, 4, 5]
    feed.close()
    assert len(asked.steps) <= 6 + 3 * AHEAD


def test_it_works_ahead_but_not_further() -> None:
    asked = Asked()
    feed = Feed(asked, 100, CPU, True)
    feed.take(0)
    until = time.monotonic() + 10
    while len(asked.steps) < 1 + AHEAD and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.05)
    assert asked.steps == list(range(1 + AHEAD))
    feed.close()


def test_what_fails_in_the_thread_fails_at_its_step() -> None:
    feed = Feed(Asked(broken=2), 6, CPU, True)
    assert [step_of(feed, step) for step in range(2)] == [0, 1]
    with pytest.raises(RuntimeError, match="step 2 cannot be made") as caught:
        feed.take(2)
    assert any(entry.name == "__call__" for entry in caught.traceback), "with the place where it failed"
    assert step_of(feed, 3) == 3
    feed.close()


def test_on_a_cpu_nothing_runs_beside_the_steps() -> None:
    feed = Feed(Asked(), 6, CPU)
    feed.take(0)
    assert waiting() == []


@pytest.mark.parametrize("ahead", [True, False])
def test_interrupting_a_wait_leaves_no_thread(ahead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(step: int) -> Batch:
        raise KeyboardInterrupt

    feed = Feed(interrupted, 6, CPU, ahead)
    with pytest.raises(KeyboardInterrupt):
        feed.take(0)
    feed.close()
    assert waiting() == []


def test_every_tensor_is_reached() -> None:
    row = torch.zeros(1, 2)
    side = Tokens(row, row, row, row)
    changed = each_tensor(Tokens(row, row, row, row, labels=row, side={"translation": side}), lambda t: t + 1)
    found = (
        changed.ids,
        changed.mask,
        changed.types,
        changed.positions,
        changed.labels,
        changed.side["translation"].ids,
    )
    assert all(values is not None and bool((values == 1).all()) for values in found)
    assert changed.targets is None


@pytest.mark.slow
@pytest.mark.usefixtures("few_pairs")
@pytest.mark.parametrize("name", ["esimcse_en", "ifcl_en", "conisi_o1_en"])
def test_the_batches_of_a_recipe_are_the_same_ahead(name: str, parts: Small) -> None:
    changes, dropped = parts.options(load(name).recipe)
    made = resolve(load(name, changes, dropped).recipe, seed=5)
    opened = open_text(made.recipe.data, made.columns)
    batches = [Batches(opened, made.specs, 4, made.recipe.data.max_length, 5) for _ in range(2)]
    ahead, plain = (Feed(each.batch, 8, CPU, how) for each, how in zip(batches, (True, False), strict=True))
    for step in range(8):
        one, other = ahead.take(step), plain.take(step)
        assert one[1:] == other[1:]
        for view, tokens in one.batch.items():
            torch.testing.assert_close(tokens.ids, other.batch[view].ids, rtol=0, atol=0)
            torch.testing.assert_close(tokens.mask, other.batch[view].mask, rtol=0, atol=0)
    ahead.close()


def test_a_training_ends_the_thread_also_when_it_fails(
    text: str,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = trainer(tmp_path / "run", prepared(text))
    one.stepper.feed = Feed(one.stepper.batches.batch, one.total, CPU, True)
    take = TrainStep.take

    def dying(self: TrainStep, done: int, *rest: Any) -> StepOutput:
        taken = take(self, done, *rest)
        if done == 2:
            assert waiting() != []
            raise KeyboardInterrupt
        return taken

    monkeypatch.setattr(TrainStep, "take", dying)
    with pytest.raises(KeyboardInterrupt):
        one.run()
    assert waiting() == []

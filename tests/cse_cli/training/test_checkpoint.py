"""What is wrong with a checkpoint is found before it is used; the one before is used then, bit for bit as ever."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from cse_cli.training import checkpoint
from tests.cse_cli.training.test_loop import Recorded, kill_at, prepared, text, trainer, weights
from tests.support.errors import refuses

__all__ = ["text"]  # a fixture


@pytest.fixture
def killed(text: str, tmp_path: Path) -> Path:
    """The folder of a run that was killed after 13 steps: checkpoints at 12 and 9, best states of some of them."""
    broken = trainer(tmp_path / "run", prepared(text, checkpoint_every=3))
    kill_at(broken, 13)
    return tmp_path / "run"


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1 << at % 8
    file.write_bytes(content)


@pytest.mark.slow
def test_two_are_kept_with_the_best_states_that_they_ask_for(killed: Path) -> None:
    last, before = (checkpoint.load(file) for file in checkpoint.saved(killed))
    assert (last["progress"]["step"], before["progress"]["step"]) == (12, 9)
    best = {f"best-{state['selection']['step']}.pt" for state in (last, before)}
    assert {file.name for file in killed.glob("best-*")} == best


@pytest.mark.slow
def test_a_bit_that_flips_anywhere_is_found(tmp_path: Path) -> None:
    file = tmp_path / "whole.pt"
    checkpoint.write(file, {"weights": torch.arange(600.0), "step": 3, "of": ["a", None]})
    whole, content = file.read_bytes(), checkpoint.load(file)
    assert checkpoint.damage(file) is None
    found = 0
    for at in range(0, len(whole), 7):
        file.write_bytes(whole)
        flip(file, at)
        if checkpoint.damage(file) is None:  # padding, dates and such: torch reads what was written
            read = checkpoint.load(file)
            assert torch.equal(read.pop("weights"), content["weights"])
            assert read == {"step": 3, "of": ["a", None]}
        else:
            found += 1
    assert found > len(whole) / 7 * 0.6  # the rest is room between records


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["flipped", "truncated", "empty", "text", "foreign", "other run", "other method"])
def test_an_unusable_checkpoint_is_named_and_skipped(text: str, tmp_path: Path, killed: Path, damage: str) -> None:
    whole = trainer(tmp_path / "whole", prepared(text))
    whole.run()
    last = killed / "checkpoint.pt"
    content = checkpoint.load(last)
    match damage:
        case "flipped":
            flip(last, last.stat().st_size // 2)
        case "truncated" | "empty":
            last.write_bytes(last.read_bytes()[: 0 if damage == "empty" else -500])
        case "text":
            last.write_text("half a file")
        case "foreign":
            torch.save([torch.ones(3)], last)
        case "other run":
            checkpoint.write(last, {**content, "run": "8c1f0e2b44"})
        case _:
            checkpoint.write(last, {**content, "method": {"other.weight": torch.ones(2)}})
    log = Recorded()
    again = trainer(killed, prepared(text, checkpoint_every=3), log)
    again.restore()
    assert again.progress.step == 9
    (told,) = log.heard.warnings
    assert told.startswith(f"{last} ")
    assert {"other run": "run 8c1f0e2b", "other method": "another method: encoders"}.get(
        damage, "is damaged" if damage != "foreign" else "not a checkpoint"
    ) in told
    again.run()
    assert weights(again) == weights(whole)
    assert again.selection.curve == whole.selection.curve


@pytest.mark.slow
def test_a_checkpoint_whose_best_state_is_damaged_is_not_used(text: str, killed: Path) -> None:
    flip(killed / "best-10.pt", (killed / "best-10.pt").stat().st_size // 2)
    log = Recorded()
    again = trainer(killed, prepared(text, checkpoint_every=3), log)
    again.restore()
    assert (again.progress.step, again.selection.step) == (9, 5)
    (told,) = log.heard.warnings
    assert "checkpoint.pt needs best-10.pt, which is damaged" in told


@pytest.mark.slow
def test_a_damaged_best_state_is_not_scored(text: str, tmp_path: Path) -> None:
    running = trainer(tmp_path / "run", prepared(text))
    running.run()
    best = running.selection.file
    assert best is not None
    flip(best, best.stat().st_size // 2)
    with refuses("training.damaged_state", best, "checksum"):
        running.finish()


@pytest.mark.slow
def test_where_none_is_left_one_message_names_both(text: str, killed: Path) -> None:
    for name in (checkpoint.FILE, checkpoint.PREVIOUS):
        flip(killed / name, (killed / name).stat().st_size // 2)
    with refuses("training.no_usable_checkpoint") as caught:
        trainer(killed, prepared(text)).restore()
    _, *faults = caught.value.message.splitlines()
    assert [fault.partition(" ")[0] for fault in faults] == [
        str(killed / n) for n in ("checkpoint.pt", "checkpoint-previous.pt")
    ]


@pytest.mark.slow
def test_killed_between_the_two_renames(text: str, tmp_path: Path, killed: Path) -> None:
    whole = trainer(tmp_path / "whole", prepared(text))
    whole.run()
    shutil.move(killed / "checkpoint.pt", killed / "checkpoint.partial")
    log = Recorded()
    again = trainer(killed, prepared(text, checkpoint_every=3), log)
    again.restore()
    again.run()
    assert log.heard.warnings == []
    assert weights(again) == weights(whole)

"""Snapshots of what `cse run` prints: its help, tables of results, lines of progress and errors."""

from __future__ import annotations

import pytest

from cse_cli.jobs.screen import RunsScreen, next_steps, print_results
from registry.errors import RunFailedError
from tests.support.command import cse, refused
from tests.support.records import result


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")


def scored(seed: int, dev: float):
    values = {"dev": {"spearman": dev}, "test": {"spearman": 50.0}}
    return result(seed=seed, run_id=f"{seed}" * 32, scores=values, untrained={"dev": {"spearman": 45.0}})


def test_help(snapshot, capsys):
    assert cse("run", "--help", capsys=capsys)[1] == snapshot


def test_table_and_next_commands(snapshot, capsys, home):
    both = [scored(1, 50.0), scored(2, 52.0)]
    print_results(both)
    assert (capsys.readouterr().out, next_steps(both)) == snapshot


def interrupted_runs() -> None:
    """Begin two parallel runs, of which one fails and one is interrupted."""
    with RunsScreen(several=True, command=lambda: "cse run small --seeds 1,2") as screen:
        screen.expect(2, alone=False)
        first = screen.begin("small seed 1", "quickstart · IFCL · seed 1", "ab" * 16)
        first("started", {"steps": 20, "step": 10})
        first("evaluated", {"step": 20, "scores": {"dev.spearman": 51.5}, "best": True})
        first("warning", {"text": "a warning"})
        screen.end("small seed 2", RunFailedError("the loss is nan", "lower the rate", code="training.nan"))
        raise KeyboardInterrupt


def test_progress_of_parallel_runs(snapshot, capsys):
    with pytest.raises(KeyboardInterrupt):
        interrupted_runs()
    assert capsys.readouterr().err == snapshot


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("quickstart", "--seeds", "1,1"),
        ("quickstart", "--tag", "paper"),
        ("quickstart", "--processes", "5"),
        ("quickstart", "studies/ifcl_queue_length"),
        ("studies/ifcl_queue_length", "--processes", "2"),
    ],
)
def test_errors(arguments, snapshot, monkeypatch, home):
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    assert str(refused("run", *arguments)) == snapshot

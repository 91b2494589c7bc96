"""Help, tables and errors of `cse runs`, as users see them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cse_cli.runs import listing
from cse_cli.runs.listing import select_runs
from tests.support.command import cse
from tests.support.records import recorded, result

ID = "3f2a81bc" * 4


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every terminal have 100 columns and no colors, in UTC."""
    for name, value in {"COLUMNS": "100", "TERM": "xterm", "NO_COLOR": "1", "TZ": "UTC"}.items():
        monkeypatch.setenv(name, value)
    time.tzset()


def two_runs() -> None:
    """Record a finished run, and one that failed."""
    created = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
    about: dict[str, Any] = {"created": created, "changes": ("train.steps=250",), "tags": {"for": "paper"}}
    recorded(result(), run_id=ID, name="mini/simcse_en seed 1", **about)
    failed = recorded(end=None, run_id="81bc" * 8, recipe="mini/ifcl_en", seed=3, created=created)
    failed.end("failed", "the loss is NaN at step 30")


@pytest.mark.parametrize("command", ["", "ls", "rm", "export"])
def test_help(command: str, snapshot: object, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = cse("runs", *command.split(), "--help", capsys=capsys)
    assert code == 0
    assert out == snapshot


def test_table(snapshot: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    two_runs()
    monkeypatch.setattr(listing.sys.stdout, "isatty", lambda: True)
    listing.print_runs(select_runs(recipe="mini/simcse_en"), {})
    assert re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out) == snapshot


def test_json(snapshot: object, capsys: pytest.CaptureFixture[str]) -> None:
    two_runs()
    assert cse("runs", "ls", "--recipe", "mini/simcse_en", "--json", capsys=capsys)[1] == snapshot


def test_errors(snapshot: object, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_runs()
    commands = (
        ("show", "3f2b"),
        ("ls", "--status", "finish"),
        ("ls", "--sort", "average"),
        ("ls", "--since", "yesterday"),
        ("logs", "3f2a"),
        ("stop", "3f2a"),
        ("rm", "3f2a"),
        ("export", "paper.zip", "--study", "studies/queue"),
        ("import", "paper.zip"),
    )
    said = [f"$ cse runs {' '.join(command)}\n{cse('runs', *command, capsys=capsys)[2]}" for command in commands]
    assert "\n".join(said).replace(str(home), "<CSE_HOME>") == snapshot

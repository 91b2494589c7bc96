"""Help and errors of `cse runs sync` and `cse ui`, as users see them."""

from __future__ import annotations

import pytest

from tests.support.command import cse


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every terminal have 100 columns and no colors."""
    for name, value in {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("command", ["runs sync", "ui"])
def test_help(command: str, snapshot: object, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = cse(*command.split(), "--help", capsys=capsys)
    assert code == 0
    assert out == snapshot


def test_errors(snapshot: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for mirrors in ("none", "mlflov"):
        monkeypatch.setenv("CSE_MIRRORS", mirrors)
        said.append(f"$ CSE_MIRRORS={mirrors} cse runs sync\n{cse('runs', 'sync', capsys=capsys)[2]}")
    assert "\n".join(said) == snapshot

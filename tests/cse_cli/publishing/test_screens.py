"""Help text of `cse push`."""

from __future__ import annotations

from tests.support.command import cse


def test_help_of_push(capsys, monkeypatch, snapshot):
    monkeypatch.setenv("COLUMNS", "100")
    _, out, _ = cse("push", "--help", capsys=capsys)
    assert out == snapshot

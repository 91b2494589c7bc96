"""Texts of `cse evaluate`: its help and a table of scores."""

from __future__ import annotations

from cse_cli.evaluation.tasks import parse_tasks
from cse_cli.evaluation.view import print_scores
from tests.cse_cli.evaluation.test_view import scored
from tests.support.command import cse


def test_help_of_evaluate(capsys, monkeypatch, snapshot):
    monkeypatch.setenv("COLUMNS", "100")
    _, out, _ = cse("evaluate", "--help", capsys=capsys)
    assert out == snapshot


def test_table_of_scores(capsys, snapshot):
    asked = parse_tasks("stsb,sickr,mr", ["stsb.bootstrap=9"])
    print_scores(scored(asked, "a", "b"), asked)
    assert capsys.readouterr().out == snapshot

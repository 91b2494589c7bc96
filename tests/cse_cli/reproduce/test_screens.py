"""Screens and report of `cse reproduce`."""

from __future__ import annotations

import pytest

from cse_cli.reproduce.report import markdown
from cse_cli.reproduce.view import print_reproduction
from tests.cse_cli.reproduce.conftest import ifcl, quickstart
from tests.support.command import cse

DOCUMENTS = {
    "reproduced": lambda: quickstart([59.0, 60.0, 58.5]),
    "lower": lambda: ifcl([75.0, 75.5, 74.8, 75.2, 75.4]),
    "undecided": lambda: ifcl([77.0]),
    "changed": lambda: quickstart([53.0, 53.5, 52.0], ["train.learning_rate=1e-5"]),
}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_screen(kind, snapshot, capsys):
    print_reproduction(DOCUMENTS[kind]())
    out = capsys.readouterr().out
    assert out == snapshot
    # Options are commands, which do not wrap.
    assert max(len(line) for line in out.splitlines() if "--set" not in line) <= 80


def test_report(snapshot):
    text = markdown(DOCUMENTS["lower"]())
    assert text == snapshot
    assert text.startswith("# IFCL, Table 1, IFCL-BERT base: lower\n")
    assert text.count("\n| A") == len([one for one in ifcl([75.0]).doubts if one.point.startswith("A")])


def test_help(snapshot, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    assert cse("reproduce", "--help", capsys=capsys)[1] == snapshot

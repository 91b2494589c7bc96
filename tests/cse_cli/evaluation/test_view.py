"""Scores on the screen: a table for each evaluator, whatever the width, and JSON that any program reads."""

from __future__ import annotations

import math
import re
import sys

import pytest

from cse_cli.evaluation.evaluate import Scored
from cse_cli.evaluation.tasks import parse_tasks
from cse_cli.evaluation.view import print_scores
from tests.support.command import cse

LONG = "/home/somebody/models/sentence-transformers/all-MiniLM-L6-v2-from-last-year"


def scored(asked, *models, value=70.0):
    """Return scores that grow by 0.5 with each task, and by 1 with each model."""
    names = list(asked)
    return [
        Scored(
            model=model,
            pooling="mean",
            max_length=64,
            precision="fp32",
            scores={
                name: dict.fromkeys(asked[name].evaluator.metrics, value + place / 2 + number)
                for place, name in enumerate(names)
            },
            tasks={},
            fingerprints={},
            seconds=1.25,
        )
        for number, model in enumerate(models)
    ]


@pytest.fixture
def printed(capsys, monkeypatch):
    def of(scores, asked, width=None):
        if width is not None:
            monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
            monkeypatch.setenv("COLUMNS", str(width))
            monkeypatch.setenv("TERM", "xterm")
        print_scores(scores, asked)
        return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)

    return of


def test_a_single_task_shows_all_metrics(printed):
    asked = parse_tasks("alignment_uniformity")
    one = scored(asked, "a", value=-1.23456)
    *_, heading, columns, row, _ = printed(one, asked).split("\n")
    assert heading == "alignment_uniformity"
    assert columns.split() == ["uniformity", "alignment", "uniformity_batched"]
    assert row.split() == ["a", "-1.235", "-1.235", "-1.235"]


def test_what_was_set_stands_in_the_heading(printed):
    asked = parse_tasks("mr,cr,stsb", ["transfer.classifier=logistic", "mr.folds=3", "stsb.bootstrap=9"])
    out = printed(scored(asked, "a"), asked)
    assert "\ntransfer: accuracy (classifier = logistic; mr: folds = 3)\n" in out
    assert "\nsts: stsb (bootstrap = 9)\n" in out
    assert "spearman_low" in out


def test_the_mean_is_that_of_what_is_reported(printed):
    asked = parse_tasks("stsb,sickr")
    one = scored(asked, "a")[0]
    one.scores["stsb"]["spearman"], one.scores["sickr"]["spearman"] = 70.004, 70.016
    assert printed([one], asked).rstrip().split("\n")[-1].split() == ["a", "70.00", "70.02", "70.01"]


def test_nan_is_shown_and_harms_no_other_column(printed):
    asked = parse_tasks("stsb,sickr")
    one = scored(asked, "a")[0]
    one.scores["stsb"]["spearman"] = math.nan
    assert printed([one], asked).rstrip().split("\n")[-1].split() == ["a", "nan", "70.50", "nan"]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("models", [("a",), ("mini_en", LONG), ("one", "two", LONG, LONG + "-again")])
def test_no_line_is_too_wide_and_no_number_is_cut(printed, width, models):
    asked = parse_tasks("sts,transfer,geometry")
    out = printed(scored(asked, *models), asked, width)
    assert max(map(len, out.split("\n"))) <= width
    assert "…" not in out
    assert len(re.findall(r"\b1\.2\n", out)) == len(models)
    for number in range(len(models)):
        assert out.count(f"{70 + number:.2f}") >= 1
        assert out.count(f"{73 + number:.2f}") >= 1


def test_a_table_with_many_columns_is_split(printed):
    asked = parse_tasks("sts")
    lines = [line.split() for line in printed(scored(asked, "a", "b"), asked, 40).split("\n")]
    assert lines[-7] == ["sts12", "sts13", "sts14", "sts15", "sts16"]
    assert lines[-4] == ["stsb", "sickr", "avg"]
    assert lines[-2] == ["b", "73.50", "74.00", "72.50"]


def test_a_pipe_gets_whole_names(printed):
    asked = parse_tasks("sts,transfer")
    out = printed(scored(asked, *(f"{LONG}-{number}" for number in range(4))), asked)
    assert out.count(f"{LONG}-3 ") == 3
    assert "\x1b" not in out
    assert not any(line != line.rstrip() for line in out.split("\n"))


def test_names_are_no_markup(printed):
    asked = parse_tasks("stsb")
    assert "runs/[bold]x" in printed(scored(asked, "runs/[bold]x"), asked)


def test_help_of_evaluate(capsys, monkeypatch, snapshot):
    monkeypatch.setenv("COLUMNS", "100")
    _, out, _ = cse("evaluate", "--help", capsys=capsys)
    assert out == snapshot


def test_table_of_scores(capsys, snapshot):
    asked = parse_tasks("stsb,sickr,mr", ["stsb.bootstrap=9"])
    print_scores(scored(asked, "a", "b"), asked)
    assert capsys.readouterr().out == snapshot

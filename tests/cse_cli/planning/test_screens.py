"""Snapshots of what `cse plan` prints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cse_cli.planning.forecast import Forecast, Stage
from cse_cli.planning.view import print_forecast, summary
from tests.support.command import cse

KNOWN = Forecast(
    runs=3,
    place="2 runs in parallel: cpu, cpu",
    stages=(
        Stage("data", 7260.0, "translate text to de with t5, 600 of 1,000 rows", "probe of 3 s"),
        Stage("preparation", 12.0, "models, text, tokens", "1 probe of 9 s"),
        Stage("training", 50_000.0, "3 runs, 46,875 steps of 64 sentences", "1 probe of 9 s"),
        Stage("evaluation", 700.0, "stsb_dev, sts12, sts13, sts14, sts15, sts16, stsb, sickr", "1 probe of 9 s"),
    ),
    seconds=40_000.0,
    download="",
    missing=(),
    disk={"tokens": 120_000_000, "runs": 1_300_000_000, "checkpoints": 3_500_000_000},
    memory=2_100_000_000,
    unmeasured=("evaluator scifact",),
)
UNKNOWN = Forecast(
    runs=1,
    place="one run after the other",
    stages=(
        Stage("download", None, "438.0 MB: bert-base-uncased", "its time depends on the network"),
        Stage("preparation", None, "models, text, tokens"),
        Stage("training", None, "steps of 64 sentences"),
        Stage("evaluation", None, "dev"),
    ),
    seconds=None,
    download="438.0 MB",
    missing=("file gone.tsv: file 'gone.tsv' does not exist → make it",),
    disk={"downloads": 438_000_000},
    memory=None,
    unmeasured=(),
)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")


def test_help(snapshot, capsys):
    assert cse("plan", "--help", capsys=capsys)[1] == snapshot


@pytest.mark.parametrize("forecast", [KNOWN, UNKNOWN], ids=["known", "unknown"])
def test_stages_and_totals(forecast, snapshot, capsys):
    print_forecast(forecast, "small · Small · seeds 0–2", 2)
    assert capsys.readouterr().out == snapshot


def test_three_lines_fit_80_columns():
    lines = summary(KNOWN)
    assert len(lines) == 3
    assert max(map(len, [*lines[1:], *summary(UNKNOWN)])) <= 80
    assert max(map(len, summary(replace(KNOWN, unmeasured=())))) <= 80

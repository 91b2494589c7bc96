"""Texts of `cse report`: its help, a report and its errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cse_cli.analysis.recorded import record
from tests.support.command import cse


@pytest.fixture(autouse=True)
def folder(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "100")
    return folder


def test_help_of_report(capsys, snapshot):
    _, out, _ = cse("report", "--help", capsys=capsys)
    assert out == snapshot


def test_report_of_a_run(capsys, snapshot):
    for seed in range(2):
        run_id = record("mini/ifcl_en", seed, overrides=["queue.length=320"], evaluators=["stsb"])
    cse("report", run_id, "--output", "run.md", capsys=capsys)
    page = Path("run.md").read_text(encoding="utf-8")
    page = re.sub(r"(?s)<details>.*?</details>", "<details>", page)  # the recipe has every default
    page = re.sub(r"description \| .*|Written by cse .*", "…", page)
    assert re.sub(r"\b[0-9a-f]{8,32}\b", "HASH", page) == snapshot


def test_errors_of_report(capsys, snapshot):
    record("mini/ifcl_en", 0)
    errors = [
        cse("report", *arguments, capsys=capsys)[2]
        for arguments in (
            ("mini/ifcl_em seed 0",),
            ("mini/simcse_en",),
            ("mini/ifcl_en seed 0", "--output", "x.pdf"),
            ("mini/ifcl_en seed 0", "--output", "no/x.md"),
            ("studies/mini/ifcl_queue_length", "--baseline", "mini/ifcl_en"),
        )
    ]
    assert "\n".join(errors) == snapshot

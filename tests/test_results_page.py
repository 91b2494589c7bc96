"""The numbers of docs/results/one_budget.md follow from the records in the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.command import exit_code_of

ROOT = Path(__file__).resolve().parents[1]
PAGE, RECORDS = ROOT / "docs/results/one_budget.md", ROOT / "docs/results/records/methods.zip"


def tables(text: str) -> list[tuple[str, ...]]:
    """Return the cells of every table row that contains a number."""
    rows = (line.strip("| \n").split("|") for line in text.splitlines() if line.startswith("| "))
    return [tuple(cell.strip() for cell in row) for row in rows if re.search(r"\d", "".join(row))]


@pytest.mark.docs
def test_the_page_has_the_numbers_of_the_records(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert exit_code_of("runs", "import", str(RECORDS)) == 0
    assert exit_code_of("report", "studies/open/methods", "--output", str(tmp_path / "study.md")) == 0
    made = set(tables((tmp_path / "study.md").read_text(encoding="utf-8")))
    page = PAGE.read_text(encoding="utf-8")
    shown = tables(page[page.index("## Result") : page.index("## What follows")])
    assert len(shown) == 24
    assert [row for row in shown if row not in made] == []

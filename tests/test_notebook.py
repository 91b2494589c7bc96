"""The notebooks, which are made of pages, run from top to bottom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
pytestmark = pytest.mark.docs


def printed_by(name: str, capsys: pytest.CaptureFixture[str], before: str = "", after: str = "") -> list[str]:
    """Return the output of each code cell after the installation. `after` replaces `before` in the code."""
    installation, *cells = json.loads((DOCS / "reference" / name).read_text())["cells"]
    assert installation["source"] == ["%pip install -q cse-registry"]
    names: dict[str, object] = {}
    printed = []
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]).replace(before, after), names)
            printed.append(capsys.readouterr().out)
    return printed


def test_every_cell_of_the_page_about_python_runs_and_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    trained, cosines, scored, table = printed_by("python.ipynb", capsys)
    assert trained.splitlines()[0].startswith("SimCSE")
    assert "test.spearman" in trained
    assert [line.split()[number].strip("[]") for number, line in enumerate(cosines.splitlines())] == ["1.", "1.", "1."]
    assert "mini_en" in scored
    assert "measured" in table


def test_every_cell_of_the_first_run_runs_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    setting = '"train.precision": "fp32"'
    scores, ranking = printed_by("first_run.ipynb", capsys, setting, f'{setting}, "train.steps": 2')
    assert scores.splitlines()[1].split()[::2] == ["65.64", "52.73"]
    assert len(ranking.splitlines()) == 4
    assert ranking.splitlines()[0].endswith("It will rain tomorrow.")

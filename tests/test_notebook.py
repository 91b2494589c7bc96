"""The page about Python, and the notebook made of it, run from top to bottom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
pytestmark = pytest.mark.docs


def test_every_cell_of_the_notebook_runs_and_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    cells = json.loads((DOCS / "reference" / "python.ipynb").read_text())["cells"]
    names: dict[str, object] = {}
    printed = []
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
            printed.append(capsys.readouterr().out)
    trained, cosines, scored, table = printed
    assert trained.splitlines()[0].startswith("SimCSE")
    assert "test.spearman" in trained
    assert [line.split()[number].strip("[]") for number, line in enumerate(cosines.splitlines())] == ["1.", "1.", "1."]
    assert "mini_en" in scored
    assert "measured" in table

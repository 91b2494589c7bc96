"""The example in docs/mirrors.md, installed as a package of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cse_cli.mirrors.mirror import follow
from tests.conftest import ROOT
from tests.support.records import recorded


def test_the_documented_mirror_receives_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "mirrors.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (points,) = re.findall(r"```toml\n\[project\.entry-points\.\"(cse\.mirrors)\"\]\n(.*?)```", page, re.DOTALL)
    (tmp_path / "cse_csv.py").write_text(code)
    about = tmp_path / "cse_csv-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: cse-csv\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{points[0]}]\n" + points[1].replace('"', ""))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("CSE_MIRRORS", "csv")
    monkeypatch.setenv("CSE_CSV", str(tmp_path / "metrics.csv"))

    record = recorded(end=None, name="my run")
    follower = follow(record.about)
    record.metrics({"train/loss": 0.5, "lr": 0.1}, 10)
    record.end("finished")
    follower.close()
    assert (tmp_path / "metrics.csv").read_text().split() == ["my", "run,10,train/loss,0.5", "my", "run,10,lr,0.1"]

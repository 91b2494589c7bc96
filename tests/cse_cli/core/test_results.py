"""What a run keeps of its scores, pair by pair."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cse_cli.core import results as series
from cse_cli.core.paths import runs
from registry.statistics import aggregates
from tests.support.command import cse
from tests.support.shrunken import Small, recipe


def test_what_is_written_is_read_to_the_last_bit(tmp_path: Path):
    written = {"a": {"gold": [0.1, 1 / 3], "cosine": [0.5, -1.0]}, "without": {}}
    series.write_series(written, tmp_path / "series")
    read = series.read_series(tmp_path / "series")
    assert {name: {key: list(values) for key, values in each.items()} for name, each in read.items()} == {
        "a": written["a"]
    }


def test_nothing_to_keep_leaves_no_folder(tmp_path: Path):
    series.write_series({"a": {}}, tmp_path / "series")
    assert not (tmp_path / "series").exists()
    assert series.read_series(tmp_path / "series") == {}


@pytest.mark.slow
@pytest.mark.usefixtures("few_pairs")
def test_a_run_keeps_the_pairs_its_scores_come_from(home, tmp_path, monkeypatch, parts: Small, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, _ = cse("run", recipe(tmp_path, parts).name, "--device", "cpu", "--json", capsys=capsys)
    assert code == 0
    (result,) = json.loads(out)["results"]
    kept = series.read_series(runs() / result["run_id"] / series.SERIES_FOLDER)
    assert kept
    for name, pairs in kept.items():
        found = aggregates(["one"] * len(pairs["gold"]), list(pairs["gold"]), list(pairs["cosine"]))
        assert found["spearman_all"] == result["scores"][name]["spearman_all"]
    assert all(np.isfinite(pairs["cosine"]).all() for pairs in kept.values())

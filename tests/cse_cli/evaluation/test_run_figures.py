"""Figures as part of a run's record: where they lie, and that a failing one costs no run its scores."""

from __future__ import annotations

import sys

import pytest

from tests.support.command import cse
from tests.support.records import states
from tests.support.shrunken import recipe

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_pairs")]
DRAWN = {f"{name}.{suffix}" for name in ("training_curve", "similarity_dev") for suffix in ("svg", "png")}


@pytest.fixture
def run(tmp_path, parts, capsys):
    file = recipe(tmp_path, parts)
    return lambda: cse("run", str(file), "--device", "cpu", capsys=capsys)


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_a_run_leaves_its_figures_in_its_folder(run, home):
    code, _, err = run()
    assert code == 0, err
    assert "figures are missing" not in err
    (folder,) = home.glob("runs/*/figures")
    assert names(folder) == DRAWN


def test_a_failing_figure_is_a_warning_not_a_failed_run(run, home, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("no width")

    monkeypatch.setattr("cse_cli.analysis.figures.similarity_scatter", broken)
    code, out, err = run()
    assert code == 0, err
    assert "figures are missing: ZeroDivisionError: no width" in " ".join((out + err).split())
    (folder,) = home.glob("runs/*/figures")
    assert names(folder) == {"training_curve.svg", "training_curve.png"}
    assert states() == ["FINISHED"]


def test_missing_matplotlib_is_a_warning_not_a_failed_run(run, home, monkeypatch):
    monkeypatch.delitem(sys.modules, "cse_cli.analysis.figures", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, out, err = run()
    assert code == 0, err
    said = " ".join((out + err).split())
    assert said.count("figures are missing: ModuleNotFoundError: import of matplotlib.figure halted") == 1
    (folder,) = home.glob("runs/*/series")
    assert states() == ["FINISHED"]
    assert not (folder.parent / "figures").exists()

"""The GPU suite ends well on a CPU in its small mode, and says what went wrong where something did."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu import summary

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    "environment", "equality", "compile", "epoch", "steps_big_half", "steps_mini_half", "scoring", "drift",
    "steps_big_single", "steps_mini_single", "largest", "tests", "memory",
)  # fmt: skip

QUICK = ("environment", "epoch", "scoring", "largest")


def suite(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> subprocess.CompletedProcess[str]:
    monkeypatch.setenv("PYTHON", sys.executable)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    command = ["bash", str(ROOT / "benchmarks" / "gpu_suite.sh"), *arguments, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.process
@pytest.mark.exhaustive
def test_the_small_mode_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick parts; equality, the benchmark of training steps and its memory have tests of their own."""
    monkeypatch.setenv("ONLY", " ".join(QUICK[1:]))
    done = suite(tmp_path, monkeypatch, "--small")
    found = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert {name: part["state"] for name, part in found["parts"].items()} == dict.fromkeys(QUICK, "ok"), done.stdout
    assert done.returncode == 0
    parts = {name: part["found"] for name, part in found["parts"].items()}
    assert parts["epoch"]["epoch_seconds"] > 0
    assert [row["batch"] for row in parts["largest"]["at once"]["batches"]] == [4, 8]
    page = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert all(f"## {name}" in page for name in QUICK)


@pytest.mark.process
def test_a_part_without_time_does_not_lose_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOTAL", "4")
    done = suite(tmp_path, monkeypatch, "--small")
    found = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert done.returncode == 1
    assert found["ok"] is False
    assert {part["state"] for part in found["parts"].values()} == {"skipped: no time left"}
    assert set(found["parts"]) == set(PARTS)


def test_the_summary_tells_states_apart(tmp_path: Path) -> None:
    lines = ["good\t0\t3\t9", "late\t124\t9\t9", "broken\t1\t2\t9", "silent\t0\t1\t9", "tests\t0\t1\t9"]
    (tmp_path / "parts.tsv").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "good.json").write_text(json.dumps({"markdown": "all well", "value": 1}), encoding="utf-8")
    (tmp_path / "broken.log").write_text("line one\nValueError: the reason\n", encoding="utf-8")
    assert summary.main(tmp_path) == 1
    found = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))["parts"]
    assert {name: part["state"] for name, part in found.items()} == {
        "good": "ok",
        "late": "timed out",
        "broken": "failed",
        "silent": "no output",
        "tests": "ok",
    }
    assert found["good"]["found"]["value"] == 1
    page = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "## good\n\nall well" in page
    assert "ValueError: the reason" in page

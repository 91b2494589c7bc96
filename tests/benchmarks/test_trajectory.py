"""The record of a run, and its comparison with the record of another program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks.trajectory import compare
from tests.support.forked import Forked
from tests.support.programs import ended

pytestmark = pytest.mark.slow

RUN = (
    "run", "out", "examples/pairs_csv", "--device", "cpu", "--set", "train.steps=3", "--set", "train.evaluate_every=0",
    "--unset", "evaluators", "--unset", "evaluate.metric_for_best_model",
)  # fmt: skip


def test_a_run_is_recorded_and_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = ended(Forked(["benchmarks.trajectory", *RUN], tmp_path))
    assert code == 0, err
    lines = Path("out.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines]
    assert [len(step["tokens"]) for step in steps] == [2, 2, 2]
    assert steps[0]["rate"] > steps[1]["rate"] > steps[2]["rate"] > 0
    assert steps[0]["tokens"] != steps[1]["tokens"]

    # The other program has a smaller loss and other tokens in one step, and moves the weights 3/4 as far.
    steps[1] |= {"loss": steps[1]["loss"] / 1.25, "tokens": ["other"]}
    Path("other.jsonl").write_text("\n".join(map(json.dumps, steps)), encoding="utf-8")
    start, end = (torch.load(f"out.{when}.pt") for when in ("start", "end"))
    prefix = "encoders.online.backbone."
    moved = {
        name.replace(prefix, "bert."): torch.lerp(start[name].double(), end[name].double(), 0.75)
        for name in end
        if name.startswith(prefix)
    }
    torch.save(moved, "other.end.pt")
    found = compare("out", "other", [f"{prefix}=bert."])
    assert found == {
        "steps": 3, "steps with equal tokens": 2, "loss": pytest.approx(0.25), "norm": 0, "rate": 0,
        "weights": pytest.approx(1 / 3),
    }  # fmt: skip

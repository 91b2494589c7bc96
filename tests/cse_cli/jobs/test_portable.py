"""Runs that compute the same bits on every processor: in a process of their own, whatever this one has loaded."""

from __future__ import annotations

import json
import os

import pytest

from cse_cli.core.threads import PORTABLE, is_portable
from cse_cli.training.run import train
from tests.support.errors import refuses
from tests.support.programs import results
from tests.support.records import only_run

pytestmark = pytest.mark.process


def weights(run_id: str, home) -> bytes:
    return (home / "runs" / run_id / "model" / "model.safetensors").read_bytes()


def test_a_portable_run_is_another_experiment_with_its_settings_in_the_record(file, run, home):
    code, out, err = run(file, "--portable", "--json")
    assert code == 0, err
    assert not is_portable()
    (first,) = results(out)
    assert first.processor.endswith("AVX2, portable")
    assert first.device == "cpu (1 thread)"
    recorded = json.loads((home / "runs" / first.run_id / "environment.json").read_text(encoding="utf-8"))["settings"]
    assert recorded.items() >= PORTABLE.items()
    (again,) = results(run(file, "--set", "train.portable=true", "--again", "--json")[1])
    assert weights(first.run_id, home) == weights(again.run_id, home)
    (usual,) = results(run(file, "--json")[1])
    assert usual.experiment != first.experiment


def test_a_process_that_has_loaded_torch_refuses_it_and_half_precision_is_refused(file, run, monkeypatch):
    for name in PORTABLE:
        monkeypatch.delenv(name, raising=False)
    assert run(file, "--portable")[0] == 0
    with refuses("training.not_portable", "--cluster"):
        train(only_run().run_id, "cpu")
    assert os.environ.keys().isdisjoint(PORTABLE)
    code, _, err = run(file, "--portable", "--precision", "bf16")
    assert code == 2
    assert 'needs fp32: precision = "fp32"' in err

"""Whether "auto" is bf16 on a CPU: by instructions, a measurement that is kept, and the width of the encoders."""

from __future__ import annotations

import os
import subprocess  # nosec B404
import sys
from pathlib import Path

import pytest
import torch

from cse_cli.core import bf16
from cse_cli.core.devices import choose


@pytest.fixture
def ratio(monkeypatch: pytest.MonkeyPatch):
    """Let the measurement find a speedup, on a processor with instructions for bf16. Returns the measured ratios."""
    bf16._kept.cache_clear()
    measured: list[float] = []

    def found(value: float) -> list[float]:
        monkeypatch.setattr(bf16, "has_instructions", lambda: True)
        monkeypatch.setattr(bf16, "_measure", lambda: measured.append(value) or value)
        return measured

    yield found
    bf16._kept.cache_clear()


@pytest.mark.parametrize(
    ("speedup", "width", "precision", "described"),
    [
        (3.14159, None, "bf16", "bf16 (3.1 × fp32)"),
        (3.14159, 128, "bf16", "bf16 (3.1 × fp32)"),
        (3.14159, 64, "fp32", "fp32"),
        (1.5, 768, "bf16", "bf16 (1.5 × fp32)"),
        (1.49, 768, "fp32", "fp32"),
    ],
)
def test_the_precision_follows_speedup_and_width(speedup, width, precision, described, ratio):
    ratio(speedup)
    compute = choose("cpu", "auto", width)
    assert (compute.precision, compute.describe_precision()) == (precision, described)
    assert choose("cpu", "fp32").describe_precision() == "fp32", "a precision that was asked for has no reason"


def test_a_machine_measures_once_and_keeps_the_result(home, ratio):
    home.mkdir(parents=True)
    measured = ratio(2.5)
    assert bf16.speedup() == 2.5
    bf16._kept.cache_clear()  # as in another process
    assert bf16.speedup() == 2.5
    assert measured == [2.5]
    (file,) = (home / "cache" / "bf16").iterdir()
    for damage in ("{", file.read_text().replace("torch", "other")):
        file.write_text(damage)
        bf16._kept.cache_clear()
        assert bf16.speedup() == 2.5
    assert measured == [2.5] * 3


def test_another_setting_of_onednn_is_measured_again(home, ratio, monkeypatch):
    home.mkdir(parents=True)
    measured = ratio(2.5)
    bf16.speedup()
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "ALL")
    bf16.speedup()
    assert len(measured) == 2
    assert len(list((home / "cache" / "bf16").iterdir())) == 2


def test_a_command_that_only_reads_creates_no_state_directory(home, ratio):
    ratio(2.5)
    assert bf16.explain() == "bf16: bf16 matrix products are 2.5 × as fast as fp32 here"
    assert not home.exists()


def test_a_processor_without_instructions_is_not_measured(monkeypatch, ratio):
    measured = ratio(2.5)
    monkeypatch.setattr(bf16, "has_instructions", lambda: False)
    assert bf16.explain() == "fp32: this processor has no instructions for bf16 matrix products"
    assert choose("cpu").precision == "fp32"
    assert measured == []


def test_the_measurement_leaves_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(bf16, "_ROUNDS", 1)
    threads = torch.get_num_threads()
    assert bf16._measure() > 0
    assert torch.get_num_threads() == threads


@pytest.mark.process
@pytest.mark.skipif(not bf16.has_instructions(), reason="this processor has no instructions for bf16")
@pytest.mark.parametrize(("setting", "precision"), [("AVX512_CORE", "fp32"), ("ALL", "bf16")])
def test_onednn_s_setting_decides_on_this_processor(setting: str, precision: str, tmp_path: Path) -> None:
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": setting, "CSE_HOME": str(tmp_path)}
    code = "from cse_cli.core.devices import choose; print(choose('cpu').precision)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{precision}\n"

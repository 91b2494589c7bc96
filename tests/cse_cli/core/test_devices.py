"""Devices, precision, and the gradient of one big batch from several processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cse_cli.core.devices import Compute, choose, has_bf16_instructions, missing_memory
from registry.accelerators import kept_randomness, random_states
from tests.cse_cli.training.test_method import make, step_of
from tests.support.accelerators import pretend
from tests.support.errors import refuses

CPU_FACTS = Path("/proc/cpuinfo")


@pytest.mark.parametrize("fast", [False, True])
def test_the_cpu_computes_in_fp32_unless_bf16_is_requested(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cse_cli.core.devices.has_bf16_instructions", lambda: fast)
    compute = choose("cpu", "auto")
    assert compute == Compute(torch.device("cpu"), "fp32")
    assert compute.warning is None
    assert ("--precision bf16" in compute.hint) == fast
    assert choose("cpu", "bf16") == Compute(torch.device("cpu"), "bf16")
    assert choose("cpu", "bf16").hint == ""


@pytest.mark.skipif(not CPU_FACTS.exists(), reason="this system has no /proc/cpuinfo")
def test_instructions_for_bf16_are_those_of_the_processor() -> None:
    flags = {"avx512_bf16", "amx_tile", "bf16"} & set(CPU_FACTS.read_text().split())
    assert flags or not has_bf16_instructions()


@pytest.mark.parametrize(
    ("kind", "supported", "precision"),
    [("cuda", True, "bf16"), ("cuda", False, "fp32"), ("xpu", True, "bf16"), ("mps", True, "fp32")],
)
def test_auto_is_the_accelerator_in_its_fastest_precision(kind, supported, precision, monkeypatch) -> None:
    pretend(monkeypatch, kind, 1)
    if kind == "mps":
        monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda *_: supported)
    else:
        query = (lambda including_emulation: supported) if kind == "cuda" else (lambda: supported)
        monkeypatch.setattr(torch.get_device_module(kind), "is_bf16_supported", query)
        monkeypatch.setattr(torch.get_device_module(kind), "get_device_name", lambda _: "H100")
    assert choose() == choose(kind) == Compute(torch.device(kind, 0), precision)
    assert choose("cpu").device == torch.device("cpu")
    named = "mps:0" if kind == "mps" else f"{kind}:0 (H100)"
    assert choose(kind, "fp16").describe() == named
    if supported:
        assert choose(kind, "bf16").precision == "bf16"
    else:
        with refuses("core.unsupported_precision", "H100"):
            choose(kind, "bf16")


def test_devices_that_nobody_tried_say_so(monkeypatch) -> None:
    pretend(monkeypatch, "mps", 1)
    assert choose("mps", "fp32").warning == "mps:0: not tested by this project yet; --device cpu falls back"
    with refuses("core.no_device", "'xpu'", "0 XPU"):
        choose("xpu")


def test_randomness_is_kept_on_devices_whose_generator_takes_no_number(monkeypatch) -> None:
    pretend(monkeypatch, "mps", 1)
    held = torch.Generator().manual_seed(1)
    monkeypatch.setattr(torch.mps, "get_rng_state", held.get_state)
    monkeypatch.setattr(torch.mps, "set_rng_state", held.set_state)
    before, states = torch.get_rng_state(), random_states()
    with kept_randomness(torch.device("mps", 0)):
        torch.rand(3)
        torch.rand(3, generator=held)
        assert not torch.equal(held.get_state(), states[0])
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(held.get_state(), states[0])


@pytest.mark.parametrize(
    ("device", "precision", "code", "named"),
    [
        ("cpu", "fp16", "core.unsupported_precision", "fp16"),
        ("cpu", "fp8", "core.unknown_precision", "fp8"),
        ("warp", "auto", "core.unknown_device", "warp"),
        ("meta", "auto", "core.unknown_device", "meta"),
        ("cuda:99", "auto", "core.no_device", "cuda:99"),
    ],
)
def test_invalid_device_or_precision(device: str, precision: str, code: str, named: str) -> None:
    with refuses(code, named) as caught:
        choose(device, precision)
    assert caught.value.exit_code == 2
    assert caught.value.next_action


def test_bf16_on_the_cpu_computes_in_bf16_and_gives_fp32_losses() -> None:
    method = make(dropout=0.0)
    exact = method(step_of(method))["info_nce"]
    with choose("cpu", "bf16").autocast():
        step = step_of(method)
        rounded = method(step)["info_nce"]
    assert rounded.dtype == torch.float32
    assert 0 < (rounded - exact).abs() < 0.05


def test_more_memory_than_can_be_counted_is_missing_memory() -> None:
    with pytest.raises(RuntimeError) as told:
        torch.empty(2**62, 8)
    assert "[4611686018427387904, 8]" in str(missing_memory(told.value))
    assert missing_memory(RuntimeError("another one")) is None

"""Devices, precision, and the gradient of one big batch from several processes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cse_cli.core.devices import choose, missing_memory
from cse_cli.training.train_step import parallel
from registry.distributed import all_devices, rank
from tests.cse_cli.training.test_method import make, step_of
from tests.support.errors import refuses
from tests.support.processes import on_ranks

TEXTS = [f"{a} {b} thing {c}" for a in "abcd" for b in "xy" for c in ("now", "later")]


def test_the_cpu_computes_in_fp32_by_default() -> None:
    compute = choose("cpu", "auto")
    assert (compute.device.type, compute.precision) == ("cpu", "fp32")


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


def half() -> tuple[Tensor, dict[str, Tensor | None], Tensor]:
    """Return loss, gradients and gathered vectors of a process that has half of the batch."""
    method = make(dropout=0.0)
    step = step_of(method, TEXTS[rank() * 8 : rank() * 8 + 8])
    forward = parallel(method)
    loss = method.objective(forward(step))
    torch.autograd.backward(loss)
    return loss.detach(), {name: p.grad for name, p in method.named_parameters()}, step.sentences("anchor")


@pytest.mark.process
def test_two_processes_give_the_gradient_of_one_big_batch() -> None:
    shared = on_ranks(half)
    method = make(dropout=0.0)
    step = step_of(method, TEXTS)
    loss = method.objective(method(step))
    torch.autograd.backward(loss)
    for other, gradients, sentences in shared:
        torch.testing.assert_close(other, loss.detach())
        torch.testing.assert_close(sentences, step.sentences("anchor"))
        for name, parameter in method.named_parameters():
            torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-5, atol=1e-6)


def test_one_process_gathers_nothing() -> None:
    rows = torch.randn(3, 2)
    assert all_devices(rows) is rows


def test_more_memory_than_can_be_counted_is_missing_memory() -> None:
    with pytest.raises(RuntimeError) as told:
        torch.empty(2**62, 8)
    assert "[4611686018427387904, 8]" in str(missing_memory(told.value))
    assert missing_memory(RuntimeError("another one")) is None

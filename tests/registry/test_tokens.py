"""Copies from the host to a device."""

import pytest
import torch
from torch import Tensor

from registry.tokens import copy_to_device


@pytest.mark.parametrize(("kind", "pinned"), [("cpu", 0), ("mps", 0), ("cuda", 1), ("xpu", 1)])
def test_only_devices_with_their_own_memory_need_pinned_copies(kind, pinned, monkeypatch):
    pins, copies = [], []
    monkeypatch.setattr(Tensor, "pin_memory", lambda values: pins.append(values) or values)
    monkeypatch.setattr(Tensor, "to", lambda values, device, **how: copies.append((device, how)) or values)
    device = torch.device(kind)
    copy_to_device(torch.ones(2), device)
    assert (len(pins), copies) == (pinned, [(device, {"non_blocking": True})])

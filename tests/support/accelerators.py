"""Accelerators that this machine does not have, for code that only asks for them."""

import pytest
import torch


def pretend(monkeypatch: pytest.MonkeyPatch, kind: str, count: int) -> None:
    """Let torch say that this machine has so many accelerators of a kind: "cuda", "mps" or "xpu"."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device(kind))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)

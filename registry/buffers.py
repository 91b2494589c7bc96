"""Buffers of modules whose shape is that of the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn


def take_shape_from_checkpoint(module: nn.Module, buffer: str, *, only_if_empty: bool) -> None:
    """Resize a buffer to its shape in a checkpoint before the checkpoint is loaded.

    Args:
        module: Module with the buffer.
        buffer: Name of the buffer.
        only_if_empty: Whether to resize only an empty buffer. For others, torch rejects a different shape.
    """

    def resize(owner: Any, state: Mapping[str, Tensor], prefix: str, *_: Any) -> None:
        present, stored = getattr(owner, buffer), state.get(prefix + buffer)
        if stored is not None and not (only_if_empty and present.numel()):
            setattr(owner, buffer, present.new_zeros(stored.shape))

    module.register_load_state_dict_pre_hook(resize)  # type: ignore[no-untyped-call]

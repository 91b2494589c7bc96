"""What can be composed into a method: components that register themselves, found by name.

Names are imported on first use, so that `registry.errors` and the catalogues stay free of torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from registry.core import Entry, Registry
    from registry.errors import CseError
    from registry.registries import AUGMENTERS, ENCODERS, EVALUATORS, GENERATORS, HEADS, LOSSES, QUEUES, REGISTRIES
    from registry.types import Tune

_HOMES = {"CseError": "errors", "Tune": "types", "Entry": "core", "Registry": "core"}

__all__ = [
    "AUGMENTERS", "ENCODERS", "EVALUATORS", "GENERATORS", "HEADS", "LOSSES", "QUEUES", "REGISTRIES",
    "CseError", "Entry", "Registry", "Tune",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'registry' has no attribute '{name}'")
    value = getattr(import_module(f"registry.{_HOMES.get(name, 'registries')}"), name)
    globals()[name] = value
    return value

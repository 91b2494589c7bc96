"""Registry of the components of a method.

Names are imported at first use, so `registry.errors` and the catalog do not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from registry.errors import CseError
    from registry.machinery.core import (
        AUGMENTERS,
        ENCODERS,
        EVALUATORS,
        GENERATORS,
        HEADS,
        LOSSES,
        OPTIMIZERS,
        POOLINGS,
        QUEUES,
        REGISTRIES,
        SCHEDULES,
        Entry,
        Registry,
    )
    from registry.types import Tune

__all__ = [
    "AUGMENTERS", "ENCODERS", "EVALUATORS", "GENERATORS", "HEADS", "LOSSES", "OPTIMIZERS", "POOLINGS", "QUEUES",
    "REGISTRIES", "SCHEDULES", "CseError", "Entry", "Registry", "Tune",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'registry' has no attribute '{name}'")
    modules = {"CseError": "registry.errors", "Tune": "registry.types"}
    module = modules.get(name, "registry.machinery.core")
    value = globals()[name] = getattr(import_module(module), name)
    return value

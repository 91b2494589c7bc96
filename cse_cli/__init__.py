"""Unsupervised contrastive sentence embeddings from recipes: the command line `cse`, and its commands as functions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cse_cli._version import __version__ as __version__

if TYPE_CHECKING:
    from cse_cli.api import (
        Model,
        evaluate,
        leaderboard,
        load_model,
        load_recipe,
        load_results,
        plugin,
        push,
        run,
        to_frame,
    )

__all__ = [
    "Model", "evaluate", "leaderboard", "load_model", "load_recipe", "load_results", "plugin", "push", "run", "to_frame"
]  # fmt: skip


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    """Return a function of `cse_cli.api`, which is imported first: it needs torch, and `cse --help` does not."""
    if name in __all__:
        return getattr(import_module("cse_cli.api"), name)
    raise AttributeError(f"module 'cse_cli' has no attribute {name!r}")

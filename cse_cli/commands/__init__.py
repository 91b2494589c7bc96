"""One verb a file: argument parsing only. Each module has `add(app)`; heavy imports stay inside the functions."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import typer


def add_all(app: typer.Typer) -> None:
    """Add every command of this folder to the app, in alphabetical order."""
    for module in sorted(iter_modules(__path__), key=lambda m: m.name):
        import_module(f"{__name__}.{module.name}").add(app)

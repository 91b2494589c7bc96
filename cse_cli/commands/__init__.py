"""The command line: argument parsing only. Each module has `add(app)`; heavy imports stay inside the functions."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import typer

FEATURES = ("cse_cli.data.command",)
"""Commands that live in their feature's own folder."""


def add_all(app: typer.Typer) -> None:
    """Add every command to the app, in alphabetical order."""
    own = [f"{__name__}.{module.name}" for module in iter_modules(__path__)]
    verbs = {name.split(".")[-1 if name in own else -2]: name for name in (*own, *FEATURES)}
    for verb in sorted(verbs):
        import_module(verbs[verb]).add(app)

"""Shell completion of recipe, study and component names, read from the files themselves: no component is imported.

Imported by every command, so it imports nothing heavy itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path

KINDS = ("augmenters", "encoders", "evaluators", "generators", "heads", "losses", "queues")
_REGISTRY = Path(__file__).resolve().parents[2] / "registry"
_REGISTERED = re.compile(r'@[A-Z]+\.register\("([^"]+)"\)\s+class [^\n]+\n\s+"""([^\n]*)')


def complete_recipe(incomplete: str) -> list[tuple[str, str]]:
    """Return name and title of every recipe that starts so, then recipe files and folders on that path."""
    from cse_cli.recipe.files import all_recipes

    return [*_named(incomplete, all_recipes()), *_paths(incomplete)]


def complete_study(incomplete: str) -> list[tuple[str, str]]:
    """Return name and title of every study that starts so, then files and folders on that path."""
    return [*_studies(incomplete), *_paths(incomplete)]


def complete_recipe_or_study(incomplete: str) -> list[tuple[str, str]]:
    """Return what `cse run` and `cse check` take."""
    return [*_studies(incomplete), *complete_recipe(incomplete)]


def _studies(incomplete: str) -> list[tuple[str, str]]:
    from cse_cli.recipe.files import all_studies

    return _named(incomplete, all_studies())


def _named(incomplete: str, files: Mapping[str, Path]) -> list[tuple[str, str]]:
    from cse_cli.recipe.files import title

    return [(name, title(path)) for name, path in files.items() if name.startswith(incomplete)]


def complete_component(incomplete: str) -> list[tuple[str, str]]:
    """Return name and summary of every component that starts so; of plug-ins, the names of their entry points."""
    found: dict[str, str] = {}
    for kind in KINDS:
        for path in sorted((_REGISTRY / kind).rglob("*.py")):
            found |= dict(_REGISTERED.findall(path.read_text(encoding="utf-8")))
        found |= {point.name: "" for point in entry_points(group=f"cse.{kind}")}
    return [(name, summary.rstrip('"')) for name, summary in found.items() if name.startswith(incomplete)]


def complete_anything(incomplete: str) -> list[tuple[str, str]]:
    """Return components, recipes and data sets that start so: what `cse show` takes."""
    from registry import catalogue

    datasets = [(name, catalogue.entry(name).title) for name in catalogue.names() if name.startswith(incomplete)]
    return complete_component(incomplete) + complete_recipe(incomplete) + datasets


def complete_kind(incomplete: str) -> list[str]:
    """Return what `cse list` takes."""
    return [kind for kind in (*KINDS, "recipes", "studies") if kind.startswith(incomplete)]


def _paths(incomplete: str) -> Iterator[tuple[str, str]]:
    folder, _, start = incomplete.rpartition("/")
    root = Path(folder) if folder else Path("/" if incomplete.startswith("/") else ".")
    prefix = incomplete[: len(incomplete) - len(start)]
    try:
        entries = sorted(root.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(start) and not entry.name.startswith("."):
            if entry.is_dir() and incomplete:
                yield f"{prefix}{entry.name}/", ""
            elif entry.suffix == ".toml":
                yield f"{prefix}{entry.name}", ""

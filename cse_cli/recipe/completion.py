"""Shell completion of recipes, studies and components from their files. No component is imported.

Every command imports this module, so it imports only light modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path

from registry.machinery import plugins

KINDS = ("augmenters", "encoders", "evaluators", "generators", "heads", "losses", "optimizers", "queues", "schedules")
_REGISTRY = Path(__file__).resolve().parents[2] / "registry"
_REGISTERED = re.compile(r'@[A-Z]+\.register\("([^"]+)"\)\s+class [^\n]+\n\s+"""([^\n]*)')


def complete_recipe(incomplete: str) -> list[tuple[str, str]]:
    """Return name and title of every recipe with this prefix, and matching paths."""
    from cse_cli.recipe.files import all_recipes

    return [*_titles(incomplete, all_recipes()), *_paths(incomplete)]


def complete_study(incomplete: str) -> list[tuple[str, str]]:
    """Return name and title of every study with this prefix, and matching paths."""
    from cse_cli.recipe.files import all_studies

    return [*_titles(incomplete, all_studies()), *_paths(incomplete)]


def complete_recipe_or_study(incomplete: str) -> list[tuple[str, str]]:
    """Return name and title of every study and recipe with this prefix, and matching paths."""
    return list(dict.fromkeys([*complete_study(incomplete), *complete_recipe(incomplete)]))


def _titles(incomplete: str, files: Mapping[str, Path]) -> list[tuple[str, str]]:
    from cse_cli.recipe.files import title

    return [(name, title(path)) for name, path in files.items() if name.startswith(incomplete)]


def summaries(kind: str) -> dict[str, str]:
    """Return name → summary of the components of this package, from the first lines of their docstrings."""
    files = sorted((_REGISTRY / kind).rglob("*.py"))
    found = [one for path in files for one in _REGISTERED.findall(path.read_text(encoding="utf-8"))]
    return {name: summary.rstrip('"') for name, summary in sorted(found)}


def kinds_with_plugins() -> set[str]:
    """Return the kinds to which a plug-in can add components, whose names only its import reveals."""
    groups = entry_points().groups
    return {kind for kind in KINDS if plugins.named() or f"cse.{kind}" in groups}


def complete_component(incomplete: str) -> list[tuple[str, str]]:
    """Return name and summary of every component with this prefix. Plug-ins have no summary."""
    found: dict[str, str] = {}
    for kind in KINDS:
        found |= summaries(kind) | {point.name: "" for point in entry_points(group=f"cse.{kind}")}
    return [(name, summary) for name, summary in found.items() if name.startswith(incomplete)]


def complete_anything(incomplete: str) -> list[tuple[str, str]]:
    """Return components, recipes and data sets with this prefix."""
    from registry.resources import catalog

    datasets = [(name, catalog.entry(name).title) for name in catalog.names() if name.startswith(incomplete)]
    return complete_component(incomplete) + complete_recipe(incomplete) + datasets


def complete_kind(incomplete: str) -> list[str]:
    """Return the arguments of `cse list` with this prefix."""
    return [kind for kind in (*KINDS, "recipes", "studies") if kind.startswith(incomplete)]


def _paths(incomplete: str) -> Iterator[tuple[str, str]]:
    directory, slash, start = incomplete.rpartition("/")
    try:
        entries = sorted(Path(directory + slash or ".").iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(start) and not entry.name.startswith("."):
            if entry.is_dir() and incomplete:
                yield f"{directory}{slash}{entry.name}/", ""
            elif entry.suffix == ".toml":
                yield f"{directory}{slash}{entry.name}", ""

"""Shell completion of recipe, study and component names, without importing a component: from a small index on disk.

Imported by every command, so it imports nothing itself.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

KINDS = ("augmenters", "encoders", "evaluators", "generators", "heads", "losses", "queues")
_VERSION = 3
_REGISTERED = r'@[A-Z]+\.register\("([^"]+)"\)'


def complete_recipe(incomplete: str) -> list[tuple[str, str]]:
    """Return name and title of every recipe that starts so, then recipe files and folders on that path."""
    from cse_cli.recipe.files import all_recipes

    titles = _index().get("recipes", {})
    named = [(name, titles.get(name, "")) for name in all_recipes() if name.startswith(incomplete)]
    return named + [(path, "") for path in _paths(incomplete)]


def complete_study(incomplete: str) -> list[tuple[str, str]]:
    """Return name and title of every study that starts so, then files and folders on that path."""
    return [*_studies(incomplete), *((path, "") for path in _paths(incomplete))]


def complete_recipe_or_study(incomplete: str) -> list[tuple[str, str]]:
    """Return what `cse run` and `cse check` take."""
    return [*_studies(incomplete), *complete_recipe(incomplete)]


def _studies(incomplete: str) -> list[tuple[str, str]]:
    from cse_cli.recipe.files import all_studies

    titles = _index().get("studies", {})
    return [(name, titles.get(name, "")) for name in all_studies() if name.startswith(incomplete)]


def complete_component(incomplete: str) -> list[tuple[str, str]]:
    """Return name and summary of every component that starts so."""
    return [(name, summary) for name, summary in _components().items() if name.startswith(incomplete)]


def complete_anything(incomplete: str) -> list[tuple[str, str]]:
    """Return components and recipes that start so: what `cse show` takes."""
    return complete_component(incomplete) + complete_recipe(incomplete)


def complete_kind(incomplete: str) -> list[str]:
    """Return what `cse list` takes."""
    return [kind for kind in (*KINDS, "recipes", "studies") if kind.startswith(incomplete)]


def remember() -> None:
    """Write the index anew where it is missing or stale; a folder that cannot be written is no reason to fail."""
    if _index():
        return
    from cse_cli.recipe.files import all_recipes, all_studies, study_title, title
    from registry import REGISTRIES

    components = {kind.kind: {entry.name: entry.summary for entry in kind} for kind in REGISTRIES}
    recipes = {name: title(path) for name, path in all_recipes().items()}
    studies = {name: study_title(path) for name, path in all_studies().items()}
    index = {
        "version": _VERSION,
        "stamp": _stamp(),
        "components": components,
        "recipes": recipes,
        "studies": studies,
    }
    path = _path()
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(index), encoding="utf-8")
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink()


def _components() -> dict[str, str]:
    """Return name → summary; without an index, the names that the component files register, plug-ins left out."""
    known = _index().get("components")
    if known:
        return {name: summary for kind in KINDS for name, summary in known.get(kind, {}).items()}
    files = [path for folder in _component_folders() for path in sorted(folder.glob("*.py"))]
    return {name: "" for path in files for name in re.findall(_REGISTERED, path.read_text(encoding="utf-8"))}


def _index() -> dict[str, Any]:
    """Return the index, empty where there is none or where a recipe or component has changed since."""
    try:
        index = json.loads(_path().read_text(encoding="utf-8"))
        fresh = index["version"] == _VERSION and index["stamp"] == _stamp()
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return dict(index) if fresh else {}


def _path() -> Path:
    from cse_cli.core.paths import cache

    return cache() / "completion.json"


def _stamp() -> str:
    """Return what changes with any recipe, component or installed plug-in: how many files, and the newest change."""
    import sysconfig

    from cse_cli.recipe.files import roots

    files = [path for root in roots() for path in (root, *root.rglob("*"))]
    files += [path for folder in _component_folders() for path in (folder, *folder.glob("*.py"))]
    files.append(Path(sysconfig.get_paths()["purelib"]))
    times = [path.stat().st_mtime_ns for path in files if path.exists()]
    return f"{len(times)}:{max(times, default=0)}:{':'.join(str(root) for root in roots())}"


def _component_folders() -> list[Path]:
    """Return the folders of the registry's kinds, found without importing them."""
    registry = Path(__file__).resolve().parent.parent / "registry"
    return [registry / kind for kind in KINDS]


def _paths(incomplete: str) -> Iterator[str]:
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
                yield f"{prefix}{entry.name}/"
            elif entry.suffix == ".toml":
                yield f"{prefix}{entry.name}"

"""Plug-in files: Python files of the user, whose import registers components, without a package. And directories.

A package brings data sets and recipes with the entry points `cse.datasets` and `cse.recipes`, whose values are packages
with TOML files. They are read without importing the package.

`--plugin FILE` and `cse_cli.plugin` name them, because they contain code that is executed. The names are kept in the
environment variable `CSE_PLUGINS`, so that every process of a run loads the same files.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from registry.errors import CseError, suggestion

VARIABLE = "CSE_PLUGINS"
"""Environment variable with the paths, separated as in PATH."""


@cache
def folders(kind: str) -> tuple[Path, ...]:
    """Return the directories of the entry points "cse.<kind>" that exist, in the order of their names."""
    found: dict[Path, None] = {}
    for point in sorted(entry_points(group=f"cse.{kind}"), key=lambda point: (point.name, point.value)):
        package, *inside = point.module.split(".")
        spec = importlib.util.find_spec(package)
        places = spec.submodule_search_locations if spec is not None else None
        found |= {folder: None for place in places or () if (folder := Path(place, *inside)).is_dir()}
    return tuple(found)


_loaded: dict[str, frozenset[tuple[str, str]]] = {}
"""Path of each loaded file → kind and name of the components that it registered."""
_loading: list[str] = []


def named() -> list[str]:
    """Return the absolute paths of all plug-in files."""
    return [path for path in os.environ.get(VARIABLE, "").split(os.pathsep) if path]


def add(file: str | Path) -> None:
    """Name a plug-in file. It is loaded before the next look-up of a component."""
    path = Path(file).expanduser().absolute()
    if not path.is_file() or path.suffix != ".py":
        near = suggestion(path.name, [other.name for other in path.parent.glob("*.py")])
        raise CseError(
            f"plug-in '{file}' is not a Python file.{near}", "name an existing .py file", code="plugin.missing_file"
        )
    # The import of a module with the same name would find the plug-in.
    name, known = path.stem, sys.modules.get(path.stem)
    taken = name in sys.stdlib_module_names
    if not taken and name.isidentifier():
        spec = importlib.util.find_spec(name) if known is None else known.__spec__
        taken = spec is not None and spec.origin != str(path)
    if taken or not name.isidentifier():
        what = f"is also the name of the module '{name}'" if taken else "is not a valid name of a module"
        raise CseError(f"plug-in '{path.name}' {what}", "rename the file: my_loss.py", code="plugin.invalid_name")
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys([*named(), str(path)]))


def load_new() -> None:
    """Load the plug-in files that are not loaded yet."""
    for path in named():
        if path not in _loaded and path not in _loading:
            load(Path(path))


def load(path: Path) -> None:
    """Import a plug-in file, again if it is loaded."""
    if not path.is_file():
        raise CseError(
            f"plug-in '{path}' does not exist", f"restore it, or correct {VARIABLE}", code="plugin.missing_file"
        )
    from registry.machinery.core import registered  # which loads the files that are named

    _loading.append(str(path))
    try:
        before = registered()  # built-in names first: the plug-in is refused if it uses one
        _execute(path)
        found = frozenset(key for key, entry in registered().items() if before.get(key) is not entry)
    finally:
        _loading.remove(str(path))
    if not found:
        raise CseError(
            f"plug-in '{_label(path)}' registers no component",
            'write @LOSSES.register("my_loss") above the class: docs/extend.md',
            code="plugin.no_component",
        )
    _loaded[str(path)] = found


def files_of(components: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the plug-in files that registered one of these components, given by kind and name."""
    wanted = frozenset(components)
    return tuple(path for path, registered in _loaded.items() if registered & wanted)


def _execute(path: Path) -> None:
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # last, so that modules next to the plug-in replace no installed ones
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[path.stem]
        if isinstance(error, CseError | KeyboardInterrupt):
            raise
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        if isinstance(error, SyntaxError) and error.filename == str(path):
            lines.append(error.lineno)
        place = f"{_label(path)}:{lines[-1]}" if lines else _label(path)
        raise CseError(
            f"plug-in {place}: {type(error).__name__}: {error}",
            "correct the file",
            code="plugin.not_importable",
        ) from error


def _label(path: Path) -> str:
    """Return a path for messages: relative if it is below the current directory."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)

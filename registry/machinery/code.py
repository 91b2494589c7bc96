"""Version of the code of a component, which is part of the identity of an experiment.

A component of this package has a number, `version`, which its author raises when its numbers change. Tests compare a
value and a gradient of each component with stored ones, so that such a change is noticed. A component of a plug-in
has the SHA-256 of its file and of the files of its package, or of its directory, that it imports.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OWN = "registry"
"""Package whose components have a number."""


def code_version(component: Any) -> str:
    """Return the version of a component's code.

    A class or function without a file, for example in a notebook, has the SHA-256 of its source.
    """
    name = component.__module__
    if name.partition(".")[0] == OWN:
        return str(getattr(component, "version", 1))
    file = getattr(sys.modules.get(name), "__file__", None)
    total = hashlib.sha256()
    if file is None or not Path(file).is_file():
        try:
            total.update(inspect.getsource(component).encode("utf-8", "surrogatepass"))
        except (OSError, TypeError):  # typed into an interpreter
            total.update(component.__qualname__.encode())
        return total.hexdigest()
    above = name.count(".") + (Path(file).name == "__init__.py")
    folder = Path(file).parents[above]
    for path in sorted(_imported(Path(file), folder)):
        total.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _imported(start: Path, folder: Path) -> set[Path]:
    """Return a file and the files of a directory that it imports, directly or indirectly, also inside functions."""
    found: set[Path] = set()
    waiting = [start]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imports(path, folder)
    return found


def _imports(path: Path, folder: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError):  # compiled code
        return
    here = path.parent.relative_to(folder).parts

    def file(*name: str) -> Path | None:
        whole = folder.joinpath(*name)
        return next((one for one in (whole.with_suffix(".py"), whole / "__init__.py") if name and one.is_file()), None)

    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from filter(None, (file(*alias.name.split(".")) for alias in node.names))
        elif isinstance(node, ast.ImportFrom):
            above = here[: len(here) + 1 - node.level] if node.level else ()
            module = (*above, *(node.module or "").split(".")) if node.module else above
            yield from filter(None, (file(*module, alias.name) or file(*module) for alias in node.names))

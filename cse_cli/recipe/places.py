"""Where a data file named by a recipe lies."""

from __future__ import annotations

import os
from pathlib import Path


def place_file(file: Path, folder: Path) -> str:
    """Return the path of a recipe's data file, folder or glob.

    Args:
        file: As the recipe writes it.
        folder: Of the recipe file that writes it; a relative path counts from there, else from `$CSE_DATA`, else from
            the current folder. One that is nowhere yet stays as written: nothing is needed on disk to validate.
    """
    file = file.expanduser()
    data = os.environ.get("CSE_DATA")
    roots = [folder, *([Path(data).expanduser()] if data else []), Path.cwd()]
    found = next((root / file for root in roots if _names_something(root / file)), None)
    return str(file) if found is None else os.path.normpath(found.absolute())


def _names_something(path: Path) -> bool:
    if path.exists():
        return True
    path = path.absolute()
    return "*" in str(path) and any(Path(path.anchor).glob(str(path.relative_to(path.anchor))))

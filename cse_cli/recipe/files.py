"""Names and files: which file the name of a recipe or study refers to, its title, and paths of its data files."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

from registry.errors import UnknownNameError, suggestion
from registry.machinery import plugins
from registry.paths import expand_user, is_file

_STUDY = re.compile(r"""^\s*\[{0,2}\s*["']?study["']?\s*[].=]""", re.MULTILINE)
_PACKAGE = Path(__file__).resolve().parent.parent
MOST_BYTES = 2**18
"""Maximum size of the file of a recipe or study. The largest one of the package has 5 kB."""


def roots() -> list[Path]:
    """Return the directories whose recipes have a bare name: of the current project, of this package, of plug-ins."""
    found = dict.fromkeys([Path.cwd() / "recipes", shipped(), *plugins.folders("recipes")])
    return [root for root in found if root.is_dir()]


def shipped() -> Path:
    """Return the directory of the recipes of this installation, whose names are valid in every directory."""
    bundled = _PACKAGE / "_recipes"
    return bundled if bundled.is_dir() else _PACKAGE.parent / "recipes"


def read_limited(path: Path) -> bytes:
    """Return the content of the file of a recipe or study."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError("a pipe or a device, not a file")
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(f"larger than {MOST_BYTES:,} bytes, too large for a recipe")
    return content


def is_study(path: Path) -> bool:
    """Return whether a file contains a table [study]. It does not have to be valid."""
    try:
        # Every command looks at all files, so none is parsed.
        return _STUDY.search(read_limited(path).decode("utf-8-sig")) is not None
    except (OSError, ValueError):
        return False


def all_recipes() -> dict[str, Path]:
    """Return name → file of every recipe with a bare name."""
    return {name: path for name, path in _all_files().items() if not is_study(path)}


def all_studies() -> dict[str, Path]:
    """Return name → file of every study with a bare name."""
    return {name: path for name, path in _all_files().items() if is_study(path)}


def bare_file(name: str, study: bool) -> Path | None:
    """Return the file of the recipe (or study) with this bare name, or None."""
    if not _is_plain(name):
        return None
    path = next((path for root in roots() if is_file(path := root / f"{name}.toml")), None)
    return path if path is not None and is_study(path) is study else None


def _is_plain(name: str) -> bool:
    path = Path(name)
    return path.as_posix() == name and ".." not in path.parts and not path.is_absolute()


def _all_files() -> dict[str, Path]:
    """Return name → file. "mini/ifcl_en" is the name of a file in a subdirectory."""
    found: dict[str, Path] = {}
    for root in roots():
        for path in root.rglob("*.toml"):
            found.setdefault(path.relative_to(root).with_suffix("").as_posix(), path)
    return dict(sorted(found.items()))


def bare_name(path: Path) -> str | None:
    """Return the bare name of the file of a recipe or study, or None if it is in another directory."""
    resolved = real_path(path)
    for root in map(real_path, roots()):
        if resolved.is_relative_to(root):
            return resolved.relative_to(root).with_suffix("").as_posix()
    return None


def shipped_name(path: Path) -> str | None:
    """Return the bare name of a recipe or study of this installation, or None for any other file."""
    resolved, root = real_path(path), real_path(shipped())
    return resolved.relative_to(root).with_suffix("").as_posix() if resolved.is_relative_to(root) else None


def real_path(path: Path) -> Path:
    """Return the path without symbolic links. Circular links remain."""
    return Path(os.path.realpath(path))


def name_of(path: Path) -> str:
    """Return the bare name of a file, or its stem if it has none."""
    return bare_name(path) or path.stem


def find(name: str) -> Path:
    """Return the file that a path or a bare name refers to."""
    if name.endswith(".toml") or Path(name).is_absolute():
        return Path(name)
    for path in [*(root / f"{name}.toml" for root in roots() if _is_plain(name)), Path(f"{name}.toml")]:
        if is_file(path) and not is_study(path):
            return path
    if bare_file(name, study=True):
        message = f"'{name}' is a study, not a recipe"
        raise UnknownNameError(message, f"run it with `cse run {name}`", code="recipe.not_a_recipe")
    near = suggestion(name, [*all_recipes(), *all_studies()])
    raise UnknownNameError(
        f"unknown recipe or study '{name}'.{near}",
        "`cse list recipes` and `cse list studies` show all names. A path must end in .toml",
        code="recipe.unknown_recipe",
    )


def find_parent(name: str, child: Path) -> Path | None:
    """Return the file that `extends` refers to in the recipe `child`, or None if a bare name is unknown.

    A path ends in `.toml` and is relative to the directory of the child. A bare name is searched for first in the
    directory that contains the child, so that a recipe of the package never extends one of your project. The child
    itself is not a candidate.
    """
    if name.endswith(".toml"):
        return child.parent / name
    here = real_path(child)
    ordered = sorted(roots(), key=lambda root: not here.is_relative_to(real_path(root)))
    candidates = (root / f"{name}.toml" for root in ordered)
    return next((path for path in candidates if is_file(path) and real_path(path) != here), None)


def recipe_name(name_or_path: str) -> str:
    """Return the bare name of a recipe given by name or by path."""
    return name_of(Path(name_or_path)) if name_or_path.endswith(".toml") else name_or_path


def title(path: Path) -> str:
    """Return the title in the file of a recipe or study, or an empty string if it contains none."""
    try:
        tables = tomllib.loads(read_limited(path).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return ""
    table = tables.get("study", tables)
    found = table.get("title") if isinstance(table, dict) else None
    return found if isinstance(found, str) else ""


def place_file(file: Path, directory: Path) -> str:
    """Return the path of a recipe's data file, directory or glob pattern.

    A relative path is searched for in the directory of the recipe, in `$CSE_DATA` and in the current directory. It is
    unchanged if it does not exist, because a recipe is valid without its data.
    """
    file = expand_user(file)
    data = os.environ.get("CSE_DATA")
    bases = [directory, *([expand_user(Path(data))] if data else []), Path.cwd()]
    found = next((base / file for base in bases if _exists(base / file)), None)
    return str(file) if found is None else os.path.normpath(found.absolute())


def _exists(path: Path) -> bool:
    try:
        if path.exists():
            return True
        path = path.absolute()
        return "*" in str(path) and any(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    except (OSError, ValueError):  # not a valid name or pattern, or a directory that cannot be read
        return False

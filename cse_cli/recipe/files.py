"""Names and files: which file a recipe's or a study's name means, its title, and where its data files lie."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

from registry.errors import UnknownNameError, suggestion
from registry.paths import expand_user, is_file

_STUDY = re.compile(r"""^\s*\[{0,2}\s*["']?study["']?\s*[].=]""", re.MULTILINE)
_PACKAGE = Path(__file__).resolve().parent.parent
MOST_BYTES = 2**18
"""Of a recipe's or a study's file; the largest one shipped has 5 kB."""


def roots() -> list[Path]:
    """Return the folders whose recipes have a bare name, nearest first."""
    bundled = _PACKAGE / "_recipes"
    shipped = bundled if bundled.is_dir() else _PACKAGE.parent / "recipes"
    nearest = Path.cwd() / "recipes"
    return [root for root in dict.fromkeys([nearest, shipped]) if root.is_dir()]


def read_limited(path: Path) -> bytes:
    """Return the content of a recipe's or a study's file.

    Raises:
        OSError: It cannot be read, is no file that ends (a pipe, a device), or is too large to be a recipe.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError("a pipe or a device, not a file")
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(f"larger than {MOST_BYTES:,} bytes: no recipe")
    return content


def is_study(path: Path) -> bool:
    """Tell whether a file holds a study, not a recipe: it has a table [study]; it need not be valid."""
    try:
        # Not parsed: every command looks through all of them.
        return _STUDY.search(read_limited(path).decode("utf-8-sig")) is not None
    except (OSError, ValueError):
        return False


def all_recipes() -> dict[str, Path]:
    """Return name → file of every recipe that has a bare name; the nearest root wins."""
    return {name: path for name, path in _everything().items() if not is_study(path)}


def all_studies() -> dict[str, Path]:
    """Return name → file of every study that has a bare name; the nearest root wins."""
    return {name: path for name, path in _everything().items() if is_study(path)}


def _everything() -> dict[str, Path]:
    """Return name → file; "mini/ifcl_en" is the name of a sub-folder's file."""
    found: dict[str, Path] = {}
    for root in roots():
        for path in root.rglob("*.toml"):
            found.setdefault(path.relative_to(root).with_suffix("").as_posix(), path)
    return dict(sorted(found.items()))


def bare_name(path: Path) -> str | None:
    """Return the bare name of a recipe's or a study's file; None for one that lies elsewhere."""
    resolved = real_path(path)
    for root in roots():
        if resolved.is_relative_to(root.resolve()):
            return resolved.relative_to(root.resolve()).with_suffix("").as_posix()
    return None


def real_path(path: Path) -> Path:
    """Return the path without symbolic links; where they lead in a circle, one of them."""
    return Path(os.path.realpath(path))


def name_of(path: Path) -> str:
    """Return the name a recipe's file is known by: the bare name where it has one, else the file's stem."""
    return bare_name(path) or path.stem


def find(name: str) -> Path:
    """Return the file that a path or a bare name means.

    Raises:
        UnknownNameError: Neither a file nor a known name; the nearest names are suggested.
    """
    if name.endswith(".toml") or Path(name).is_absolute():
        return Path(name)
    path = _named(name)
    if path is None and is_file(beside := Path(f"{name}.toml")):
        path = beside
    if path is None:
        studies = all_studies()
        if name in studies:
            raise UnknownNameError(f"'{name}' is a study, not a recipe", f"`cse run {name}` runs it")
        near = suggestion(name, [*all_recipes(), *studies])
        if name.startswith("studies/"):
            raise UnknownNameError(f"unknown study '{name}'.{near}", "`cse list studies` shows all of them")
        raise UnknownNameError(
            f"unknown recipe '{name}'.{near}", "`cse list recipes` shows all of them; a path must end in .toml"
        )
    return path


def _named(name: str) -> Path | None:
    """Return the recipe of a bare name, without looking at all the others."""
    if Path(name).as_posix() != name or ".." in Path(name).parts:
        return None
    found = next((path for root in roots() if is_file(path := root / f"{name}.toml")), None)
    return None if found is None or is_study(found) else found


def find_parent(name: str, child: Path) -> Path | None:
    """Return the file that `extends` means in the recipe `child`; None where a bare name is unknown.

    A path ends in `.toml` and counts from the child's folder. A bare name is looked up first among the recipes the
    child lies with, so that a shipped recipe never picks up one of the user's; the child itself does not count.
    """
    if name.endswith(".toml"):
        return child.parent / name
    here = real_path(child)
    ordered = sorted(roots(), key=lambda root: not here.is_relative_to(root.resolve()))
    candidates = (root / f"{name}.toml" for root in ordered)
    return next((path for path in candidates if is_file(path) and real_path(path) != here), None)


def recipe_name(name_or_path: str) -> str:
    """Return the bare name of a recipe given by name or by path."""
    return name_of(Path(name_or_path)) if name_or_path.endswith(".toml") else name_or_path


def title(path: Path) -> str:
    """Return the title that a recipe's or a study's file gives, nothing inherited; empty where none can be read."""
    try:
        tables = tomllib.loads(read_limited(path).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return ""
    table = tables.get("study", tables)
    found = table.get("title") if isinstance(table, dict) else None
    return found if isinstance(found, str) else ""


def place_file(file: Path, folder: Path) -> str:
    """Return the path of a recipe's data file, folder or glob.

    Args:
        file: As the recipe writes it.
        folder: Of the recipe file that writes it; a relative path counts from there, else from `$CSE_DATA`, else from
            the current folder. One that is nowhere yet stays as written: nothing is needed on disk to validate.
    """
    file = expand_user(file)
    data = os.environ.get("CSE_DATA")
    roots = [folder, *([expand_user(Path(data))] if data else []), Path.cwd()]
    found = next((root / file for root in roots if _names_something(root / file)), None)
    return str(file) if found is None else os.path.normpath(found.absolute())


def _names_something(path: Path) -> bool:
    try:
        if path.exists():
            return True
        path = path.absolute()
        return "*" in str(path) and any(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    except (OSError, ValueError):  # no name of a file, no pattern, or folders that cannot be looked through
        return False

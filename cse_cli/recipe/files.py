"""Names and files: which file a recipe's or a study's name means, its title, and where its data files lie."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

from registry.errors import UnknownNameError, suggestion

_STUDY = re.compile(r"""^\s*\[{0,2}\s*["']?study["']?\s*[].=]""", re.MULTILINE)
_PACKAGE = Path(__file__).resolve().parent.parent


def roots() -> list[Path]:
    """Return the folders whose recipes have a bare name, nearest first."""
    bundled = _PACKAGE / "_recipes"
    shipped = bundled if bundled.is_dir() else _PACKAGE.parent / "recipes"
    nearest = Path.cwd() / "recipes"
    return [root for root in dict.fromkeys([nearest, shipped]) if root.is_dir()]


def is_study(path: Path) -> bool:
    """Tell whether a file holds a study, not a recipe: it has a table [study]; it need not be valid."""
    try:
        # Not parsed: every command looks through all of them.
        return _STUDY.search(path.read_text(encoding="utf-8-sig")) is not None
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


def name_of(path: Path) -> str:
    """Return the name a recipe's file is known by: the bare name where it has one, else the file's stem."""
    resolved = path.resolve()
    for root in roots():
        if resolved.is_relative_to(root.resolve()):
            return resolved.relative_to(root.resolve()).with_suffix("").as_posix()
    return path.stem


def find(name: str) -> Path:
    """Return the file that a path or a bare name means.

    Raises:
        UnknownNameError: Neither a file nor a known name; the nearest names are suggested.
    """
    if name.endswith(".toml") or Path(name).is_absolute():
        return Path(name)
    path = _named(name)
    if path is None and (beside := Path(f"{name}.toml")).is_file():
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
    found = next((path for root in roots() if (path := root / f"{name}.toml").is_file()), None)
    return None if found is None or is_study(found) else found


def find_parent(name: str, child: Path) -> Path | None:
    """Return the file that `extends` means in the recipe `child`; None where a bare name is unknown.

    A path ends in `.toml` and counts from the child's folder. A bare name is looked up first among the recipes the
    child lies with, so that a shipped recipe never picks up one of the user's; the child itself does not count.
    """
    if name.endswith(".toml"):
        return child.parent / name
    here = child.resolve()
    ordered = sorted(roots(), key=lambda root: not here.is_relative_to(root.resolve()))
    candidates = (root / f"{name}.toml" for root in ordered)
    return next((path for path in candidates if path.is_file() and path.resolve() != here), None)


def recipe_name(name_or_path: str) -> str:
    """Return the bare name of a recipe given by name or by path."""
    return name_of(Path(name_or_path)) if name_or_path.endswith(".toml") else name_or_path


def title(path: Path) -> str:
    """Return the title that a recipe's or a study's file gives, nothing inherited; empty where none can be read."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
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

"""Doubtful points of a method's paper and their switches, as `--set` options of a recipe.

The pages of docs/methods have one row for each point: what is doubtful, the default, and the switch. Comments of a
recipe and of the recipes that it extends cite the points that concern it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cse_cli.core.formatting import setting_text
from cse_cli.recipe.load import LoadedRecipe, changed
from registry.errors import CseError

_PACKAGE = Path(__file__).resolve().parent.parent
_ROW = re.compile(r'^\| <a id="\w+"></a>([A-Z]+\d+) \| (.*) \| (.*) \| (.*) \|$', re.MULTILINE)
_CITED = re.compile(r"\b([A-Z]+)(\d+)\b(?: to \1(\d+)\b)?")
_CODE = re.compile(r"`([^`]+)`")
_SETTING = re.compile(r'([\w.]+)(?: = ("[^"]*"|[\w.+-]+))?')
_OF = re.compile(r"((?:`[\w.]+`(?:, | and | or )?)+) of \[?`(\w+)`")
_ALIASES = {"lambda": "lamda"}
"""Names of Greek letters that Unicode spells differently."""


class Doubt(BaseModel, frozen=True):
    """A doubtful point.

    Args:
        point: Letters and number, such as "A13".
        page: Name of the method's page.
        text: What is doubtful.
        default: Choice of the recipe.
        settings: Settings of the recipe that decide it, with their values.
        options: Options of `cse reproduce` that change it in this recipe, one for each other choice.
    """

    point: str
    page: str
    text: str
    default: str
    settings: tuple[str, ...]
    options: tuple[str, ...] = ()


def doubts(loaded: LoadedRecipe) -> list[Doubt]:
    """Return the doubtful points that the comments of a recipe cite and that a setting of it changes."""
    known, settings = _pages(), _settings(loaded)
    found = []
    for point in dict.fromkeys(_cited(loaded)):
        if point in known and (paths := list(_switches(known[point][3], settings))):
            page, text, default, _ = known[point]
            now = dict.fromkeys(
                f"{path} = {setting_text(settings[path][1])}" for several, _ in paths for path in several
            )
            options = tuple(_options(loaded, paths, settings))
            found.append(
                Doubt(
                    point=point, page=page, text=_plain(text), default=_plain(default), settings=tuple(now),
                    options=options,
                )
            )  # fmt: skip
    return found


@cache
def _pages() -> Mapping[str, tuple[str, str, str, str]]:
    """Return point → page, doubt, default and switch, in Markdown."""
    bundled = _PACKAGE / "_methods"
    folder = bundled if bundled.is_dir() else _PACKAGE.parent / "docs" / "methods"
    return {
        row[1]: (page.stem, row[2], row[3], row[4])
        for page in sorted(folder.glob("*.md"))
        for row in _ROW.finditer(page.read_text(encoding="utf-8"))
    }


def _cited(loaded: LoadedRecipe) -> Iterator[str]:
    """Yield the points in the comments, those of the recipe's own file first. "A1 to A3" are three points."""
    for source in loaded.origins.sources:
        comments = " ".join(line.partition("#")[2].strip() for line in source.text.split("\n"))
        for letters, first, last in _CITED.findall(comments):
            yield from (f"{letters}{number}" for number in range(int(first), int(last or first) + 1))


Settings = dict[str, tuple[str, Any, FieldInfo | None]]
"""Dotted path → name of the component, value and declaration."""


def _settings(loaded: LoadedRecipe) -> Settings:
    """Return the settings of a recipe that a switch can name."""
    recipe, found = loaded.recipe, Settings()
    for name in ("data", "train", "evaluate"):
        section = getattr(recipe, name)
        found |= {f"{name}.{key}": ("", value, type(section).model_fields[key]) for key, value in section}
    for placed in recipe.parts():
        fields = placed.entry.parameters.model_fields
        found |= {
            f"{placed.place}.{key}": (placed.part.name, value, fields.get(key))
            for key, value in placed.part.params.items()
        }
    return found


def _switches(switch: str, settings: Settings) -> Iterator[tuple[list[str], str | None]]:
    """Yield the paths that each code of a switch names, and the value that it gives them, if any."""
    owners = {name: owner for names, owner in _OF.findall(switch) for name in _CODE.findall(names)}
    for code in _CODE.findall(switch):
        if (match := _SETTING.fullmatch(code)) is None:
            continue
        name, value = match.groups()
        owner = owners.get(name)
        paths = [
            path
            for path, (component, _, _) in settings.items()
            if (path == name or path.endswith(f".{name}")) and owner in (None, component)
        ]
        if paths:
            yield paths, value


def _options(loaded: LoadedRecipe, paths: list[tuple[list[str], str | None]], settings: Settings) -> Iterator[str]:
    """Yield the options of every other choice with which the recipe stays valid."""
    for several, value in paths:
        _, current, declared = settings[several[0]]
        values = [value.strip('"')] if value is not None else _choices(declared, current)
        for one in values:
            overrides = [f"{path}={one}" for path in several]
            if one != _toml(current) and _is_valid(loaded, overrides):
                yield " ".join(f"--set {override}" for override in overrides)


def _choices(declared: FieldInfo | None, current: Any) -> list[str]:
    """Return the other values of a switch that is true or false, or that has names for its values."""
    if isinstance(current, bool):
        return [_toml(not current)]
    return [] if declared is None else [str(one) for one in _literals(declared.annotation)]


def _literals(hint: Any) -> Iterator[Any]:
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    else:
        for inner in get_args(hint):
            yield from _literals(inner)


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_valid(loaded: LoadedRecipe, overrides: list[str]) -> bool:
    try:
        changed(loaded, overrides)
    except CseError:
        return False
    return True


def _plain(markdown: str) -> str:
    """Return text without links and code marks, with Greek letters for their names in formulas."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown).replace("`", "")
    return re.sub(r"\$([^$]*)\$", lambda formula: _formula(formula[1]), text)


def _formula(text: str) -> str:
    text = re.sub(r"\\(?:text|mathrm|operatorname)\{([^}]*)\}", r"\1", text)
    return re.sub(r"\\(\w+)", lambda name: _letter(name[1]), text)


def _letter(name: str) -> str:
    bare = name.removeprefix("var")
    case = "CAPITAL" if bare[0].isupper() else "SMALL"
    try:
        return unicodedata.lookup(f"GREEK {case} LETTER {_ALIASES.get(bare, bare).upper()}")
    except KeyError:
        return name

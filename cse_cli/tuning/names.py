"""What `--param NAME` means: a name in [tune], a dotted path, or the unique ending of one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cse_cli.recipe.schema import Recipe, TuneRange
from cse_cli.tuning.ranges import Declared
from registry.errors import CseError, UnknownNameError, suggestion

_NEVER = {
    "evaluate": "it changes how models are scored, so that trials could not be compared",
    "evaluators": "it changes how models are scored, so that trials could not be compared",
    "train.seed": "the best of several seeds is luck, not a better recipe; --seeds averages over them",
}
_SHOWN = 12


@dataclass(frozen=True)
class Named:
    """A parameter that was asked for.

    Args:
        name: One word for it, the same however it was asked for.
        paths: Dotted paths that take its value.
        table: What [tune] says of it.
    """

    name: str
    paths: tuple[str, ...]
    table: TuneRange | None = None


def find(recipe: Recipe, known: Mapping[str, Declared], name: str) -> Named:
    """Return the parameter a name means.

    Args:
        recipe: Whose parameters.
        known: Its declarations by dotted path.
        name: As typed.

    Raises:
        UnknownNameError: None or several are called so; candidates are listed.
        CseError: It is a table, or must not be tuned.
    """
    if name in recipe.tune:
        return _from_table(name, recipe.tune[name])
    if name in known:
        return _from_path(recipe, name)
    inside = [path for path in known if path.startswith(f"{name}.") and _may(path)]
    if inside:
        raise CseError(f"--param: '{name}' is a table, not a value", f"name one of its values: {listed(inside)}")
    endings = [path for path in known if _ends(path, name)]
    allowed = [path for path in endings if _may(path)]
    if len(allowed) == 1 or (endings and not allowed):
        return _from_path(recipe, (allowed or endings)[0])
    if allowed:
        raise UnknownNameError(f"--param: '{name}' may be {len(allowed)} parameters", _which(allowed, name))
    near = _near(recipe, known, name)
    raise UnknownNameError(
        f"--param: the recipe has no '{name}'.{near}",
        None if near else f"it can tune {listed(tunable(recipe, known))}",
    )


def _from_table(name: str, table: TuneRange) -> Named:
    if not table.paths:
        raise CseError(f"[tune.{name}] names no `paths`, so there is nothing to tune", "write the dotted paths there")
    return Named(name, table.paths, table)


def _from_path(recipe: Recipe, path: str) -> Named:
    """Return a path under the name [tune] has for it, so that one parameter has one name."""
    for start, why in _NEVER.items():
        if _below(path, start):
            raise CseError(f"--param: '{path}' is not tuned: {why}", "name a parameter of data, model or training")
    called = next((name for name, table in recipe.tune.items() if table.paths == (path,)), None)
    return Named(path, (path,)) if called is None else _from_table(called, recipe.tune[called])


def _may(path: str) -> bool:
    return not any(_below(path, start) for start in _NEVER)


def _below(path: str, start: str) -> bool:
    return path == start or path.startswith(f"{start}.")


def _ends(path: str, name: str) -> bool:
    """Tell whether a path ends in these whole keys; dots, underscores and hyphens are one and the same."""
    keys = path.split(".")
    return any(_plain(".".join(keys[start:])) == _plain(name) for start in range(len(keys)))


def _which(paths: list[str], name: str) -> str:
    together = ", ".join(f'"{path}"' for path in paths)
    return (
        f"name one: {listed(paths)};\n    or let one value go to all of them, with a table in the recipe:\n"
        f"    [tune.{name.replace('.', '_')}]\n    paths = [{together}]"
    )


def _near(recipe: Recipe, known: Mapping[str, Declared], name: str) -> str:
    """Return what was meant, told by what people type: names in [tune], paths, and endings of these."""
    means: dict[str, str] = {}
    for path in filter(_may, known):
        called = next((word for word, table in recipe.tune.items() if table.paths == (path,)), path)
        means |= {_plain(ending): called for ending in _endings(path)} | {path: called}
    means |= {word: word for word in recipe.tune}
    words = re.findall(r"'([^']+)'", suggestion(name, means))
    meant = list(dict.fromkeys(means[word] for word in words))
    return f" Did you mean {' or '.join(repr(one) for one in meant)}?" if meant else ""


def _endings(path: str) -> list[str]:
    keys = path.split(".")
    return [".".join(keys[start:]) for start in range(len(keys))]


def _plain(ending: str) -> str:
    return ending.replace(".", "_").replace("-", "_")


def tunable(recipe: Recipe, known: Mapping[str, Declared]) -> list[str]:
    """Return what can be tuned without `--range`: names in [tune], then paths with a declared range, numbers first."""
    inside = {table.paths[0] for table in recipe.tune.values() if len(table.paths) == 1}
    ranges = {path: one.range for path, one in known.items() if one.range and _may(path) and path not in inside}
    return [*recipe.tune, *sorted(ranges, key=lambda path: ranges[path].choices is not None)]


def listed(names: Iterable[str]) -> str:
    """Return names with commas between them, the first so many."""
    every = list(names)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return f"{', '.join(every[:_SHOWN])}{more}"

"""Which recipe a command means that names none."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cse_cli.home import home, runs
from cse_cli.recipe.find import find
from registry.errors import CseError, UnknownNameError, suggestion

SHIPPED = "quickstart"
"""Runs anywhere: no network, no files beside the package."""
_KEY = "default_recipe"


@dataclass(frozen=True)
class Chosen:
    """A recipe and why it is this one.

    Args:
        recipe: Name or path.
        why: For the person who did not name it; empty for one who did.
    """

    recipe: str
    why: str = ""


def choose(asked: str | None = None) -> Chosen:
    """Return the recipe asked for, else the configured one, else the one run last, else the shipped one.

    Raises:
        CseError: The configuration cannot be read.
    """
    if asked is not None:
        return Chosen(asked)
    file = config_file()
    if (configured := _configured(file)) is not None:
        return Chosen(configured, f"it is the {_KEY} in {file}")
    if (last := _last_run()) is not None:
        return Chosen(last, f"it is the one run last from {home()}")
    return Chosen(SHIPPED, f"none is named, configured or has been run from {home()}")


def config_file() -> Path:
    """Return the file of a person's own settings: `CSE_CONFIG`, else `config.toml` in the state directory."""
    if configured := os.environ.get("CSE_CONFIG"):
        return Path(configured).expanduser().absolute()
    return home() / "config.toml"


def _configured(file: Path) -> str | None:
    settings = _settings(file)
    for key in settings:
        if key != _KEY:
            near = suggestion(key, [_KEY]) or f" Known: {_KEY}."
            raise CseError(f"{file}: unknown setting '{key}'.{near}", "correct the file, or delete it")
    recipe = settings.get(_KEY)
    if recipe is None:
        return None
    if not isinstance(recipe, str) or not recipe:
        raise CseError(f"{file}: {_KEY} should be the name or the path of a recipe, in quotes", f'{_KEY} = "{SHIPPED}"')
    if recipe.endswith(".toml"):
        return str((file.parent / Path(recipe).expanduser()).absolute())
    try:
        find(recipe)
    except UnknownNameError as error:
        raise CseError(f"{file}: {_KEY}: {error.message}", "`cse list recipes` shows all of them") from error
    return recipe


def _settings(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if os.environ.get("CSE_CONFIG"):
            raise CseError(f"CSE_CONFIG names {file}, which is not there", "write it, or unset CSE_CONFIG") from None
        return {}
    except (OSError, ValueError) as error:
        raise CseError(f"{file}: cannot be read: {error}", f'one line such as {_KEY} = "{SHIPPED}"') from error


def _last_run() -> str | None:
    """Return the recipe of the youngest run of this state directory whose file is still there."""
    return next(filter(None, map(_recipe_of, _newest_first())), None)


def _newest_first() -> Iterator[Path]:
    found: list[tuple[float, Path]] = []
    for file in runs().glob("*/run.json"):
        with suppress(OSError):  # another process deletes it
            found.append((file.stat().st_mtime, file))
    yield from (file for _, file in sorted(found, reverse=True))


def _recipe_of(file: Path) -> str | None:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        name, source = str(content["recipe"]), Path(content["source"])
    except (OSError, ValueError, KeyError, TypeError):  # half written, or by another version
        return None
    return reference(name, source) if source.is_file() else None


def reference(name: str, file: Path) -> str:
    """Return how to ask for a recipe's file from anywhere: its bare name where that means it, else the whole path."""
    with suppress(UnknownNameError):
        if find(name).resolve() == file.resolve():
            return name
    return str(file.absolute())

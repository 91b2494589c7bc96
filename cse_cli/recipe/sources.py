"""Recipe files as they are read: tables, and where each value stands."""

from __future__ import annotations

import copy
import os
import re
import tomllib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from cse_cli.recipe.positions import Keys, Place, Span, positions
from cse_cli.recipe.problems import Problem, RecipeError
from registry.errors import suggestion


@dataclass(frozen=True)
class Source:
    """One file of a recipe.

    Args:
        label: The path as messages show it.
        tables: What `tomllib` reads in it.
    """

    path: Path
    label: str
    text: str
    tables: dict[str, Any]

    @cached_property
    def spans(self) -> dict[Keys, Span]:
        """Path → where it stands."""
        return positions(self.text)

    def where(self, keys: Keys, *, at_key: bool = False) -> str | None:
        """Return `file:line:column` of a path, or None where this file does not write it."""
        span = self.spans.get(keys)
        if span is None:
            return None
        place = span.key if at_key else span.value
        return f"{self.label}:{place.line}:{place.column}"


def shown(path: Path) -> str:
    """Return a path for messages: relative where it lies below the current folder."""
    absolute = Path(os.path.normpath(path.absolute()))
    here = Path.cwd()
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute)


def read_source(path: Path) -> Source:
    """Read and parse one file.

    Raises:
        RecipeError: It is missing, unreadable, not UTF-8 or not TOML.
    """
    label = shown(path)
    try:
        # Windows editors put a byte-order mark in front, which TOML itself does not know.
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        hint = suggestion(path.name, [other.name for other in path.parent.glob("*.toml")])
        words = f"no such file.{hint} `cse list recipes` shows the recipes known by name"
        raise _refused(label, Place(1, 1), words) from None
    except IsADirectoryError:
        raise _refused(label, Place(1, 1), "this is a folder; name one recipe, or use `cse check FOLDER`") from None
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        message = f"not UTF-8 text (byte {error.object[error.start]:#04x}); save the file as UTF-8"
        raise _refused(label, Place(line, 1), message) from None
    except OSError as error:
        raise _refused(label, Place(1, 1), f"cannot be read: {error.strerror or error}") from None
    return Source(path, label, text, _parsed(label, text))


def _parsed(label: str, text: str) -> dict[str, Any]:
    try:
        return copy.deepcopy(_loads(text))
    except RecursionError:
        raise _refused(label, Place(1, 1), "not TOML: nested too deeply") from None
    except ValueError as error:
        raise _refused(label, *_syntax(str(error), text)) from None


@lru_cache(maxsize=256)
def _loads(text: str) -> dict[str, Any]:
    """Parse once what many recipes and all cells of a study extend."""
    return tomllib.loads(text)


def _syntax(message: str, text: str) -> tuple[Place, str]:
    """Split the parser's message into place and words: it tells the place in no other way."""
    if match := re.search(r"^(.*) \(at line (\d+), column (\d+)\)$", message, re.DOTALL):
        place, words = Place(int(match[2]), int(match[3])), match[1]
    else:
        lines = text.split("\n")
        place, words = Place(len(lines), len(lines[-1]) + 1), message.removesuffix(" (at end of document)")
    return place, f"not TOML: {words[:1].lower()}{words[1:]}"


def _refused(label: str, place: Place, message: str) -> RecipeError:
    return RecipeError([Problem(f"{label}:{place.line}:{place.column}", "", message)])

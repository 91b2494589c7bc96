"""Errors of the Python interface: options of the command line in them become arguments of functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from registry.errors import CseError

P = ParamSpec("P")
R = TypeVar("R")

_KEY = r"[\w.\"'-]*[\w\"']"
_NAMES = "seeds?|device|precision|workers|pooling|tasks|template|again"
_FORMS = (
    (re.compile(rf"--set ({_KEY})=([^\s,;`]*[^\s,;`.])"), r"settings={'\1': \2}"),
    (re.compile(rf"--set ({_KEY})"), r"settings['\1']"),
    (re.compile(rf"--unset ({_KEY})"), r"remove=['\1']"),
    (re.compile(r"--set\b"), "settings"),
    (re.compile(r"--unset\b"), "remove"),
    (re.compile(rf"--({_NAMES}) (\w(?:[\w:.,]*\w)?)"), r"\1='\2'"),
    (re.compile(rf"--({_NAMES})\b"), r"\1"),
    (re.compile(r"--max-length\b"), "max_length"),
)
"""Option → argument. Commands such as `cse data download --for X` stay unchanged."""


def with_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function, whose errors name its arguments instead of options."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except CseError as error:
            error.message = _of_python(error.message)
            error.next_action = None if error.next_action is None else _of_python(error.next_action)
            raise

    return called


def _of_python(text: str) -> str:
    return "".join(part if "cse " in part else _translated(part) for part in re.split(r"(?<=[.;] )|(?<=\n)", text))


def _translated(text: str) -> str:
    for form, replacement in _FORMS:
        text = form.sub(replacement, text)
    return text

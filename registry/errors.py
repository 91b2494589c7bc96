"""Errors that a user can correct."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import metadata


class CseError(Exception):
    """An error that the user can correct. `cse` prints it as one message, without a traceback.

    Args:
        message: What is wrong, with the value and its place.
        next_action: What to do next, in the imperative.
        code: Stable identifier for programs and tests, such as "recipe.unknown_key". The text may change, the code not.
    """

    exit_code = 2

    def __init__(self, message: str, next_action: str | None = None, *, code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_action = next_action
        self.code = code

    def __str__(self) -> str:
        return self.message if self.next_action is None else f"{self.message}\n  → {self.next_action}"


class RegistrationError(CseError):
    """A component with an invalid declaration. Raised at import."""


class UnknownNameError(CseError):
    """An unknown name of a component, view, encoder, data set or recipe."""


class RunFailedError(CseError):
    """A run that failed after its start: NaN loss, crashed rank, out of memory."""

    exit_code = 1


class PartError(RunFailedError):
    """An exception in a component that is not part of the package, or a result that violates its contract."""

    exit_code = 2


class StopRequested(RunFailedError):  # noqa: N818 - a request, not an error
    """A stop request by `cse runs stop`. The run can be resumed."""


class MissingError(CseError):
    """Data or a model that is not on this machine and cannot be downloaded."""

    exit_code = 3


class TrackingError(CseError):
    """The tracking store cannot be opened or written."""

    exit_code = 4


class DiskError(CseError):
    """A file that cannot be written: full disk or no permission."""

    exit_code = 4


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra of `pyproject.toml`, with or without a checkout."""
    try:
        declared = metadata.requires("cse-registry") or []
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        return f'pip install -e ".[{extra}]"'
    of_extra = re.compile(rf"(.*?) *; *extra == ['\"]{extra}['\"]")
    return " ".join(["pip install", *(f'"{found[1]}"' for one in declared if (found := of_extra.fullmatch(one)))])


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` with the closest known names, or an empty string."""
    near = get_close_matches(name, list(known), n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""


@contextmanager
def errors_as_one(what: str, action: str, kind: type[CseError] = MissingError, *, code: str) -> Iterator[None]:
    """Raise one kind of error for everything that transformers, tokenizers or torch raise for damaged files.

    Args:
        what: Beginning of the message.
        action: Next action.
        kind: Class of the error.
        code: Code of the error.
    """
    try:
        yield
    except CseError:
        raise
    except Exception as error:  # 60 damaged directories raised 14 types, such as KeyError and RecursionError
        raise kind(f"{what}: {_reason(error)}", action, code=code) from error


def _reason(error: Exception) -> str:
    """Return the message of an error, with its type if the message is not clear without it."""
    if isinstance(error, pickle.UnpicklingError):
        return "the weight file is a pickle that contains more than tensors, and is not executed"
    lines = [line.strip() for line in str(error).split("\n") if line.strip()]
    said = " ".join(lines[: 2 if lines[0].endswith(":") else 1]) if lines else ""
    plain = isinstance(error, OSError | ValueError | RuntimeError | ImportError) and said != ""
    return said if plain else f"{type(error).__name__} {said}".rstrip()

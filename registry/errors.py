"""Errors a person can act on: what is wrong, and what to do next."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class CseError(Exception):
    """Something the user can put right; printed as one message, never as a traceback.

    Args:
        message: What is wrong, with the value and where it stands.
        next_action: What to do about it, one sentence.
    """

    exit_code = 2

    def __init__(self, message: str, next_action: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.next_action = next_action

    def __str__(self) -> str:
        return self.message if self.next_action is None else f"{self.message}\n  → {self.next_action}"


class RegistrationError(CseError):
    """A component's declaration cannot be used: a programmer's mistake, found at import."""


class UnknownNameError(CseError):
    """No such component, view, encoder, dataset or recipe."""


class RunFailedError(CseError):
    """The run started and could not go on: NaN loss, a dead rank, out of memory."""

    exit_code = 1


class StopRequested(RunFailedError):  # noqa: N818 - asked for, not an error
    """Somebody asked the run to stop: `cse runs stop`. It can be resumed."""


class MissingError(CseError):
    """Data or a model that is not on this machine and cannot be fetched from here."""

    exit_code = 3


class TrackingError(CseError):
    """The tracking store cannot be opened or written."""

    exit_code = 4


class DiskError(CseError):
    """A file could not be written: no room, no permission."""

    exit_code = 4


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the nearest known names, or an empty string."""
    near = get_close_matches(name, list(known), n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""


@contextmanager
def errors_as_one(what: str, action: str, kind: type[CseError] = MissingError) -> Iterator[None]:
    """Make one message of whatever transformers, tokenizers or torch raise for files that are not as they should be.

    Args:
        what: That is wrong: the beginning of the message.
        action: What to do about it.
        kind: Of the error.
    """
    try:
        yield
    except CseError:
        raise
    except Exception as error:  # of sixty strange directories, 14 kinds came up, KeyError and RecursionError among them
        raise kind(f"{what}: {_reason(error)}", action) from error


def _reason(error: Exception) -> str:
    """Return what the error says, with its type where that alone tells what it is about."""
    if isinstance(error, pickle.UnpicklingError):
        return "the file of weights is a pickle that holds more than tensors, and is not run"
    lines = [line.strip() for line in str(error).split("\n") if line.strip()]
    said = " ".join(lines[: 2 if lines[0].endswith(":") else 1]) if lines else ""
    plain = isinstance(error, OSError | ValueError | RuntimeError | ImportError) and said != ""
    return said if plain else f"{type(error).__name__} {said}".rstrip()

"""What a user is told when the hub refuses, and what can be done about it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from registry.errors import CseError, MissingError, UnknownNameError
from registry.repository import Patterns, Repository, matches
from registry.transfer import TransferError

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@contextmanager
def not_a_hub(repository: Repository) -> Iterator[None]:
    """Turn a failure to read an answer into one message: a network's login page answers everything with 200."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MissingError(
            f"{repository.noun} {repository.id!r}: what answers at {repository.page} is no model hub",
            "check HF_ENDPOINT, the proxy, and whether this network wants a login first",
        ) from error


def check_name(repository: Repository, hint: str) -> None:
    """Refuse what can be no name of a repository.

    Raises:
        UnknownNameError: It cannot.
    """
    name = repository.id
    if not _REPOSITORY.fullmatch(name) or "--" in name or ".." in name or name.endswith((".", "-", ".git")):
        raise UnknownNameError(f"{name!r} is no {repository.noun} name.{hint}", _ways_out(repository))


def explained(repository: Repository, error: TransferError, hint: str) -> CseError:
    """Return what a refusal means to a user, and what can be done."""
    what = f"{repository.noun} {repository.id!r}"
    if error.code == "GatedRepo":
        return MissingError(
            f"{what} is gated: its owners want its terms accepted first",
            f"accept them on {repository.page}, then `hf auth login` on this machine",
        )
    if error.code == "RevisionNotFound":
        return UnknownNameError(
            f"{what} has no revision {repository.revision!r}",
            f"leave the revision out, or take one of {repository.page}/commits/main",
        )
    if error.code == "RepoNotFound" or error.status == 401:
        return UnknownNameError(
            f"the hub has no {what}, or it is private.{hint}",
            f"`hf auth login` if it is yours, else {_ways_out(repository)}",
        )
    file = error.label.removeprefix(f"{repository.id}/")
    part = f", file {file}," if file != error.label else ""
    if error.status == 403:
        return MissingError(
            f"the hub refuses {what}{part} with {error.reason}",
            f"`hf auth login` with a token that may read it, and accept its terms on {repository.page}",
        )
    if error.status == 404:
        return MissingError(
            f"the hub has not all of {what}{part} and says {error.reason}", f"see {repository.page}/tree/main"
        )
    message = f"{what}{part} is not on this machine and could not be fetched: {error.reason}.{hint}"
    if "wrong bytes" in error.reason:
        return MissingError(message, error.next_action)
    if others := _other_commits(repository):
        return MissingError(
            f"{message} The cache has it at another commit than {repository.revision}.",
            f"name that one, `{repository.id}@{others[0]}`, or {_ways_out(repository)}",
        )
    return MissingError(message, _ways_out(repository))


def _other_commits(repository: Repository) -> list[str]:
    folders = (repository.folder / "snapshots").glob("*/")
    return sorted(folder.name for folder in folders if folder.name != repository.revision and any(folder.iterdir()))


def no_such_files(repository: Repository, names: Sequence[str], patterns: Patterns) -> MissingError:
    """Return what to say where a repository lacks what is needed."""
    if callable(patterns):
        wanted = "any of the files that are needed"
    else:
        lacking = [pattern for pattern in patterns if not any(matches(name, pattern) for name in names)]
        wanted = "a file " + ", ".join(lacking)
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return MissingError(
        f"{repository.noun} {repository.id!r} at {repository.revision[:12]} has not {wanted}; it has {shown}",
        f"look at {repository.page}/tree/{repository.revision}",
    )


def _ways_out(repository: Repository) -> str:
    asked = f" --revision {repository.revision}" if _COMMIT.fullmatch(repository.revision) else ""
    if repository.kind == "dataset":
        asked += " --repo-type dataset"
        own = "put the files below a folder that $CSE_DATA names"
    else:
        own = f"set model to a directory, or $CSE_MODELS to a folder that holds {repository.id!r}"
    return (
        f"one of: (1) {own}; "
        f"(2) run `hf download {repository.id}{asked}` on a connected machine and copy its cache; "
        "(3) set HF_ENDPOINT to a mirror you can reach"
    )

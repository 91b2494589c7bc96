"""A repository of the hub at a revision: name, files, place in the hub's cache, and why it cannot be had."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from registry.errors import CseError, MissingError, UnknownNameError
from registry.transfer import TransferError

Kind = Literal["model", "dataset"]

Patterns = Sequence[str] | Callable[[Sequence[str]], Sequence[str]]
"""Names of files, with `*` inside one part of a path, or a function from all names of a repository to those wanted."""


_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Repository:
    """A repository at a revision.

    Attributes:
        kind: "model" or "dataset".
        id: `owner/name`, or the bare name of an old model.
        revision: Commit (40 hex digits), branch or tag.
        known_as: Its present name, where `id` is a former one under which older programs kept it in the cache.
    """

    kind: Kind
    id: str
    revision: str = "main"
    known_as: str = ""

    @property
    def key(self) -> str:
        """Kind and id, as runs record them beside the commit."""
        return f"{self.kind} {self.known_as or self.id}"

    @property
    def noun(self) -> str:
        """What messages call it."""
        return "model" if self.kind == "model" else "data set"

    @property
    def folder(self) -> Path:
        """Where the hub's cache keeps it."""
        return cache_folder() / f"{self.kind}s--{self.id.replace('/', '--')}"

    @property
    def page(self) -> str:
        """Address of its page."""
        from huggingface_hub import constants

        return f"{constants.ENDPOINT}/{'datasets/' if self.kind == 'dataset' else ''}{self.id}"


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository at a commit; small files have no `sha256`, only the digest of a git blob."""

    name: str
    size: int
    sha256: str | None
    git_sha1: str

    @property
    def blob(self) -> str:
        """The name of its bytes in the cache."""
        return self.sha256 or self.git_sha1


def cache_folder() -> Path:
    """Return the hub's local cache, `$HF_HOME/hub` unless it is set otherwise."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern means a file: `*`, `?` and `[…]` stay inside one part of its path."""
    if name == pattern:
        return True
    parts, patterns = name.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def select(names: Sequence[str], patterns: Patterns) -> list[str]:
    """Return the names that patterns mean."""
    if callable(patterns):
        return list(patterns(names))
    return [name for name in names if any(matches(name, pattern) for pattern in patterns)]


def unmatched(names: Sequence[str], patterns: Patterns) -> list[str]:
    """Return the patterns that mean none of the names."""
    if callable(patterns):
        return []
    return [pattern for pattern in patterns if not any(matches(name, pattern) for name in names)]


# --- why it cannot be had ---------------------------------------------------------------------------------------------


@contextmanager
def answers_like_a_hub(repository: Repository) -> Iterator[None]:
    """Turn a failure to read an answer into one message: a network's login page answers everything with 200."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MissingError(
            f"{repository.noun} {repository.id!r}: what answers at {repository.page} is not a model hub",
            "check HF_ENDPOINT, the proxy, and whether this network wants a login first",
        ) from error


def check_name(repository: Repository, hint: str) -> None:
    """Refuse what cannot be the name of a repository.

    Raises:
        UnknownNameError: It cannot.
    """
    name = repository.id
    if not _NAME.fullmatch(name) or "--" in name or ".." in name or name.endswith((".", "-", ".git")):
        raise UnknownNameError(f"{name!r} is not a {repository.noun} name.{hint}", _alternatives(repository))


def explain(repository: Repository, error: TransferError, hint: str) -> CseError:
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
            f"`hf auth login` if it is yours, else {_alternatives(repository)}",
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
            f"the hub does not have all of {what}{part} and says {error.reason}", f"see {repository.page}/tree/main"
        )
    message = f"{what}{part} is not on this machine and could not be fetched: {error.reason}.{hint}"
    if "wrong bytes" in error.reason:
        return MissingError(message, error.next_action)
    if others := _other_commits(repository):
        return MissingError(
            f"{message} The cache has it at another commit than {repository.revision}.",
            f"name that one, `{repository.id}@{others[0]}`, or {_alternatives(repository)}",
        )
    return MissingError(message, _alternatives(repository))


def _other_commits(repository: Repository) -> list[str]:
    folders = (repository.folder / "snapshots").glob("*/")
    return sorted(folder.name for folder in folders if folder.name != repository.revision and any(folder.iterdir()))


def no_such_files(repository: Repository, names: Sequence[str], patterns: Patterns) -> MissingError:
    """Return what to say where a repository lacks what is needed."""
    lacking = ", ".join(unmatched(names, patterns))
    needed = f"a file {lacking}" if lacking else "any of the files that are needed"
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return MissingError(
        f"{repository.noun} {repository.id!r} at {repository.revision[:12]} does not have {needed}; it has {shown}",
        f"look at {repository.page}/tree/{repository.revision}",
    )


def _alternatives(repository: Repository) -> str:
    asked = f" --revision {repository.revision}" if COMMIT.fullmatch(repository.revision) else ""
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

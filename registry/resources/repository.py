"""Repositories of the Hugging Face Hub: names, file patterns, directories in the Hub's cache, and error messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from registry.errors import CseError, MissingError, UnknownNameError
from registry.resources.download import DownloadError

Kind = Literal["model", "dataset"]

Patterns = Sequence[str] | Callable[[Sequence[str]], Sequence[str]]
"""File names, where `*` matches within one part of a path, or a function that selects from all names."""

COMMIT = re.compile(r"[0-9a-f]{40}")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True)
class Repository:
    """A repository at a revision.

    Attributes:
        kind: "model" or "dataset".
        id: `owner/name`, or the bare name of an old model.
        revision: Commit (40 hex digits), branch or tag.
        known_as: Current name, if `id` is a former name that the cache can still contain.
    """

    kind: Kind
    id: str
    revision: str = "main"
    known_as: str = ""

    @property
    def key(self) -> str:
        """Kind and ID, as runs record them next to the commit."""
        return f"{self.kind} {self.known_as or self.id}"

    @property
    def noun(self) -> str:
        """Kind in words, for messages."""
        return "model" if self.kind == "model" else "data set"

    @property
    def folder(self) -> Path:
        """Directory of the repository in the Hub's cache."""
        return cache_folder() / f"{self.kind}s--{self.id.replace('/', '--')}"

    @property
    def page(self) -> str:
        """URL of the repository."""
        from huggingface_hub import constants

        return f"{constants.ENDPOINT}/{'datasets/' if self.kind == 'dataset' else ''}{self.id}"


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository at a commit. Small files have no `sha256`, only the digest of a git blob."""

    name: str
    size: int
    sha256: str | None
    git_sha1: str

    @property
    def blob(self) -> str:
        """File name of the content in the cache."""
        return self.sha256 or self.git_sha1


def cache_folder() -> Path:
    """Return the Hub's local cache: `$HF_HUB_CACHE`, else `$HF_HOME/hub`."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def matches(name: str, pattern: str) -> bool:
    """Return whether a pattern matches a file. `*`, `?` and `[…]` match within one part of its path."""
    if name == pattern:
        return True
    parts, patterns = name.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def select(names: Sequence[str], patterns: Patterns) -> list[str]:
    """Return the names that match a pattern."""
    if callable(patterns):
        return list(patterns(names))
    return [name for name in names if any(matches(name, pattern) for pattern in patterns)]


def unmatched(names: Sequence[str], patterns: Patterns) -> list[str]:
    """Return the patterns that match no name."""
    if callable(patterns):
        return []
    return [pattern for pattern in patterns if not any(matches(name, pattern) for name in names)]


# --- errors -----------------------------------------------------------------------------------------------------------


@contextmanager
def requires_hub_response(repository: Repository) -> Iterator[None]:
    """Raise one error for a response that the Hub does not send, such as the login page of a network."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MissingError(
            f"cannot read the files of {repository.noun} {repository.id!r}: the server at {repository.page} "
            "is not a model hub",
            "check HF_ENDPOINT, the proxy, and whether this network requires a login",
            code="hub.invalid_response",
        ) from error


def check_name(repository: Repository, hint: str) -> None:
    """Raise `UnknownNameError` if the ID cannot be the name of a repository."""
    name = repository.id
    if not _NAME.fullmatch(name) or "--" in name or ".." in name or name.endswith((".", "-", ".git")):
        raise UnknownNameError(
            f"{name!r} is not a {repository.noun} name.{hint}", _alternatives(repository), code="hub.invalid_name"
        )


def explain(repository: Repository, error: DownloadError, hint: str) -> CseError:
    """Return the meaning of a failed request, and what the user can do."""
    what = f"{repository.noun} {repository.id!r}"
    if error.hub_code == "GatedRepo":
        return MissingError(
            f"{what} is gated: its owners require you to accept its terms",
            f"accept them on {repository.page}, then run `hf auth login` on this machine",
            code="hub.gated",
        )
    if error.hub_code == "RevisionNotFound":
        return UnknownNameError(
            f"{what} has no revision {repository.revision!r}",
            f"omit the revision, or choose one from {repository.page}/commits/main",
            code="hub.unknown_revision",
        )
    if error.hub_code == "RepoNotFound" or error.status == 401:
        return UnknownNameError(
            f"{what} does not exist on the Hub, or is private.{hint}",
            f"run `hf auth login` if you have access to it, else {_alternatives(repository)}",
            code="hub.unknown_repository",
        )
    file = error.label.removeprefix(f"{repository.id}/")
    part = f", file {file}" if file != error.label else ""
    if error.status == 403:
        return MissingError(
            f"the Hub denies access to {what}{part}: {error.reason}",
            f"run `hf auth login` with a token that can read it, and accept its terms on {repository.page}",
            code="hub.forbidden",
        )
    if error.status == 404:
        return MissingError(
            f"{what}{part} is missing on the Hub: {error.reason}",
            f"see {repository.page}/tree/main",
            code="hub.missing_file",
        )
    message = f"{what}{part} is not on this machine, and the download failed: {error.reason}.{hint}"
    if error.code == "download.wrong_bytes":
        return MissingError(message, error.next_action, code=error.code)
    if others := _other_commits(repository):
        return MissingError(
            f"{message} The cache contains another commit than {repository.revision}.",
            f"use that commit, `{repository.id}@{others[0]}`, or {_alternatives(repository)}",
            code="hub.other_commit",
        )
    return MissingError(message, _alternatives(repository), code="hub.unreachable")


def _other_commits(repository: Repository) -> list[str]:
    folders = (repository.folder / "snapshots").glob("*/")
    return sorted(folder.name for folder in folders if folder.name != repository.revision and any(folder.iterdir()))


def missing_files_error(repository: Repository, names: Sequence[str], patterns: Patterns) -> MissingError:
    """Return the error of a repository that lacks required files."""
    lacking = ", ".join(unmatched(names, patterns))
    required = f"file {lacking}" if lacking else "configuration or weights that can be loaded"
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return MissingError(
        f"{repository.noun} {repository.id!r} at {repository.revision[:12]} has no {required}, only "
        f"{', '.join(names[:5])}{more}",
        f"see {repository.page}/tree/{repository.revision}",
        code="hub.missing_file",
    )


def _alternatives(repository: Repository) -> str:
    revision = f" --revision {repository.revision}" if COMMIT.fullmatch(repository.revision) else ""
    if repository.kind == "dataset":
        revision += " --repo-type dataset"
        local = "put the files into the directory $CSE_DATA"
    else:
        local = f"set model to a directory, or $CSE_MODELS to a directory that contains {repository.id!r}"
    return (
        f"one of: (1) {local}; "
        f"(2) run `hf download {repository.id}{revision}` on a connected machine and copy its cache; "
        "(3) set HF_ENDPOINT to a mirror that you can reach"
    )

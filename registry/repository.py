"""A repository of the hub at a revision, its files, and where the hub's own cache keeps them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

Kind = Literal["model", "dataset"]

Patterns = Sequence[str] | Callable[[Sequence[str]], Sequence[str]]
"""Names of files, with `*` inside one part of a path, or a function from all names of a repository to those wanted."""


def cache_folder() -> Path:
    """Return the hub's local cache, `$HF_HOME/hub` unless it is set otherwise."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


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


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern means a file: `*`, `?` and `[…]` stay inside one part of its path."""
    if name == pattern:
        return True
    parts, wanted = name.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))

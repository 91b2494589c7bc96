"""Files of the Hugging Face Hub at a fixed commit. huggingface_hub downloads them to its own cache.

The commit comes from the run that is resumed, the name (`id@revision`), the catalog or the cache's `refs`. Only without
any of these is a request sent. Files are then looked up by commit, so a start with a complete cache sends no request.
`hf`, transformers and datasets find the same files in the same cache (`blobs`, `snapshots`, `refs`, `trees` below
`HF_HOME`).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

from registry.errors import CseError, MissingError, UnknownNameError
from registry.paths import write_atomically
from registry.resources.download import PATIENCE, digest, disk_error, http, reason, report, require_space, retried

Kind = Literal["model", "dataset"]

Patterns = Sequence[str] | Callable[[Sequence[str]], Sequence[str]]
"""File names, where `*` matches within one part of a path, or a function that selects from all names."""

OFFLINE = "HF_HUB_OFFLINE"
"""Environment variable that forbids requests to the Hub."""

COMMIT = re.compile(r"[0-9a-f]{40}")
_STALE = 3600.0
"""Seconds without a new byte after which an unfinished download belongs to a process that no longer runs."""

_TREE_FORMAT = 1
"""Version of huggingface_hub's listings in `trees`."""


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
    def snapshot(self) -> Path:
        """Directory of the files at the revision, which is a commit."""
        return self.folder / "snapshots" / self.revision

    @property
    def page(self) -> str:
        """URL of the repository."""
        from huggingface_hub import constants

        return f"{constants.ENDPOINT}/{'datasets/' if self.kind == 'dataset' else ''}{self.id}"


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository at a commit. `digest` is a SHA-256, or of small files the SHA-1 of a git blob."""

    name: str
    size: int
    digest: str

    def fault(self, path: Path, *, complete: bool = True) -> str | None:
        """Return the difference of a file on this machine, or None. Without `complete`, compare only the size."""
        if (found := path.stat().st_size) != self.size:
            return f"{found} bytes instead of {self.size}"
        git = len(self.digest) == 40
        if complete and (actual := digest(path, git=git)) != self.digest:
            return f"{'git SHA-1' if git else 'SHA-256'} {actual} instead of {self.digest}"
        return None


def cache_folder() -> Path:
    """Return the Hub's local cache: `$HF_HUB_CACHE`, else `$HF_HOME/hub`."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def repositories() -> list[str]:
    """Return the IDs of the models in the Hub's local cache."""
    folders = cache_folder().glob("models--*")
    return sorted(folder.name.removeprefix("models--").replace("--", "/") for folder in folders)


# --- commits ----------------------------------------------------------------------------------------------------------

_pins: dict[str, str] = {}
_used: dict[str, str] = {}


def pin(commits: Mapping[str, str]) -> None:
    """Use these commits, by `Repository.key`, instead of all others: those of the run that is resumed."""
    _pins.clear()
    _pins.update(commits)


@contextmanager
def pinned(commits: Mapping[str, str]) -> Iterator[None]:
    """Pin commits inside a `with` block."""
    before = dict(_pins)
    pin(commits)
    try:
        yield
    finally:
        pin(before)


def used() -> dict[str, str]:
    """Return the commits of all repositories used since the start or `forget`, by `Repository.key`."""
    return dict(_used)


def forget() -> None:
    """Clear the record of used commits."""
    _used.clear()


def commit_of(repository: Repository) -> str | None:
    """Return the commit of a repository, or None if only the Hub knows it."""
    if (pin := _pins.get(repository.key)) is not None:
        return pin
    if COMMIT.fullmatch(repository.revision):
        return repository.revision
    try:
        return (repository.folder / "refs" / repository.revision).read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


# --- file listings ----------------------------------------------------------------------------------------------------


def look_up(repository: Repository, *, hint: str = "", again: bool = False) -> tuple[Repository, list[RemoteFile]]:
    """Return the repository at its commit, and all of its files. Sends a request unless both are in the cache.

    `again` looks up a branch again. The commit of the resumed run still wins.
    """
    fixed = repository.key in _pins or COMMIT.fullmatch(repository.revision)
    commit = None if again and not fixed else commit_of(repository)
    if commit is not None:
        found = replace(repository, revision=commit)
        if (stored := _stored_listing(found)) is not None:
            return found, stored
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    def ask() -> Any:
        return HfApi(library_name="cse").repo_info(
            repository.id,
            repo_type=repository.kind,
            revision=commit or repository.revision,
            files_metadata=True,
            timeout=PATIENCE,
        )

    try:
        validate_repo_id(repository.id)
        about = retried(repository.key, ask)
        found = replace(repository, revision=str(about.sha))
        files = {
            file.rfilename: {"size": file.size, "blob_id": file.blob_id}
            | ({"lfs_sha256": file.lfs["sha256"], "lfs_size": file.size} if file.lfs else {})
            for file in about.siblings
        }
        listing = json.dumps({"format_version": _TREE_FORMAT, "files": files}, indent=1)
    except HFValidationError as error:
        raise UnknownNameError(
            f"{repository.id!r} is not a {repository.noun} name.{hint}",
            _alternatives(repository),
            code="hub.invalid_name",
        ) from error
    except (http().HTTPError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise explain(repository, error, hint) from error
    with suppress(OSError):  # a later start sends the request again
        if found.revision != repository.revision:
            write_atomically(found.folder / "refs" / repository.revision, found.revision)
        write_atomically(_listing_path(found), listing)
    return found, _files_in(listing)


def _files_in(listing: str) -> list[RemoteFile]:
    """Return the files in a listing of huggingface_hub. Raises `ValueError`, `KeyError` … if it has another format."""
    document = json.loads(listing)
    if document["format_version"] != _TREE_FORMAT:
        raise ValueError(document["format_version"])
    return [
        RemoteFile(name, entry.get("lfs_size") or entry["size"], entry.get("lfs_sha256") or entry["blob_id"])
        for name, entry in document["files"].items()
    ]


def _stored_listing(repository: Repository) -> list[RemoteFile] | None:
    try:
        return _files_in(_listing_path(repository).read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _listing_path(repository: Repository) -> Path:
    return repository.folder / "trees" / f"{repository.revision}.json"


def missing_bytes(repository: Repository, patterns: Patterns, *, ask: bool = False, hint: str = "") -> int | None:
    """Return the size of the files that `fetch` would download. None if only the Hub knows it, unless `ask` asks it."""
    commit = commit_of(repository)
    if not ask and (commit is None or _stored_listing(replace(repository, revision=commit)) is None):
        return None
    found, files = look_up(repository, hint=hint)
    return sum(file.size for file in _select(files, patterns) if not _is_stored(found, file))


def _is_stored(repository: Repository, file: RemoteFile) -> bool:
    place = repository.snapshot / file.name
    return place.is_file() and file.fault(place, complete=False) is None


def matches(name: str, pattern: str) -> bool:
    """Return whether a pattern matches a file. `*`, `?` and `[…]` match within one part of its path."""
    if name == pattern:
        return True
    parts, patterns = name.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def _select(files: Sequence[RemoteFile], patterns: Patterns) -> list[RemoteFile]:
    if callable(patterns):
        names = set(patterns([file.name for file in files]))
        return [file for file in files if file.name in names]
    return [file for file in files if any(matches(file.name, pattern) for pattern in patterns)]


def _lacking(names: Sequence[str], patterns: Patterns) -> list[str] | None:
    """Return the required files that are not among `names`, or None if nothing is lacking."""
    if callable(patterns):
        return None if patterns(names) else ["configuration or weights that can be loaded"]
    return [pattern for pattern in patterns if not any(matches(name, pattern) for name in names)] or None


# --- files ------------------------------------------------------------------------------------------------------------


def cached(
    repository: Repository, patterns: Patterns, *, complete: Callable[[Path], bool] | None = None
) -> Path | None:
    """Return the snapshot in the cache, or None if a file is missing. Sends no request.

    `complete` checks a snapshot without a listing, which another program downloaded. Default: each pattern matches a
    file.
    """
    commit = commit_of(repository)
    if commit is None:
        return None
    found = replace(repository, revision=commit)
    folder, listing = found.snapshot, _stored_listing(found)
    if listing is not None:
        here = all(_is_stored(found, file) for file in _select(listing, patterns))
        here = here and _lacking([file.name for file in listing], patterns) is None
    elif complete is not None:
        here = folder.is_dir() and complete(folder)
    else:
        names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        here = _lacking(names, patterns) is None
    if not here:
        return None
    _used[repository.key] = commit
    return folder


def fetch(
    repository: Repository,
    patterns: Patterns,
    *,
    force: bool = False,
    complete: Callable[[Path], bool] | None = None,
    hint: str = "",
) -> Path:
    """Return the snapshot with all required files, and download those that are missing.

    `force` verifies the bytes of cached files, downloads wrong ones again, and looks up branches again. `complete`
    checks a snapshot without a listing, as in `cached`. `hint` names similar names, for messages.
    """
    if not force and (folder := cached(repository, patterns, complete=complete)) is not None:
        return folder
    found, files = look_up(repository, hint=hint, again=force)
    names = [file.name for file in files]
    if (lacking := _lacking(names, patterns)) is not None:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        raise MissingError(
            f"{found.noun} {found.id!r} at {found.revision[:12]} has no {', '.join(lacking)}, only "
            f"{', '.join(names[:5])}{more}",
            f"see {found.page}/tree/{found.revision}",
            code="hub.missing_file",
        )
    wanted, name = _select(files, patterns), ""
    try:
        require_space(found.folder, sum(file.size for file in wanted if not _is_stored(found, file)))
        for file in wanted:
            name, place = file.name, found.snapshot / file.name
            if not place.is_file() or file.fault(place, complete=force) is not None:
                _download(found, file)
    except (http().HTTPError, OSError, ValueError) as error:
        raise explain(found, error, hint, name) from error
    _used[found.key] = found.revision
    return found.snapshot


def _download(repository: Repository, file: RemoteFile) -> None:
    """Put a file into the snapshot. Replace one with wrong bytes."""
    from huggingface_hub import hf_hub_download

    class Bar:
        """The methods of tqdm that huggingface_hub calls."""

        def __init__(self, *_: Any, **settings: Any) -> None:
            self.n, self.total = settings.get("initial", 0), file.size

        def __enter__(self) -> Bar:
            return self

        def update(self, n: float | None = 1) -> None:
            self.n += int(n or 0)
            report(label, self.n, file.size)

        def close(self, *_: object, **__: object) -> None:
            """Do nothing, like the other methods."""

        __exit__ = update_transfer = set_postfix_str = set_transfer_postfix_str = close

    def download() -> None:
        hf_hub_download(
            repository.id,
            file.name,
            repo_type=repository.kind,
            revision=repository.revision,
            library_name="cse",
            tqdm_class=Bar,
        )

    label = f"{repository.id}/{file.name}"
    _remove(repository, file)
    retried(label, download, connections=False)
    if (fault := file.fault(repository.snapshot / file.name)) is not None:  # huggingface_hub compares only the size
        _remove(repository, file)
        raise MissingError(
            f"{repository.noun} {repository.id!r}, file {file.name}: wrong bytes: {fault}",
            "run the command again, or use another network or HF_ENDPOINT",
            code="download.wrong_bytes",
        )


def _remove(repository: Repository, file: RemoteFile) -> None:
    """Delete a file of a snapshot, its content, which the snapshot links, and what killed processes left of it."""
    place = repository.snapshot / file.name
    lefts = (repository.folder / "blobs").glob(f"{file.digest}.*.incomplete")
    stale = [left for left in lefts if time.time() - left.stat().st_mtime > _STALE]
    for path in (place.resolve(), place, *stale):
        path.unlink(missing_ok=True)


def unreachable() -> str | None:
    """Return why the Hub cannot be used, or None."""
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return f"{OFFLINE} forbids requests to the Hub"
    return None if responds(constants.ENDPOINT) else f"the Hub at {constants.ENDPOINT} does not respond"


@cache
def responds(endpoint: str) -> bool:
    """Return whether a server answers one request, which is sent once per process."""
    from huggingface_hub import get_session

    try:
        get_session().head(endpoint, timeout=PATIENCE)
    except (http().HTTPError, http().InvalidURL, OSError):
        return False
    return True


# --- errors -----------------------------------------------------------------------------------------------------------


def explain(repository: Repository, error: Exception, hint: str = "", file: str = "") -> CseError:
    """Return the meaning of a failed request, and what the user can do."""
    from huggingface_hub.errors import FileMetadataError, LocalEntryNotFoundError

    if isinstance(error, LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, OSError) and error.errno is not None:
        return disk_error(repository.folder, error)
    what = f"{repository.noun} {repository.id!r}{file and f', file {file}'}"
    if getattr(error, "response", None) is not None:
        if (refusal := _refusal(repository, error, what, hint)) is not None:
            return refusal
    elif isinstance(error, FileMetadataError | ValueError | KeyError | TypeError | AttributeError):
        return MissingError(
            f"cannot read {what}: the server at {repository.page} is not a model hub",
            "check HF_ENDPOINT, the proxy, and whether this network requires a login",
            code="hub.invalid_response",
        )
    message = f"{what} is not on this machine, and the download failed: {reason(error)}.{hint}"
    folders = (repository.folder / "snapshots").glob("*/")
    others = sorted(folder.name for folder in folders if folder.name != repository.revision and any(folder.iterdir()))
    if others:
        return MissingError(
            f"{message} The cache contains another commit than {repository.revision}.",
            f"use that commit, `{repository.id}@{others[0]}`, or {_alternatives(repository)}",
            code="hub.other_commit",
        )
    return MissingError(message, _alternatives(repository), code="hub.unreachable")


def _refusal(repository: Repository, error: Any, what: str, hint: str) -> CseError | None:
    """Return the meaning of a response with an error status, or None if only the status is known."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    if isinstance(error, GatedRepoError):
        return MissingError(
            f"{what} is gated: its owners require you to accept its terms",
            f"accept them on {repository.page}, then run `hf auth login` on this machine",
            code="hub.gated",
        )
    if isinstance(error, RevisionNotFoundError):
        return UnknownNameError(
            f"{what} has no revision {repository.revision!r}",
            f"omit the revision, or choose one from {repository.page}/commits/main",
            code="hub.unknown_revision",
        )
    if isinstance(error, RepositoryNotFoundError) or error.response.status_code == 401:
        return UnknownNameError(
            f"{what} does not exist on the Hub, or is private.{hint}",
            f"run `hf auth login` if you have access to it, else {_alternatives(repository)}",
            code="hub.unknown_repository",
        )
    if error.response.status_code == 403:
        return MissingError(
            f"the Hub denies access to {what}: {reason(error)}",
            f"run `hf auth login` with a token that can read it, and accept its terms on {repository.page}",
            code="hub.forbidden",
        )
    if error.response.status_code == 404:
        return MissingError(
            f"{what} is missing on the Hub: {reason(error)}",
            f"see {repository.page}/tree/main",
            code="hub.missing_file",
        )
    return None


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

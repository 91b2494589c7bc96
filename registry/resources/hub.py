"""Files of the Hugging Face Hub at a fixed commit, in the Hub's own cache.

The commit comes from the run that is resumed, the name (`id@revision`), the catalog or the cache's `refs`. Only without
any of these is a request sent. Files are then looked up by commit, so a start with a complete cache sends no request.
The cache layout (`blobs`, `snapshots`, `refs`, `trees` below `HF_HOME`) is that of huggingface_hub: `hf`, transformers
and datasets find the same files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from registry.paths import write_atomically
from registry.resources.download import Download, DownloadError, disk_error, with_retries
from registry.resources.repository import (
    COMMIT,
    Kind,
    Patterns,
    RemoteFile,
    Repository,
    cache_folder,
    check_name,
    explain,
    matches,
    missing_files_error,
    requires_hub_response,
    select,
    unmatched,
)

__all__ = ["Repository", "cache_folder", "matches"]

OFFLINE = "HF_HUB_OFFLINE"
"""Environment variable that forbids requests to the Hub."""

PATIENCE = 8.0
"""Seconds that `unreachable` waits for a response."""

_TREE_FORMAT = 1
"""Version of huggingface_hub's listings in `trees`."""


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


def resolve(repository: Repository, *, hint: str = "") -> Repository:
    """Return the repository under its current name at a commit. Sends a request if the commit is not known.

    Raises:
        UnknownNameError: If the Hub has no such repository or revision.
        MissingError: If the Hub does not respond or denies access.
    """
    check_name(repository, hint)
    if (commit := commit_of(repository)) is not None:
        return replace(repository, revision=commit)
    return _look_up(repository, hint)[0]


# --- file listings ----------------------------------------------------------------------------------------------------


def remote_files(repository: Repository, *, hint: str = "") -> list[RemoteFile]:
    """Return all files at the commit. The listing is stored in the cache. Errors are those of `resolve`."""
    repository = resolve(repository, hint=hint)
    stored = _stored_listing(repository)
    return _look_up(repository, hint)[1] if stored is None else stored


def listed(repository: Repository) -> bool:
    """Return whether `remote_files` and `missing_files` need no request."""
    commit = commit_of(repository)
    return commit is not None and _stored_listing(replace(repository, revision=commit)) is not None


def missing_files(repository: Repository, patterns: Patterns) -> list[RemoteFile]:
    """Return the files that `fetch` would download."""
    repository = resolve(repository)
    return [file for file in _select(remote_files(repository), patterns) if not _is_stored(repository, file)]


def _look_up(repository: Repository, hint: str) -> tuple[Repository, list[RemoteFile]]:
    """Ask the Hub for the commit and the files of a revision, and store both in the cache."""
    from huggingface_hub import HfApi

    def ask(timeout: float) -> Any:
        return HfApi(library_name="cse").repo_info(
            repository.id,
            repo_type=repository.kind,
            revision=repository.revision,
            files_metadata=True,
            timeout=timeout,
        )

    try:
        with requires_hub_response(repository):
            about = with_retries(repository.key, ask)
            files = [_remote_file(sibling) for sibling in about.siblings]
            found = replace(repository, id=about.id, revision=str(about.sha))
    except DownloadError as error:
        raise explain(repository, error, hint) from error
    if found.revision != repository.revision:
        _store(found.folder / "refs" / repository.revision, found.revision)
    entries = {file.name: _tree_entry(file) for file in sorted(files, key=lambda file: file.name)}
    _store(_listing_path(found), json.dumps({"format_version": _TREE_FORMAT, "files": entries}, indent=1))
    pin = _pins.get(found.key, found.revision)
    if pin != found.revision:  # a run records the current name, and a former one was requested
        found = replace(found, revision=pin)
        return found, remote_files(found, hint=hint)
    return found, files


def _remote_file(sibling: Any) -> RemoteFile:
    sha256 = sibling.lfs["sha256"] if sibling.lfs else None
    return RemoteFile(sibling.rfilename, int(sibling.size), sha256, sibling.blob_id)


def _tree_entry(file: RemoteFile) -> dict[str, Any]:
    lfs = {} if file.sha256 is None else {"lfs_sha256": file.sha256, "lfs_size": file.size}
    return {"size": file.size, "blob_id": file.git_sha1, **lfs}


def _stored_listing(repository: Repository) -> list[RemoteFile] | None:
    try:
        document = json.loads(_listing_path(repository).read_text(encoding="utf-8"))
        if document["format_version"] != _TREE_FORMAT:
            return None
        return [
            RemoteFile(name, entry.get("lfs_size") or entry["size"], entry.get("lfs_sha256"), entry["blob_id"])
            for name, entry in document["files"].items()
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _store(path: Path, content: str) -> None:
    """Write a file that saves a later request. Does nothing if the cache is read-only."""
    with suppress(OSError):
        write_atomically(path, content)


def _listing_path(repository: Repository) -> Path:
    return repository.folder / "trees" / f"{repository.revision}.json"


def _select(files: Sequence[RemoteFile], patterns: Patterns) -> list[RemoteFile]:
    names = set(select([file.name for file in files], patterns))
    return [file for file in files if file.name in names]


def _cover(names: Sequence[str], patterns: Patterns) -> bool:
    """Return whether the names contain everything that is required."""
    return bool(select(names, patterns)) and not unmatched(names, patterns)


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
    repository = replace(repository, revision=commit)
    folder, listing = _snapshot(repository), _stored_listing(repository)
    if listing is not None:
        stored = all(_is_stored(repository, file) for file in _select(listing, patterns))
        found = stored and _cover([file.name for file in listing], patterns)
    elif complete is not None:
        found = folder.is_dir() and complete(folder)
    else:
        names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        found = _cover(names, patterns)
    if not found:
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
    repair: str = "",
) -> Path:
    """Return the snapshot with all required files, and download those that are missing.

    Args:
        repository: Repository with the requested name and revision.
        patterns: Required files.
        force: Verify the bytes of cached files, download wrong ones again, and look up branches again.
        complete: Check of a snapshot without a listing, as in `cached`.
        hint: Sentence with similar names, for messages.
        repair: Command that downloads wrong files again, for messages.

    Raises:
        UnknownNameError: If the Hub has no such repository, revision or file.
        MissingError: If the Hub does not respond or denies access.
        DiskError: If the cache cannot be written.
    """
    check_name(repository, hint)
    if not force and (folder := cached(repository, patterns, complete=complete)) is not None:
        return folder
    if force:
        fixed = repository.key in _pins or COMMIT.fullmatch(repository.revision)
        repository, files = _look_up(resolve(repository) if fixed else repository, hint)
    else:
        repository = resolve(repository, hint=hint)
        files = remote_files(repository, hint=hint)
    names = [file.name for file in files]
    if not _cover(names, patterns):
        raise missing_files_error(repository, names, patterns)
    try:
        for file in _select(files, patterns):
            _place(repository, file, force, repair)
    except DownloadError as error:
        raise explain(repository, error, hint) from error
    except OSError as error:
        raise disk_error(repository.folder, error) from error
    _used[repository.key] = repository.revision
    return _snapshot(repository)


def repositories(kind: Kind = "model") -> list[str]:
    """Return the IDs of the repositories in the Hub's local cache."""
    folders = cache_folder().glob(f"{kind}s--*")
    return sorted(folder.name.removeprefix(f"{kind}s--").replace("--", "/") for folder in folders)


def _snapshot(repository: Repository) -> Path:
    return repository.folder / "snapshots" / repository.revision


def _is_stored(repository: Repository, file: RemoteFile) -> bool:
    try:
        return (_snapshot(repository) / file.name).stat().st_size == file.size
    except OSError:
        return False


def _place(repository: Repository, file: RemoteFile, force: bool, repair: str) -> None:
    """Put one file into the snapshot, as a link to its blob."""
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    place = _snapshot(repository) / file.name
    download = Download(
        f"{repository.page}/resolve/{repository.revision}/{quote(file.name)}",
        repository.folder / "blobs" / file.blob,
        file.size,
        file.sha256,
        None if file.sha256 else file.git_sha1,
        label=f"{repository.id}/{file.name}",
        repair=repair,
        lock=repository.folder.parent / ".locks" / repository.folder.name / f"{file.blob}.lock",
    )
    for path in (download.target, place):
        # A wrong size is always detected. All bytes are only read on request.
        if path.is_file() and (path.stat().st_size != file.size or (force and download.fault(path))):
            path.unlink()
        if place.is_symlink():
            break  # to the same blob
    if place.is_file():
        return
    if not download.target.is_file():
        download.target.unlink(missing_ok=True)  # a broken link
        download.headers = build_hf_headers(library_name="cse")
        download.run()
    _link(download.target, place)


def _link(blob: Path, place: Path) -> None:
    """Make `place` a relative link to `blob`. On a file system without links, move the file."""
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_name(f"{place.name}.{os.getpid()}.tmp")
    try:
        draft.symlink_to(os.path.relpath(blob, place.parent))
    except OSError:
        blob.replace(draft)
    draft.replace(place)


@cache
def unreachable() -> str | None:
    """Return why the Hub cannot be used, or None. Sends one request per process."""
    import httpx2
    from huggingface_hub import constants, get_session

    if constants.is_offline_mode():
        return f"{OFFLINE} forbids requests to the Hub"
    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError):
        return f"the Hub at {constants.ENDPOINT} does not respond"
    return None

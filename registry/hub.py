"""Repositories of the model hub, at a commit, in the hub's own cache.

The commit comes first: of the run that is resumed, of the name (`id@revision`), of a catalogue, of the cache's `refs`,
and only then the hub's answer. Files are looked up in the cache by that commit, so that a start with everything there
asks nothing over the network. The layout (`blobs`, `snapshots`, `refs`, `trees` below `HF_HOME`) is that of
huggingface_hub, so `hf`, transformers and datasets find what is fetched here, and the other way round.
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
from registry.repository import (
    COMMIT,
    Kind,
    Patterns,
    RemoteFile,
    Repository,
    answers_like_a_hub,
    cache_folder,
    check_name,
    explain,
    matches,
    no_such_files,
    select,
    unmatched,
)
from registry.transfer import Download, TransferError, answers, disk_error, faults, get

__all__ = ["Repository", "cache_folder", "matches"]

OFFLINE = "HF_HUB_OFFLINE"
"""Variable that forbids asking the hub."""

PATIENCE = 8.0
"""Seconds that `unreachable` waits for the hub's first answer."""

_TREE_FORMAT = 1


# --- commits ----------------------------------------------------------------------------------------------------------

_pins: dict[str, str] = {}
_used: dict[str, str] = {}


def pin(commits: Mapping[str, str]) -> None:
    """Use these commits, by `Repository.key`, before all others: those of the run that is resumed."""
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
    """Return the commits of all repositories that were located since the start or `forget`, by `Repository.key`."""
    return dict(_used)


def forget() -> None:
    """Let `used` start anew."""
    _used.clear()


def commit_of(repository: Repository) -> str | None:
    """Return the commit, as far as it is known without the network."""
    if (pin := _pins.get(repository.key)) is not None:
        return pin
    if COMMIT.fullmatch(repository.revision):
        return repository.revision
    try:
        return (repository.folder / "refs" / repository.revision).read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def resolve(repository: Repository, *, hint: str = "") -> Repository:
    """Return the repository under its present name and at a commit, which the hub is asked for if it is not known.

    Raises:
        UnknownNameError: The hub has no such repository or revision.
        MissingError: The hub does not answer, or refuses.
    """
    check_name(repository, hint)
    if (commit := commit_of(repository)) is not None:
        return replace(repository, revision=commit)
    return _newest(repository, hint)


def _newest(repository: Repository, hint: str) -> Repository:
    """Ask the hub which commit a branch or tag has now, and keep the answer."""
    with answers_like_a_hub(repository):
        about = _ask(repository, f"revision/{quote(repository.revision, safe='')}", hint).json()
        found = replace(repository, id=about["id"], revision=about["sha"])
    _keep(found.folder / "refs" / repository.revision, found.revision)
    # A run pins the present name; the one given here may be a former one.
    return replace(found, revision=_pins.get(found.key, found.revision))


# --- what a repository has --------------------------------------------------------------------------------------------


def remote_files(repository: Repository, *, hint: str = "") -> list[RemoteFile]:
    """Return all files at the commit; the listing is kept beside the snapshots, and asked for once only.

    Raises:
        UnknownNameError, MissingError: As `resolve`.
    """
    repository = resolve(repository, hint=hint)
    kept = _kept_listing(repository)
    return kept if kept is not None else _listing(repository, hint)


def listed(repository: Repository) -> bool:
    """Whether `remote_files` and `missing_files` can answer without the network."""
    commit = commit_of(repository)
    return commit is not None and _kept_listing(replace(repository, revision=commit)) is not None


def missing_files(repository: Repository, patterns: Patterns) -> list[RemoteFile]:
    """Return what `fetch` would download; asks the hub for a listing that is not kept."""
    repository = resolve(repository)
    return [file for file in _chosen(remote_files(repository), patterns) if not _is_there(repository, file)]


def _listing(repository: Repository, hint: str = "") -> list[RemoteFile]:
    """Ask the hub for all files, page after page, and keep them in the format of huggingface_hub's own listings."""
    files: dict[str, dict[str, Any]] = {}
    with answers_like_a_hub(repository):
        answer = _ask(repository, f"tree/{repository.revision}?recursive=true&expand=false", hint)
        rows: list[dict[str, Any]] = answer.json()
        while (following := answer.links.get("next", {}).get("url")) is not None:
            answer = _get(repository, following, hint)
            rows += answer.json()
        for row in rows:
            if row["type"] == "file":
                lfs, xet = row.get("lfs"), row.get("xetHash")
                files[row["path"]] = {"size": row["size"], "blob_id": row["oid"]}
                files[row["path"]] |= {"lfs_sha256": lfs["oid"], "lfs_size": lfs["size"]} if lfs else {}
                files[row["path"]] |= {"xet_hash": xet} if xet else {}
    document = {"format_version": _TREE_FORMAT, "files": dict(sorted(files.items()))}
    _keep(_listing_place(repository), json.dumps(document, indent=1))
    return [_remote_file(name, about) for name, about in sorted(files.items())]


def _kept_listing(repository: Repository) -> list[RemoteFile] | None:
    try:
        document = json.loads(_listing_place(repository).read_text(encoding="utf-8"))
        if document["format_version"] != _TREE_FORMAT:
            return None
        return [_remote_file(name, about) for name, about in document["files"].items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _keep(place: Path, content: str) -> None:
    """Write a note that saves a request later; a cache that may only be read goes without."""
    with suppress(OSError):
        write_atomically(place, content)


def _remote_file(name: str, about: Mapping[str, Any]) -> RemoteFile:
    sha256 = about.get("lfs_sha256")
    return RemoteFile(name, about["lfs_size"] if sha256 else about["size"], sha256, about["blob_id"])


def _listing_place(repository: Repository) -> Path:
    return repository.folder / "trees" / f"{repository.revision}.json"


def _chosen(files: Sequence[RemoteFile], patterns: Patterns) -> list[RemoteFile]:
    names = set(select([file.name for file in files], patterns))
    return [file for file in files if file.name in names]


def _cover(names: Sequence[str], patterns: Patterns) -> bool:
    """Whether the names are all that is needed."""
    return bool(select(names, patterns)) and not unmatched(names, patterns)


# --- files ------------------------------------------------------------------------------------------------------------


def cached(
    repository: Repository, patterns: Patterns, *, complete: Callable[[Path], bool] | None = None
) -> Path | None:
    """Return the snapshot in the cache if all files that `patterns` select are there; no network.

    Args:
        repository: At whichever commit `commit_of` knows.
        patterns: What is needed.
        complete: Says whether a snapshot will do that another program fetched, without a listing of what there is;
            left out, every pattern must have a file.
    """
    commit = commit_of(repository)
    if commit is None:
        return None
    repository = replace(repository, revision=commit)
    if not _has_all(repository, patterns, complete):
        return None
    _used[repository.key] = commit
    return _snapshot(repository)


def _has_all(repository: Repository, patterns: Patterns, complete: Callable[[Path], bool] | None) -> bool:
    """Whether the snapshot has all files that `patterns` select: by the listing, else by what is in the folder."""
    folder, listing = _snapshot(repository), _kept_listing(repository)
    if listing is not None:
        there = all(_is_there(repository, file) for file in _chosen(listing, patterns))
        return there and _cover([file.name for file in listing], patterns)
    if complete is not None:
        return folder.is_dir() and complete(folder)
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return _cover(names, patterns)


def fetch(
    repository: Repository,
    patterns: Patterns,
    *,
    force: bool = False,
    complete: Callable[[Path], bool] | None = None,
    hint: str = "",
    repair: str = "",
) -> Path:
    """Return the snapshot with all files that `patterns` select, downloading what is lacking.

    Args:
        repository: Revision and name as given.
        patterns: What is needed.
        force: Check the bytes of what is there, and fetch anew what is wrong; a branch is looked up anew.
        complete: As in `cached`.
        hint: Sentence for messages: similar names.
        repair: Command that fetches wrong files anew, for messages.

    Raises:
        UnknownNameError: The hub has no such repository, revision or file.
        MissingError: The hub does not answer, or refuses.
        DiskError: The cache cannot be written.
    """
    check_name(repository, hint)
    if not force and (folder := cached(repository, patterns, complete=complete)) is not None:
        return folder
    fixed = repository.key in _pins or COMMIT.fullmatch(repository.revision)
    repository = _newest(repository, hint) if force and not fixed else resolve(repository, hint=hint)
    listing = _listing(repository, hint) if force else remote_files(repository, hint=hint)
    names = [file.name for file in listing]
    if not _cover(names, patterns):
        raise no_such_files(repository, names, patterns)
    try:
        for file in _chosen(listing, patterns):
            _place(repository, file, force, hint, repair)
    except OSError as error:
        raise disk_error(repository.folder, error) from error
    _used[repository.key] = repository.revision
    return _snapshot(repository)


def repositories(kind: Kind = "model") -> list[str]:
    """Return the repositories in the hub's local cache."""
    folders = cache_folder().glob(f"{kind}s--*")
    return sorted(folder.name.removeprefix(f"{kind}s--").replace("--", "/") for folder in folders)


def _snapshot(repository: Repository) -> Path:
    return repository.folder / "snapshots" / repository.revision


def _is_there(repository: Repository, file: RemoteFile) -> bool:
    try:
        return (_snapshot(repository) / file.name).stat().st_size == file.size
    except OSError:
        return False


def _place(repository: Repository, file: RemoteFile, force: bool, hint: str, repair: str) -> None:
    """Put one file into the snapshot, as a link to its blob."""
    place = _snapshot(repository) / file.name
    blob = repository.folder / "blobs" / file.blob
    digests = (file.size, file.sha256, None if file.sha256 else file.git_sha1)
    for path in (blob, place):
        # Another length than announced cannot be right; reading all bytes is done where it is asked for.
        if path.is_file() and (path.stat().st_size != file.size or (force and faults(path, *digests))):
            path.unlink()
        if place.is_symlink():
            break  # to the same blob
    if place.is_file():
        return
    if not blob.is_file():
        blob.unlink(missing_ok=True)  # a broken link
        try:
            Download(
                f"{repository.page}/resolve/{repository.revision}/{quote(file.name)}",
                blob,
                *digests,
                headers=_headers(),
                label=f"{repository.id}/{file.name}",
                repair=repair,
                lock=repository.folder.parent / ".locks" / repository.folder.name / f"{file.blob}.lock",
            ).run()
        except TransferError as error:
            raise explain(repository, error, hint) from error
    _link(blob, place)


def _link(blob: Path, place: Path) -> None:
    """Make `place` a relative link to `blob`, or the file itself where the file system has no links."""
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_name(f"{place.name}.{os.getpid()}.tmp")
    try:
        draft.symlink_to(os.path.relpath(blob, place.parent))
    except OSError:
        blob.replace(draft)
    draft.replace(place)


# --- asking the hub ---------------------------------------------------------------------------------------------------


def is_offline() -> bool:
    """Return whether HF_HUB_OFFLINE is set."""
    from huggingface_hub import constants

    return constants.is_offline_mode()


@cache
def unreachable() -> str | None:
    """Return why the hub cannot be used from here, or None; asked once a process, within `PATIENCE` seconds."""
    from huggingface_hub import constants

    if is_offline():
        return f"{OFFLINE} forbids asking the hub"
    if not answers(constants.ENDPOINT, PATIENCE):
        return f"the hub at {constants.ENDPOINT} does not answer"
    return None


def _headers() -> dict[str, str]:
    """Return user agent and token; the client drops the token where a request is redirected to another host.

    Not `build_hf_headers`: that one asks the hub for a list of agents first, and waits three seconds for it.
    """
    from huggingface_hub import __version__, constants, get_token

    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    return {"User-Agent": f"cse; hf_hub/{__version__}"} | ({"Authorization": f"Bearer {token}"} if token else {})


def _ask(repository: Repository, question: str, hint: str) -> Any:
    from huggingface_hub import constants

    return _get(repository, f"{constants.ENDPOINT}/api/{repository.kind}s/{repository.id}/{question}", hint)


def _get(repository: Repository, address: str, hint: str) -> Any:
    try:
        return get(address, headers=_headers(), label=repository.key)
    except TransferError as error:
        raise explain(repository, error, hint) from error

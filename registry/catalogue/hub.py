"""Files of a data set repository of the hub: from the hub's own cache, else over the network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from registry.hub import unreachable


class HubRefusedError(Exception):
    """The hub did not give the files; the message says why."""


def cached(repository: str, revision: str, patterns: Sequence[str]) -> tuple[Path, ...]:
    """Return the files that lie in the hub's cache; none if one of the patterns has no file there."""
    import huggingface_hub

    try:
        folder = huggingface_hub.snapshot_download(
            repository, repo_type="dataset", revision=revision, allow_patterns=list(patterns), local_files_only=True
        )
    except OSError:  # what huggingface_hub raises for "not in the cache" is one
        return ()
    return _matching(Path(folder), patterns)


def fetch(repository: str, revision: str, patterns: Sequence[str]) -> tuple[Path, ...]:
    """Return the files, downloaded into the hub's cache.

    Raises:
        HubRefusedError: The hub is switched off, does not answer in time, or has no such files.
    """
    import huggingface_hub

    if (why := unreachable()) is not None:
        raise HubRefusedError(why)
    try:
        folder = huggingface_hub.snapshot_download(
            repository, repo_type="dataset", revision=revision, allow_patterns=list(patterns)
        )
    except Exception as error:  # the client's transport, and so its exceptions, change between its versions
        raise HubRefusedError(str(error).partition("\n")[0]) from error
    found = _matching(Path(folder), patterns)
    if not found:
        raise HubRefusedError(f"{repository} at revision {revision} has no file {', '.join(patterns)}")
    return found


def _matching(folder: Path, patterns: Sequence[str]) -> tuple[Path, ...]:
    found = [sorted(folder.glob(pattern)) for pattern in patterns]
    return tuple(path for paths in found for path in paths) if all(found) else ()

"""Downloads: progress, repeated requests, files at an address, and the files that components name (`files.toml`).

Requests use the HTTP client of huggingface_hub, so its proxy, certificate and offline settings apply.
"""

from __future__ import annotations

import errno
import hashlib
import shutil
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from registry import paths
from registry.errors import DiskError, MissingError

T = TypeVar("T")

TRIES = 4
"""Maximum number of attempts in a row that receive no new bytes."""

PATIENCE = 8.0
"""Seconds without a response or a byte after which an attempt fails."""

PAUSE = 1.0
"""Seconds before the second attempt. They double with each attempt."""

LONGEST_PAUSE = 60.0
"""Longest `Retry-After` in seconds that is respected."""

_RETRIED = (408, 429, 500, 502, 503, 504)
_TABLE = Path(__file__).parent / "files.toml"

# --- progress ---------------------------------------------------------------------------------------------------------

Reporter = Callable[[str, int, int | None, str], None]
"""Function of label, bytes received, total bytes (None: unknown) and a note ("waiting 2 s: 429", or empty)."""

_reporter: Reporter | None = None


@contextmanager
def reporting(reporter: Reporter) -> Iterator[None]:
    """Report all downloads of this process to `reporter`."""
    global _reporter
    previous, _reporter = _reporter, reporter
    try:
        yield
    finally:
        _reporter = previous


def report(label: str, done: int, total: int | None, note: str = "") -> None:
    """Report the progress of a download. Does nothing outside `reporting`."""
    if _reporter is not None:
        _reporter(label, done, total, note)


@cache
def http() -> Any:
    """Return the HTTP library whose errors huggingface_hub's requests raise: httpx2, or httpx before release 2."""
    from huggingface_hub import get_session

    return import_module(type(get_session()).__module__.partition(".")[0])


# --- requests that fail -----------------------------------------------------------------------------------------------


def retried(label: str, request: Callable[[], T], *, connections: bool = True, received: Callable[[], int] = int) -> T:
    """Return the result of a request. Repeat it after a failure that can pass.

    Args:
        label: Name of the file or repository, for progress.
        request: Function that sends the request.
        connections: Whether to repeat after a broken connection. huggingface_hub does this itself for files.
        received: Function that returns the number of bytes received so far. New bytes start the count of tries again.
    """
    failures = 0
    while True:
        before = received()
        try:
            return request()
        except (http().HTTPError, OSError) as error:
            failures = failures + 1 if received() == before else 1
            response = getattr(error, "response", None)
            broken = connections and isinstance(error, http().TransportError)
            if not (broken if response is None else response.status_code in _RETRIED) or failures == TRIES:
                raise
            asked = "" if response is None else response.headers.get("Retry-After", "")
            pause = max(PAUSE * 2 ** (failures - 1), min(int(asked), LONGEST_PAUSE) if asked.isdecimal() else 0)
            report(label, received(), None, f"waiting {pause:.0f} s: {reason(error)}")
        time.sleep(pause)


def reason(error: Exception) -> str:
    """Return the cause of a failed request in one line, without the address."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set"
    response = getattr(error, "response", None)
    if response is not None:
        said = response.headers.get("X-Error-Message") or response.reason_phrase
        return f"{response.status_code} {said}".rstrip(" .")
    request = getattr(error, "_request", None)
    host = "the server" if request is None else request.url.host
    brief = str(error).partition("\n")[0].partition(" (")[0] or type(error).__name__
    if isinstance(error, http().TimeoutException):
        return f"{host} does not respond"
    if isinstance(error, (http().ConnectError, http().ProxyError)):
        return f"cannot connect to {host}: {brief}"
    return f"the connection to {host} was interrupted: {brief}" if isinstance(error, http().TransportError) else brief


def digest(path: Path, *, git: bool = False) -> str:
    """Return the SHA-256 of a file, or its SHA-1 as a git blob."""
    with path.open("rb") as stream:
        if not git:
            return hashlib.file_digest(stream, "sha256").hexdigest()
        total = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
        while block := stream.read(1 << 18):
            total.update(block)
    return total.hexdigest()


def require_space(folder: Path, size: int) -> None:
    """Create a directory. Raise `OSError` if it cannot be created, or its disk has fewer than `size` bytes."""
    paths.make_folder(folder)
    if size > shutil.disk_usage(folder).free:
        raise OSError(errno.ENOSPC, f"{size / 1e6:.0f} MB are needed")


def disk_error(target: Path, error: OSError) -> DiskError:
    """Return the error of a file that cannot be written."""
    if paths.no_room(error):
        return DiskError(
            f"no space left on the disk for {target}: {error.strerror}",
            "free space, or set HF_HOME (files of the Hub) and CSE_HOME to another disk",
            code="disk.full",
        )
    return DiskError(
        f"cannot write {target}: {error.strerror or error}",
        "check the permissions of the directory",
        code="disk.not_writable",
    )


# --- files at an address ----------------------------------------------------------------------------------------------


def download(
    url: str, target: Path, *, size: int = 0, sha256: str | None = None, label: str = "", force: bool = False
) -> None:
    """Download a file from an address, unless it exists.

    The bytes go to `target` + ".part", which is renamed when it is complete and has the right digest.
    """
    from filelock import FileLock
    from huggingface_hub import get_session
    from huggingface_hub.errors import OfflineModeIsEnabled

    label = label or target.name
    part, lock = (target.with_name(f"{target.name}.{ending}") for ending in ("part", "lock"))

    def receive() -> None:
        with part.open("ab") as file:
            headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={file.tell()}-"} if file.tell() else {})
            with get_session().stream("GET", url, headers=headers, timeout=PATIENCE, follow_redirects=True) as response:
                response.raise_for_status()
                if response.status_code != http().codes.PARTIAL_CONTENT:
                    file.seek(0)
                    file.truncate()
                for block in response.iter_bytes():
                    file.write(block)
                    report(label, file.tell(), size or None)

    try:
        require_space(target.parent, size)
        with FileLock(lock):
            if force or not target.exists():
                part.unlink(missing_ok=True)  # left by a process that was killed
                retried(label, receive, received=lambda: part.stat().st_size if part.exists() else 0)
                if sha256 is not None and (found := digest(part)) != sha256:
                    part.unlink()
                    raise MissingError(
                        f"cannot download {label}: SHA-256 {found} instead of {sha256}",
                        "try again later, or another network",
                        code="download.wrong_bytes",
                    )
                part.replace(target)
            lock.unlink(missing_ok=True)
    except (http().HTTPError, http().InvalidURL, OfflineModeIsEnabled) as error:
        raise MissingError(
            f"cannot download {label}: {reason(error)}",
            "try again later, or check the address and the proxy (HTTPS_PROXY)",
            code="download.failed",
        ) from error
    except OSError as error:
        raise disk_error(target, error) from error


@dataclass(frozen=True)
class KnownFile:
    """A file with a known address and digest, in an archive or not.

    Args:
        name: Name in recipes.
        title: One line about its content.
        license: License terms.
        url: Address of the file, or of a .zip archive if there are `members`.
        bytes: Size of the download.
        sha256: Digest of the download.
        members: Files of the archive to keep. The first one is the named file.
    """

    name: str
    title: str
    license: str
    url: str
    bytes: int
    sha256: str
    members: tuple[str, ...] = ()

    def cached(self) -> Path | None:
        """Return the path of the file, or None if it was not downloaded."""
        places = [_place(member) for member in self.members or (self.name,)]
        return places[0] if all(place.is_file() for place in places) else None

    def fetch(self) -> Path:
        """Return the path of the file. It is downloaded and checked, and an archive unpacked, if that was not done."""
        if (found := self.cached()) is not None:
            return found
        place = _place(self.name)
        if not self.members:
            download(self.url, place, size=self.bytes, sha256=self.sha256, label=self.name)
            return place
        archive = place.with_name(f"{self.name}.zip")
        download(self.url, archive, size=self.bytes, sha256=self.sha256, label=self.name)
        with zipfile.ZipFile(archive) as packed:
            for member in self.members:
                draft = _place(member).with_suffix(".new")
                try:
                    with packed.open(member) as source, draft.open("wb") as target:
                        shutil.copyfileobj(source, target, 1 << 20)
                except KeyError as error:
                    raise MissingError(f"{self.url} does not contain {member}", code="data.missing_file") from error
                draft.replace(_place(member))
        archive.unlink()
        return _place(self.members[0])


def _place(member: str) -> Path:
    return paths.downloads() / "files" / PurePosixPath(member).name


@cache
def known_files() -> dict[str, KnownFile]:
    """Return the known files by name."""
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return {
        name: KnownFile(name=name, **{**about, "members": tuple(about.get("members", ()))})
        for name, about in table.items()
    }

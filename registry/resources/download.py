"""Downloads over an unreliable network, with retries, resuming and verification.

huggingface_hub and pooch restart an interrupted file from its first byte; see docs/adr/0003-downloads.md. Requests use
the HTTP client of huggingface_hub, so its proxy, certificate and offline settings apply.
"""

from __future__ import annotations

import errno
import hashlib
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from registry.errors import DiskError, MissingError
from registry.paths import make_folder, no_room

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

TRIES = 5
"""Maximum number of attempts in a row that receive no new bytes."""

SILENCE = 25.0
"""Seconds without a response or a byte, over all attempts, after which a request fails."""

READ_TIMEOUT = 10.0
"""Seconds without a byte after which one attempt fails."""

FIRST_PAUSE = 0.5
"""Upper bound in seconds of the first random pause. It doubles with each attempt."""

LONGEST_PAUSE = 60.0
"""Longest `Retry-After` in seconds that is respected."""

_RETRIED = (408, 416, 429, 500, 502, 503, 504)
_REPORT_EVERY = 0.1


class DownloadError(MissingError):
    """A failed request.

    Attributes:
        label: Name of the file or repository.
        reason: Cause, without the address.
        status: HTTP status, or None if there was no response.
        hub_code: `X-Error-Code` of the Hub, such as "GatedRepo", or an empty string.
        retry_after: Seconds that the server asks to wait, or None.
    """

    def __init__(
        self,
        label: str,
        reason: str,
        *,
        status: int | None = None,
        hub_code: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(
            f"cannot download {label}: {reason}",
            "try again later, or check the address and the proxy (HTTPS_PROXY)",
            code="download.failed",
        )
        self.label, self.reason, self.status = label, reason, status
        self.hub_code, self.retry_after = hub_code, retry_after


# --- progress ---------------------------------------------------------------------------------------------------------

Reporter = Callable[[str, int, int | None, str], None]
"""Function of label, bytes received, total bytes (None: unknown) and a note ("waiting 2 s: 429", or empty)."""

_reporter: Reporter | None = None


@contextmanager
def reporting(reporter: Reporter) -> Iterator[None]:
    """Report all downloads of this process to `reporter`, from any thread, at most ten times per second."""
    global _reporter
    previous, _reporter = _reporter, reporter
    try:
        yield
    finally:
        _reporter = previous


def _report(label: str, done: int, total: int | None, note: str = "") -> None:
    if _reporter is not None:
        _reporter(label, done, total, note)


# --- retries ----------------------------------------------------------------------------------------------------------


def with_retries(label: str, request: Callable[[float], T], received: Callable[[], int] = int) -> T:
    """Return the result of a request, and repeat it after failures that can pass.

    Args:
        label: Name of the file or repository for messages.
        request: Function that sends the request. Its argument is the timeout in seconds.
        received: Function that returns the number of bytes received so far.

    Raises:
        DownloadError: If the server rejects the request, or all attempts failed.
    """
    import httpx2

    began = last_response = time.monotonic()
    failures, furthest = 0, received()
    while True:
        try:
            return request(max(0.05, min(READ_TIMEOUT, last_response + SILENCE - time.monotonic())))
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            failure = _failure(label, error)
        if failure.status is not None and failure.status not in _RETRIED:
            raise failure
        if failure.status is not None or received() > furthest:
            last_response = time.monotonic()
        failures = 1 if received() > furthest else failures + 1
        furthest = max(furthest, received())
        # Full jitter: processes that were rejected together do not return together.
        jitter = random.uniform(0, FIRST_PAUSE * 2 ** (failures - 1))
        pause = jitter if failure.retry_after is None else failure.retry_after
        silent = time.monotonic() + jitter - last_response
        if failures >= TRIES or silent >= SILENCE or pause > LONGEST_PAUSE:
            raise _given_up(failure, failures, time.monotonic() - began, pause)
        _report(label, received(), None, f"waiting {pause:.1f} s: {failure.reason}")
        time.sleep(pause)


def _given_up(failure: DownloadError, tries: int, seconds: float, pause: float) -> DownloadError:
    wait = f"; the server asks to wait {pause:.0f} s" if pause > LONGEST_PAUSE else ""
    reason = f"{failure.reason} ({tries} {'try' if tries == 1 else 'tries'} in {seconds:.0f} s{wait})"
    return DownloadError(failure.label, reason, status=failure.status, hub_code=failure.hub_code)


def _failure(label: str, error: Exception) -> DownloadError:
    """Return an error of the HTTP client as one line."""
    import httpx2
    from huggingface_hub.errors import OfflineModeIsEnabled

    if isinstance(error, OfflineModeIsEnabled):
        raise DownloadError(label, "HF_HUB_OFFLINE is set") from error
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol | httpx2.TooManyRedirects):
        raise DownloadError(label, str(error)) from error
    response: httpx2.Response | None = getattr(error, "response", None)
    if response is not None:
        reason = f"{response.status_code} {response.headers.get('X-Error-Message') or response.reason_phrase}"
        return DownloadError(
            label,
            reason.rstrip(" ."),
            status=response.status_code,
            hub_code=response.headers.get("X-Error-Code", ""),
            retry_after=_retry_after(response),
        )
    if isinstance(error, OSError) and not isinstance(error, TimeoutError | ConnectionError):
        raise error
    request: httpx2.Request | None = getattr(error, "_request", None)
    host = "the server" if request is None else request.url.host
    if isinstance(error, httpx2.TimeoutException | TimeoutError):
        return DownloadError(label, f"{host} does not respond")
    brief = str(error).partition(" (")[0] or type(error).__name__
    if isinstance(error, httpx2.ConnectError | httpx2.ProxyError):
        return DownloadError(label, f"cannot connect to {host}: {brief}")
    return DownloadError(label, f"the connection to {host} was interrupted: {brief}")


def _retry_after(response: httpx2.Response) -> float | None:
    """Return the seconds of `Retry-After`, which is a number or a date."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


# --- files ------------------------------------------------------------------------------------------------------------


def digest(path: Path, *, git: bool = False) -> str:
    """Return the SHA-256 of a file, or its SHA-1 as a git blob."""
    with path.open("rb") as stream:
        if not git:
            return hashlib.file_digest(stream, "sha256").hexdigest()
        total = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
        while block := stream.read(1 << 18):
            total.update(block)
    return total.hexdigest()


@dataclass
class Download:
    """Download of one file.

    The bytes go to `target` + ".part". A later call continues this file, also after a kill. It is renamed to `target`
    when it is complete and its digest is correct. Wrong bytes are deleted and downloaded once more.

    Attributes:
        url: Address.
        target: Path of the file. Its directory is created.
        size: Number of bytes, if known.
        sha256: Hex digest, if known.
        git_sha1: Digest of the file as a git blob, for files of the Hub without a SHA-256.
        headers: HTTP headers. `Authorization` is sent only to the host of `url`.
        label: Name of the file in messages and progress.
        repair: Command that downloads the file again, for messages.
        lock: Lock file that keeps other processes from downloading the same file. Default: `target` + ".lock", which is
            deleted afterwards.
    """

    url: str
    target: Path
    size: int | None = None
    sha256: str | None = None
    git_sha1: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    label: str = ""
    repair: str = ""
    lock: Path | None = None

    def __post_init__(self) -> None:
        self.label = self.label or self.target.name
        self._part = self.target.with_name(self.target.name + ".part")
        self._reported = 0.0

    def run(self) -> None:
        """Download the file, unless it exists once this process holds the lock.

        Raises:
            DownloadError: If the server rejects the request or does not respond, or the bytes are wrong twice.
            DiskError: If the disk is full or not writable.
        """
        from filelock import FileLock, Timeout

        lock = self.lock or self.target.with_name(self.target.name + ".lock")
        try:
            make_folder(self.target.parent)
            make_folder(lock.parent)
            try:
                held = FileLock(lock).acquire(timeout=0.2)
            except Timeout:
                _report(self.label, 0, None, "another process is downloading it")
                held = FileLock(lock).acquire()
            with held:
                if not self.target.exists():
                    self._download()
                if self.lock is None:
                    lock.unlink(missing_ok=True)
        except OSError as error:
            raise disk_error(self.target, error) from error

    def fault(self, path: Path) -> str | None:
        """Return the fault in the bytes of a file ("SHA-256 … instead of …"), or None."""
        found = path.stat().st_size
        if self.size is not None and found != self.size:
            return f"{found} bytes instead of {self.size}"
        for name, expected, git in (("SHA-256", self.sha256, False), ("git SHA-1", self.git_sha1, True)):
            if expected is not None and (actual := digest(path, git=git)) != expected:
                return f"{name} {actual} instead of {expected}"
        return None

    def _download(self) -> None:
        if self.sha256 is None and self.git_sha1 is None:
            self._part.unlink(missing_ok=True)  # no digest: the old part can belong to another file
        for attempt in (1, 2):
            with_retries(self.label, self._receive, self._received)
            fault = self.fault(self._part)
            if fault is None:
                self._part.replace(self.target)
                return
            self._part.unlink()
            if attempt == 1:
                _report(self.label, 0, self.size, f"wrong bytes, downloading again: {fault}")
        error = DownloadError(self.label, f"wrong bytes in two downloads: {fault}")
        error.code = "download.wrong_bytes"
        error.next_action = f"try again later: {self.repair}" if self.repair else "try again later, or another source"
        raise error

    def _received(self) -> int:
        return self._part.stat().st_size if self._part.exists() else 0

    def _receive(self, timeout: float) -> None:
        """Request the bytes that are not in the part yet, and append them."""
        import httpx2
        from huggingface_hub import get_session

        start = self._received()
        if self.size is not None and start > self.size:
            self._part.unlink()
            start = 0
        if start == self.size and self._part.exists():
            return
        headers = {**self.headers, "Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        with get_session().stream("GET", self.url, headers=headers, timeout=timeout, follow_redirects=True) as response:
            if response.status_code == 416:
                self._part.unlink(missing_ok=True)  # longer than the file is now
            response.raise_for_status()
            self._append(response, start)
        if self.size is not None and self._received() != self.size:
            message = f"{self._received()} bytes instead of {self.size}"
            raise httpx2.RemoteProtocolError(message, request=response.request)

    def _append(self, response: httpx2.Response, start: int) -> None:
        """Write the body of a response after the first `start` bytes, or replace them if it is the whole file."""
        continued = response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        done = start if continued else 0
        length = response.headers.get("Content-Length", "")
        total = self.size or (done + int(length) if length.isdecimal() else 0)
        if total - done > shutil.disk_usage(self._part.parent).free:
            raise OSError(errno.ENOSPC, f"{(total - done) / 1e6:.0f} MB more are needed")
        with self._part.open("ab" if continued else "wb") as file:
            for block in response.iter_bytes():
                file.write(block)
                done += len(block)
                if self.size is not None and done > self.size:
                    return
                if (now := time.monotonic()) - self._reported > _REPORT_EVERY:
                    self._reported = now
                    _report(self.label, done, self.size)
        _report(self.label, done, self.size)


def disk_error(target: Path, error: OSError) -> DiskError:
    """Return the error of a file that cannot be written."""
    if no_room(error):
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

"""One request, or one file, over a network that fails: retries, back-off, resumed and verified downloads.

The transport is the HTTP client of huggingface_hub, so that proxies, certificates and offline mode are set in one
place. Its own downloader (2.4) is not used because it was measured to start from 0 after a kill and to leave its part
behind, to check sizes only, and to wait minutes for a silent server. Files travel as plain HTTP with `Range`, which the
hub and its content network answer for every file, also for those that are stored in Xet.
"""

from __future__ import annotations

import errno
import hashlib
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from registry.errors import DiskError, MissingError
from registry.paths import make_folder, no_room

if TYPE_CHECKING:
    import httpx2

TRIES = 5
"""Tries in a row that may bring nothing."""

SILENCE = 25.0
"""Seconds without an answer or a byte, over all tries, after which a transfer is given up."""

READ_TIMEOUT = 10.0
"""Seconds without a byte after which one try is given up."""

FIRST_PAUSE = 0.5
"""Mean of the first pause is half of it; every further one may be twice as long."""

LONGEST_PAUSE = 60.0
"""Seconds that a server may ask to wait (`Retry-After`)."""

SECOND_PATIENCE = 3.0
"""Seconds for the only try at a host that gave no answer at all to an earlier transfer of this process."""

_RETRIED = (408, 429, 500, 502, 503, 504)
_BLOCK = 1 << 18
_REPORT_EVERY = 0.1

_silent_hosts: set[str] = set()


class TransferError(MissingError):
    """A server refused, or did not answer.

    Attributes:
        label: What was to be fetched.
        status: HTTP status; None where there was no answer.
        code: The hub's `X-Error-Code`, such as "GatedRepo"; empty elsewhere.
        reason: What happened, without the address.
    """

    def __init__(self, label: str, reason: str, *, status: int | None = None, code: str = "") -> None:
        super().__init__(
            f"{label} could not be fetched: {reason}", "try again later, or check the address and the proxy"
        )
        self.label, self.status, self.code, self.reason = label, status, code, reason


# --- progress ---------------------------------------------------------------------------------------------------------

Reporter = Callable[[str, int, int | None, str], None]
"""Called with label, bytes there, bytes in all (None: unknown) and a note ("waiting 2 s: 429", or empty)."""

_reporter: Reporter | None = None


@contextmanager
def reporting(reporter: Reporter) -> Iterator[None]:
    """Report every transfer of this process to `reporter`, at most ten times a second, from whichever thread."""
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


class _Retries:
    """When to try again: `TRIES` failures in a row at most, and `SILENCE` seconds without anything from the server."""

    def __init__(self, label: str, url: str) -> None:
        self.label, self.host, self.failures = label, url.partition("://")[2].partition("/")[0], 0
        self.began = self.last_answer = time.monotonic()
        self.tries, self.limit = (1, SECOND_PATIENCE) if self.host in _silent_hosts else (TRIES, READ_TIMEOUT)

    def answered(self) -> None:
        """The server answered, perhaps with a refusal."""
        self.last_answer = time.monotonic()
        self.tries, self.limit = TRIES, READ_TIMEOUT
        _silent_hosts.discard(self.host)

    def advanced(self) -> None:
        """Bytes came: earlier failures no longer count."""
        self.failures, self.last_answer = 0, time.monotonic()

    def patience(self) -> float:
        """Return how many seconds the next try may be silent."""
        return max(0.05, min(self.limit, self.last_answer + SILENCE - time.monotonic()))

    def pause(self, error: TransferError, wanted: float | None, done: int, total: int | None) -> None:
        """Wait before the next try; raise where there is none.

        Args:
            error: Why the last try failed.
            wanted: Seconds that the server asked for.
            done: Bytes that are there, for progress reports.
            total: Bytes of the whole file, if known.
        """
        self.failures += 1
        # Full jitter: many processes that were refused together do not come back together.
        seconds = random.uniform(0, FIRST_PAUSE * 2 ** (self.failures - 1)) if wanted is None else wanted
        silent = time.monotonic() + (0 if wanted else seconds) - self.last_answer
        if self.failures >= self.tries or silent >= SILENCE or seconds > LONGEST_PAUSE:
            if self.last_answer == self.began:
                _silent_hosts.add(self.host)
            asked = f"; it says to retry after {seconds:.0f} s" if seconds > LONGEST_PAUSE else ""
            tries = "1 try" if self.failures == 1 else f"{self.failures} tries"
            raise TransferError(
                self.label,
                f"{error.reason} ({tries} in {time.monotonic() - self.began:.0f} s{asked})",
                status=error.status,
                code=error.code,
            ) from error
        _report(self.label, done, total, f"waiting {seconds:.1f} s: {error.reason}")
        time.sleep(seconds)
        if wanted is not None:
            self.last_answer = time.monotonic()


def _retry_after(response: httpx2.Response) -> float | None:
    """Return the seconds of `Retry-After`, which is a number or a date."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


# --- requests ---------------------------------------------------------------------------------------------------------


def get(url: str, *, headers: Mapping[str, str] | None = None, label: str = "") -> httpx2.Response:
    """Return the answer to a GET request, read whole; for answers that fit into memory.

    Raises:
        TransferError: Refused, or no answer after all tries.
    """
    import httpx2

    label = label or url
    retries = _Retries(label, url)
    while True:
        wanted: float | None = None
        try:
            with closing(_open(url, headers or {}, retries.patience())) as response:
                retries.answered()
                response.read()
            if response.is_success:
                return response
            wanted, failure = _retry_after(response), _refusal(label, response)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            failure = _failure(label, url, error)
        if not _worth_retrying(failure):
            raise failure
        retries.pause(failure, wanted, 0, None)


def answers(url: str, seconds: float) -> bool:
    """Whether an address answers in time, even with a refusal; tried once."""
    import httpx2

    try:
        _open(url, {}, seconds).close()
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError):
        return False
    return True


def _open(url: str, headers: Mapping[str, str], seconds: float) -> httpx2.Response:
    """Send a GET request and return the answer as soon as its head is there, after redirects, within `seconds`."""
    import httpx2
    from huggingface_hub import get_session

    client = get_session()
    limits = httpx2.Timeout(seconds)
    request = client.build_request("GET", url, headers={**headers, "Accept-Encoding": "identity"}, timeout=limits)
    outcome: list[Any] = []
    given_up = threading.Event()

    def send() -> None:
        try:
            response = client.send(request, stream=True, follow_redirects=True)
        except Exception as error:  # raised by the waiting thread
            outcome.append(error)
        else:
            outcome.append(response)
            if given_up.is_set():
                response.close()

    # A thread, because resolving a host name obeys no time limit, and a limit for each step is none for all of them.
    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    sending.join(seconds)
    if not outcome:
        given_up.set()
        raise httpx2.ReadTimeout(f"no answer in {seconds:.0f} s", request=request)
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    response: httpx2.Response = outcome[0]
    return response


def _refusal(label: str, response: httpx2.Response) -> TransferError:
    said = response.headers.get("X-Error-Message") or response.reason_phrase
    reason = f"{response.status_code} {said}".rstrip(" .")
    return TransferError(label, reason, status=response.status_code, code=response.headers.get("X-Error-Code", ""))


def _failure(label: str, url: str, error: Exception) -> TransferError:
    """Return a transport's error in one line."""
    import httpx2
    from huggingface_hub.errors import OfflineModeIsEnabled

    host = httpx2.URL(url).host if not isinstance(error, httpx2.InvalidURL) else url
    if isinstance(error, OfflineModeIsEnabled):
        raise TransferError(label, "HF_HUB_OFFLINE forbids the network") from error
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol | httpx2.TooManyRedirects):
        raise TransferError(label, f"{url}: {error}") from error
    if isinstance(error, OSError) and not isinstance(error, TimeoutError | ConnectionError):
        raise error
    if isinstance(error, httpx2.TimeoutException):
        return TransferError(label, f"{host} does not answer")
    if isinstance(error, httpx2.ConnectError | httpx2.ProxyError):
        return TransferError(label, f"{host} cannot be reached: {_brief(error)}")
    return TransferError(label, f"the connection to {host} broke off: {_brief(error)}")


def _brief(error: Exception) -> str:
    return str(error).partition(" (")[0] or type(error).__name__


def _worth_retrying(failure: TransferError) -> bool:
    return failure.status is None or failure.status in _RETRIED


# --- files ------------------------------------------------------------------------------------------------------------


def download(
    url: str,
    target: Path,
    *,
    size: int | None = None,
    sha256: str | None = None,
    headers: Mapping[str, str] | None = None,
    label: str = "",
    repair: str = "",
) -> None:
    """Fetch one file, unless another process has put it there meanwhile; as `Download`, which names the arguments."""
    Download(url, target, size, sha256, headers=headers or {}, label=label, repair=repair).run()


def checksum(path: Path, *, git: bool = False) -> str:
    """Return the SHA-256 of a file, or its SHA-1 as a git blob."""
    with path.open("rb") as stream:
        if not git:
            return hashlib.file_digest(stream, "sha256").hexdigest()
        total = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
        while block := stream.read(_BLOCK):
            total.update(block)
    return total.hexdigest()


def faults(path: Path, size: int | None, sha256: str | None, git_sha1: str | None) -> str | None:
    """Return what is wrong with the bytes of a file, or None: "SHA-256 … instead of …"."""
    found = path.stat().st_size
    if size is not None and found != size:
        return f"{found} bytes instead of {size}"
    for name, wanted, git in (("SHA-256", sha256, False), ("git SHA-1", git_sha1, True)):
        if wanted is not None:
            there = checksum(path, git=git)
            return f"{name} {there} instead of {wanted}" if there != wanted else None
    return None


@contextmanager
def _held(lock: Any, label: str) -> Iterator[None]:
    from filelock import Timeout

    try:
        lock.acquire(timeout=0.2)
    except Timeout:
        _report(label, 0, None, "another process is fetching it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@dataclass
class Download:
    """Fetching of one file.

    Bytes go to `target` + ".part", which a later call continues, also after a kill; the file gets its name when it is
    complete and its checksum is right. Wrong bytes are thrown away and fetched once more from the start.

    Attributes:
        url: Address.
        target: Where the file goes; its folder is made.
        size: Bytes, where known.
        sha256: Hex digest, where known.
        git_sha1: Digest of the file as a git blob, for files of the hub that have no SHA-256.
        headers: Sent along; `Authorization` to the host of `url` only.
        label: Name of the file in messages and progress.
        repair: Command that fetches the file anew, for messages.
        lock: File that keeps other processes from fetching the same; left out, `target` + ".lock", removed afterwards.
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
        self._furthest = 0  # bytes: a server that sends the same beginning again and again gets no further
        self._reported = 0.0

    def run(self) -> None:
        """Fetch the file, unless it is there by the time this process may.

        Raises:
            TransferError: Refused, silent, or wrong twice.
            DiskError: No room, or no permission.
        """
        from filelock import FileLock

        place = self.lock or self.target.with_name(self.target.name + ".lock")
        try:
            make_folder(self.target.parent)
            make_folder(place.parent)
            with _held(FileLock(place), self.label):
                if not self.target.exists():
                    self._fetch()
                if self.lock is None:
                    place.unlink(missing_ok=True)
        except OSError as error:
            raise disk_error(self.target, error) from error

    def _fetch(self) -> None:
        if self.sha256 is None and self.git_sha1 is None:
            self._part.unlink(missing_ok=True)  # an old part may belong to another file
        for last in (False, True):
            self._fill()
            wrong = faults(self._part, self.size, self.sha256, self.git_sha1)
            if wrong is None:
                self._part.replace(self.target)
                return
            self._part.unlink()
            self._furthest = 0
            if not last:
                _report(self.label, 0, self.size, f"wrong bytes, fetched anew: {wrong}")
        error = TransferError(self.label, f"twice with wrong bytes: {wrong}")
        error.next_action = f"try again later: {self.repair}" if self.repair else "try again later, or another source"
        raise error

    def _fill(self) -> None:
        """Fetch what the part lacks, in as many tries as it takes."""
        import httpx2

        retries = _Retries(self.label, self.url)
        while (done := self._done()) is None or done != self.size:
            before, wanted = done or 0, None
            try:
                response = _open(self.url, self._asking(before), retries.patience())
                with closing(response):
                    retries.answered()
                    if response.is_success:
                        self._append(response, before, retries)
                        if self.size is None or self._done() == self.size:
                            return
                        failure = TransferError(self.label, f"the answer has not the {self.size} bytes of the file")
                    elif response.status_code == 416 and before:
                        self._part.unlink()  # longer than the file is now
                        failure = _refusal(self.label, response)
                    else:
                        wanted, failure = _retry_after(response), _refusal(self.label, response)
                        if not _worth_retrying(failure):
                            raise failure
            except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ConnectionError) as error:
                failure = _failure(self.label, self.url, error)
            retries.pause(failure, wanted, self._done() or 0, self.size)

    def _done(self) -> int | None:
        """Return the bytes that are there; a part that is too long, or empty, is removed."""
        try:
            found = self._part.stat().st_size
        except FileNotFoundError:
            return None
        if self.size is not None and (found > self.size or found == 0 < self.size):
            self._part.unlink()
            return None
        return found

    def _asking(self, start: int) -> dict[str, str]:
        return {**self.headers, **({"Range": f"bytes={start}-"} if start else {})}

    def _append(self, response: httpx2.Response, start: int, retries: _Retries) -> None:
        """Write an answer's body behind the `start` bytes that are there, or in their place if it is the whole file."""
        continued = response.status_code == 206 and response.headers.get("Content-Range", "").startswith(
            f"bytes {start}-"
        )
        done = start if continued else 0
        self._check_room(response, done)
        with self._part.open("ab" if continued else "wb") as file:
            for block in response.iter_bytes():
                file.write(block)
                done += len(block)
                if done > self._furthest:
                    self._furthest = done
                    retries.advanced()
                if self.size is not None and done > self.size:
                    return  # longer than announced: the checks report it
                if (now := time.monotonic()) - self._reported > _REPORT_EVERY:
                    self._reported = now
                    _report(self.label, done, self.size)
        _report(self.label, done, self.size)

    def _check_room(self, response: httpx2.Response, done: int) -> None:
        length = response.headers.get("Content-Length", "")
        needed = self.size - done if self.size is not None else int(length) if length.isdecimal() else 0
        if needed > shutil.disk_usage(self._part.parent).free:
            raise OSError(errno.ENOSPC, f"{needed / 1e6:.0f} MB more are needed")


def disk_error(target: Path, error: OSError) -> DiskError:
    """Return what to say where a file could not be written."""
    if no_room(error):
        return DiskError(
            f"no room on the disk for {target}: {error.strerror}",
            "free some, or let HF_HOME (models and data of the hub) and CSE_HOME name another disk",
        )
    return DiskError(f"{target} cannot be written: {error.strerror or error}", "check the folder's permissions")

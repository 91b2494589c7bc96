"""The lock that the process of a run holds. Other processes recognize a running run by it.

It is the operating system's lock on a file. It needs no clock and no process ID, so it also works between containers
and machines that share a disk. The system releases it when the process exits, even by SIGKILL.

`filelock` cannot replace it: `is_held` must work in a read-only directory and must not block the owner, file systems
without locks (NFS without its lock service, Lustre without `flock`) must not stop a run, and `filelock` adds 50 ms to
every command. On such a file system, a run is not locked and `is_held` returns None.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from registry.paths import make_folder

LOCK, CLAIM = "lock", "claim"
"""Names of the locked files in a run's directory. They are never deleted: another process may be about to lock one."""

_PROBE_SECONDS = 0.5
"""Longer than `is_held` holds a free lock."""
_POLL_SECONDS = 0.02
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)

_held: set[int] = set()
"""File descriptors of the locks that this process holds."""


class FileLock:
    """Exclusive lock on a file, which is created if missing, until `release` or the end of the process.

    As a context manager it waits for the lock.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor: int | None = None

    def acquire(self, seconds: float = _PROBE_SECONDS) -> bool:
        """Acquire the lock, and return whether that succeeded within the given time."""
        make_folder(self._file.parent)
        # Programs that this process starts do not inherit the descriptor. Forks do: see `_leave_to_parent`.
        self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o666)
        _held.add(self._descriptor)
        until = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() > until:
                    self.release()
                    return False
                time.sleep(_POLL_SECONDS)
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    return True
                self.release()
                raise

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            _held.discard(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        self.acquire(float("inf"))
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def is_held(file: Path) -> bool | None:
    """Return whether a process holds the lock on a file, or None if the file cannot be locked."""
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


def _leave_to_parent() -> None:
    """Close the locks in a forked child, which would otherwise hold them after its parent exits."""
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_parent)

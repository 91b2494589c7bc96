"""The lock that the process of a run holds while it lives; by it every other process knows that it does.

It is the operating system's lock on a file in the run's folder. It needs no clock, which may be set, and no process id,
which means another process in another container; and it ends with its process, also where that is killed.

Some file systems have no locks (NFS without its lock service, Lustre mounted without `flock`). A run there goes on
without one, and `is_held` says None, as for runs of versions that took none: process ids decide then.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import suppress

from cse_cli.core.paths import runs
from registry.paths import make_folder

LOCK = "lock"
"""Name of the file that is locked. It stays: another process may be about to lock it."""

_LOOK_SECONDS = 0.5
"""Longer than `is_held` holds a lock that it finds free."""
_POLL_SECONDS = 0.02
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)

_held: set[int] = set()
"""File descriptors of the locks that this process holds."""


class RunLock:
    """The lock of one run.

    Args:
        run_id: The run.
    """

    def __init__(self, run_id: str) -> None:
        self._file = runs() / run_id / LOCK
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Hold the lock until `release` or the end of this process; return whether no other holds it."""
        make_folder(self._file.parent)
        # Programs that this process starts do not inherit it: Python opens files so. Forks do: see `_leave_to_parent`.
        self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o666)
        _held.add(self._descriptor)
        until = time.monotonic() + _LOOK_SECONDS
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
        """Give the lock up."""
        if self._descriptor is not None:
            _held.discard(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None


def is_held(run_id: str) -> bool | None:
    """Return whether a process holds the lock of a run; None where there is no lock, or none can be."""
    try:
        descriptor = os.open(runs() / run_id / LOCK, os.O_RDONLY)
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
    """Close the locks in a forked child: it would hold them on when the run's own process is killed."""
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_parent)

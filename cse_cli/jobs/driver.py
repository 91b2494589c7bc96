"""One driver at a time: the process that submits the runs of a study, or the trials of a search."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from cse_cli.core.paths import home
from registry.errors import CseError
from registry.paths import make_folder, write_atomically

_LOOK_SECONDS = 0.5
"""Longer than `is_driven` holds a lock that it finds free."""


@contextmanager
def sole_driver(kind: str, name: str) -> Iterator[None]:
    """Be the only driver of something while the block lasts, on all machines that share the state directory.

    The lock is the operating system's, so that it ends with its process, also when that is killed.

    Args:
        kind: "study" or "search".
        name: Of what is driven.

    Raises:
        CseError: Another process drives it; the message says which one.
    """
    file = _file(kind, name)
    make_folder(file.parent)
    lock = FileLock(f"{file}.lock", timeout=_LOOK_SECONDS)
    try:
        lock.acquire()
    except Timeout:
        raise CseError(
            f"{kind} '{name}' is being done by {_describe(file.read_text() if file.exists() else '')}",
            "to have it done faster, stop that one (what is done is kept) and start it again with more --workers",
        ) from None
    with lock:
        about = {"host": socket.gethostname(), "pid": os.getpid(), "command": shlex.join(sys.argv[1:])}
        write_atomically(file, json.dumps({**about, "since": datetime.now().astimezone().isoformat("T", "seconds")}))
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


def is_driven(kind: str, name: str) -> bool:
    """Return whether a process drives something now."""
    lock = Path(f"{_file(kind, name)}.lock")
    try:
        with FileLock(lock, timeout=0) if lock.exists() else nullcontext():
            return False
    except Timeout:
        return True


def _file(kind: str, name: str) -> Path:
    plain = re.sub(r"[^\w.-]+", "_", name)
    return home() / "drivers" / f"{kind}-{plain}.json"


def _describe(text: str) -> str:
    with suppress(ValueError, KeyError):
        about = json.loads(text)
        return f"process {about['pid']} on {about['host']} since {about['since']} (cse {about['command']})"
    return "another process"

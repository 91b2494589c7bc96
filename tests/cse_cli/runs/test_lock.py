"""A lock is held as long as its process lives, and by no process that it started."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cse_cli.runs import lock as locks
from cse_cli.runs.lock import FileLock, is_held


@pytest.fixture
def file(home: Path) -> Path:
    return home / "runs/aaaa/lock"


def test_a_lock_is_held_until_it_is_released(file: Path) -> None:
    assert is_held(file) is False
    assert not file.exists()
    one, other = FileLock(file), FileLock(file)
    assert one.acquire()
    assert is_held(file) is True
    assert not other.acquire()
    one.release()
    one.release()
    assert is_held(file) is False
    assert other.acquire()
    other.release()
    assert [each.name for each in file.parent.iterdir()] == ["lock"]


def test_a_check_does_not_keep_the_lock_from_a_run(file: Path) -> None:
    file.parent.mkdir(parents=True)
    looks = os.open(file, os.O_RDWR | os.O_CREAT)
    fcntl.flock(looks, fcntl.LOCK_SH)
    assert is_held(file) is False  # several checks at once do not disturb each other
    threading.Timer(0.1, os.close, [looks]).start()
    lock = FileLock(file)
    assert lock.acquire()
    lock.release()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_stops_no_run(number: int, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    lock = FileLock(file)
    assert lock.acquire()
    assert is_held(file) is None
    lock.release()


def _holds(file: Path, starts: Callable[[int], int | None]) -> tuple[int, int]:
    """Fork a process that holds the lock and starts another one; return the ids of both."""
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            FileLock(file).acquire()
            os.write(writer, f"{starts(writer)}\n".encode())
            time.sleep(60)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        return parent, int(told.readline())


def _fork(writer: int) -> int:
    if child := os.fork():
        return child
    os.close(writer)
    time.sleep(60)
    os._exit(0)


def _program(writer: int) -> int:
    return subprocess.Popen(["sleep", "60"]).pid


@pytest.mark.process
@pytest.mark.parametrize("starts", [_fork, _program])
def test_a_killed_process_frees_the_lock_though_its_child_lives(starts: Callable[[int], int], file: Path) -> None:
    parent, child = _holds(file, starts)
    try:
        assert is_held(file) is True
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        until = time.monotonic() + 5
        while is_held(file) and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(child, 0)
        assert is_held(file) is False
    finally:
        os.kill(child, signal.SIGKILL)

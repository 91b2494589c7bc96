"""The lock of a run: held as long as its process lives, and by no process that it has started."""

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

from cse_cli.core import run_lock
from cse_cli.core.run_lock import RunLock, is_held


def test_a_lock_is_held_until_it_is_released(home: Path) -> None:
    assert is_held("aaaa") is None
    one, other = RunLock("aaaa"), RunLock("aaaa")
    assert one.acquire()
    assert is_held("aaaa") is True
    assert not other.acquire()
    one.release()
    one.release()
    assert is_held("aaaa") is False
    assert other.acquire()
    other.release()
    assert [file.name for file in (home / "runs/aaaa").iterdir()] == ["lock"]


def test_whoever_only_looks_does_not_keep_the_lock_from_a_run(home: Path) -> None:
    (home / "runs/aaaa").mkdir(parents=True)
    looks = os.open(home / "runs/aaaa/lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(looks, fcntl.LOCK_SH)
    assert is_held("aaaa") is False  # nor from others who look
    threading.Timer(0.1, os.close, [looks]).start()
    lock = RunLock("aaaa")
    assert lock.acquire()
    lock.release()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_costs_no_run_its_life(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(run_lock.fcntl, "flock", refuse)
    lock = RunLock("aaaa")
    assert lock.acquire()
    assert is_held("aaaa") is None
    lock.release()


def _holds_it(starts: Callable[[int], int | None]) -> tuple[int, int]:
    """Fork a process that holds the lock and starts another one; return the ids of both."""
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            RunLock("aaaa").acquire()
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
def test_a_killed_process_frees_the_lock_though_one_that_it_has_started_lives_on(
    starts: Callable[[int], int], home: Path
) -> None:
    parent, child = _holds_it(starts)
    try:
        assert is_held("aaaa") is True
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        until = time.monotonic() + 5
        while is_held("aaaa") and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(child, 0)
        assert is_held("aaaa") is False
    finally:
        os.kill(child, signal.SIGKILL)

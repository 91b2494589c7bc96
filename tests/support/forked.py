"""`cse` in a process forked from one that has imported everything: there in milliseconds, not in ten seconds.

It has a session, a process id, output and an exit code of its own, and is used like a `subprocess.Popen` with pipes.
It draws no figures. What it starts itself are real programs, and so is every program of a test that is about starting.
"""

import atexit
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import BinaryIO, ClassVar, Self

import psutil

from tests.support import processes  # noqa: F401 - says what the server imports

Output = Connection | BinaryIO


class Forked:
    """A running module, as `python -m MODULE ARGUMENTS` would run it; `joined` sends its stderr to stdout."""

    def __init__(self, arguments: Sequence[object], folder: Path, joined: bool = False, **environment: str) -> None:
        context = multiprocessing.get_context("forkserver")
        out, err = context.Pipe(duplex=False), context.Pipe(duplex=False)
        given = ([str(each) for each in arguments], str(folder), {**os.environ, **environment})
        self._process = context.Process(target=become, args=(*given, out[1], (out if joined else err)[1]))
        self._process.start()
        for _, writer in (out, err):
            writer.close()
        self.stdout, self.stderr = (os.fdopen(os.dup(each[0].fileno()), "r", encoding="utf-8") for each in (out, err))
        for reader, _ in (out, err):
            reader.close()
        pid = self._process.pid
        assert pid is not None
        self.pid = pid

    @property
    def returncode(self) -> int | None:
        """The exit code; minus a signal's number, where one has ended it."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit code of a process that has ended."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("cse", timeout or 0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return what it writes until its end."""
        told = ["", ""]

        def read(place: int) -> None:
            told[place] = (self.stdout, self.stderr)[place].read()

        threads = [Thread(target=read, args=(place,), daemon=True) for place in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout)
            if thread.is_alive():
                raise subprocess.TimeoutExpired("cse", timeout or 0)
        self.wait(timeout)
        return told[0], told[1]

    def send_signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()


class ForkedWorker(Forked):
    """A worker of a run, in place of the `subprocess.Popen` of `cse_cli.jobs.child`."""

    started: ClassVar[list[Forked]] = []
    """All of them, in one test."""

    def __init__(self, command: list[str], *, cwd: Path | None, env: Mapping[str, str], stdout: BinaryIO, **_: object):
        given = (command[3:], str(cwd or Path.cwd()), dict(env), stdout.name)
        self._process = multiprocessing.get_context("forkserver").Process(target=become_worker, args=given)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.started.append(self)


def become_worker(arguments: list[str], folder: str, environment: Mapping[str, str], log: str) -> None:
    """Be a worker, whose parent is the process that asked for it and not the server."""
    parent = int(arguments[-1])
    os.getppid = lambda: parent if psutil.pid_exists(parent) else 1
    with Path(log).open("ab") as out:
        become(arguments, folder, environment, out, out)


def become(arguments: list[str], folder: str, environment: Mapping[str, str], out: Output, err: Output) -> None:
    """Be a program with these arguments, this environment and these ends of its output."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.modules["cse_cli.analysis.figures"].draw_run = lambda *_: []
    signal.signal(signal.SIGINT, signal.default_int_handler)
    null = os.open(os.devnull, os.O_RDONLY)
    for number, written in enumerate((null, out.fileno(), err.fileno())):
        os.dup2(written, number)
    for connection in {id(each): each for each in (out, err)}.values():
        connection.close()
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", closefd=False, buffering=1) for number, mode in enumerate("rww")
    )
    sys.argv[1:] = arguments[1:]
    try:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()

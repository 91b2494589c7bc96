"""A child process of an executor: `python -m cse_cli.jobs.worker FD PARENT PROCESSES` does what comes in.

What a library writes on stdout and stderr, and the last words of a crash, go to the log of the run at work.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

from cse_cli.core.console import Observer, Pruned, RunInfo
from cse_cli.core.processes import end_with_parent
from cse_cli.core.results import Result
from cse_cli.jobs.channel import Failed, RemoteObserver, tell_through
from cse_cli.jobs.executor import SerialExecutor
from cse_cli.runs.record import log_of
from cse_cli.runs.signals import Terminated
from cse_cli.training.build import Job
from registry.errors import CseError, RunFailedError


def main() -> None:
    """Run job after job until the driver has no more, or is gone."""
    channel: Connection[Any, Any] = Connection(int(sys.argv[1]))
    os.set_inheritable(channel.fileno(), False)
    end_with_parent(int(sys.argv[2]))
    executor = SerialExecutor(int(sys.argv[3]))
    signal.signal(signal.SIGTERM, _leave)
    observer = RemoteObserver(tell_through(channel), _log_to)
    outside = os.dup(sys.stderr.fileno())
    with suppress(EOFError, ConnectionError):  # the driver is gone
        while (job := channel.recv()) is not None:
            channel.send(_end_of(executor, job, observer))
            _write_to(outside)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # taking the libraries down would take 3.5 s, for which the command would wait


def _leave(number: int, _frame: FrameType | None) -> None:
    raise Terminated(128 + number)


def _end_of(executor: SerialExecutor, job: Job, observer: Observer) -> Result | Failed:
    """Return what became of a job, in a form that can be sent."""
    try:
        return executor.submit(job, observer).result()
    except (CseError, Pruned) as error:
        return Failed(error.with_traceback(None))
    except ConnectionError:
        raise  # of the channel
    except Exception as error:
        traceback.print_exc()
        return Failed(RunFailedError(f"{type(error).__name__}: {error}", "its log has the traceback: cse runs logs"))


def _log_to(run: RunInfo) -> None:
    with log_of(run.run_id).open("ab") as log:
        _write_to(log.fileno())


def _write_to(descriptor: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(descriptor, stream.fileno())


if __name__ == "__main__":
    main()

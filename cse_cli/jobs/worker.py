"""Program of a child process that runs jobs: `python -m cse_cli.jobs.worker FD PARENT PROCESSES`.

Its stdout and stderr go to the log of the current run, with the output of libraries and the traceback of a crash.
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

from cse_cli.core.events import Observer, Pruned, RunInfo
from cse_cli.core.garbage import collect_rarely
from cse_cli.core.processes import end_with_parent
from cse_cli.core.results import Result
from cse_cli.jobs.child import Failed, RemoteObserver, send_through
from cse_cli.jobs.executor import SerialExecutor
from cse_cli.runs.record import log_of
from cse_cli.runs.signals import Terminated
from cse_cli.training.build import Job
from registry.errors import CseError, RunFailedError


def main() -> None:
    """Run the jobs that the driver sends, until it sends None or exits."""
    collect_rarely()
    channel: Connection[Any, Any] = Connection(int(sys.argv[1]))
    os.set_inheritable(channel.fileno(), False)
    end_with_parent(int(sys.argv[2]))
    executor = SerialExecutor(int(sys.argv[3]))
    signal.signal(signal.SIGTERM, _terminate)
    observer = RemoteObserver(send_through(channel), _log_to)
    outside = os.dup(sys.stderr.fileno())
    with suppress(EOFError, ConnectionError):  # the driver has exited
        while (job := channel.recv()) is not None:
            channel.send(_end_of(executor, job, observer))
            _redirect_output(outside)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a normal exit takes 3.5 s, mostly in destructors of libraries


def _terminate(number: int, _frame: FrameType | None) -> None:
    raise Terminated(128 + number)


def _end_of(executor: SerialExecutor, job: Job, observer: Observer) -> Result | Failed:
    try:
        return executor.submit(job, observer).result()
    except (CseError, Pruned) as error:
        return Failed(error.with_traceback(None))
    except ConnectionError:
        raise  # of the channel
    except Exception as error:
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}"
        return Failed(RunFailedError(message, "read the traceback in its log: cse runs logs", code="jobs.crashed"))


def _log_to(run: RunInfo) -> None:
    with log_of(run.run_id).open("ab") as log:
        _redirect_output(log.fileno())


def _redirect_output(descriptor: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(descriptor, stream.fileno())


if __name__ == "__main__":
    main()

"""Program that executes one run: `python -m cse_cli.jobs.worker RUN_ID DEVICE PROCESSES PARENT`.

It sends nothing: its driver reads the events of the run. With several PROCESSES, torch's elastic agent starts this
program once for each of them, with the environment of torchrun, watches them, and ends them together.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING

from cse_cli.core import processes as group
from cse_cli.core.garbage import collect_rarely

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

BUSY = 75
"""Exit code if another process still executes the run."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main() -> None:
    """Execute the run in one process or as one of several, and exit."""
    collect_rarely()
    run_id, device, count, parent = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    here = group.torchrun_rank()
    if here is not None:
        group.install_signal_handlers(here.rank)  # before a library starts threads
    else:
        signal.signal(signal.SIGTERM, _terminate)
    group.end_with_parent(parent)
    if here is None and count > 1:
        group.run_rank_and_exit(lambda: launch(run_id, device, count))
    group.run_rank_and_exit(lambda: execute(run_id, device, here or group.ProcessRank()))


def execute(run_id: str, device: str, here: group.ProcessRank) -> int:
    """Execute a run, and return the exit code. The record has the reason of a failure."""
    from cse_cli.core.distributed import announce_failure, joined
    from cse_cli.runs.claim import BusyError
    from cse_cli.runs.events import Pruned
    from cse_cli.training.run import train
    from registry.errors import CseError

    try:
        with joined(here, device):
            train(run_id, device)
    except Pruned:
        return 0
    except BusyError:
        return BUSY
    except CseError as error:
        group.ignore_signals()
        announce_failure(error)
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


def launch(run_id: str, device: str, count: int) -> int:
    """Execute a run in several processes, and return the exit code. What they did not send to mirrors is sent here."""
    from contextlib import closing
    from tempfile import TemporaryDirectory
    from uuid import uuid4

    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from cse_cli.core.threads import worker_environment
    from cse_cli.mirrors.mirror import Follower
    from cse_cli.runs.record import last_end

    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.update(worker_environment(count, device))
    with TemporaryDirectory(prefix="cse-run-") as logs:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=count,
            run_id=uuid4().hex,
            # A free port of the loopback device, without a look-up of the host name.
            rdzv_backend="c10d",
            rdzv_endpoint="127.0.0.1:0",
            local_addr="127.0.0.1",
            max_restarts=0,
            monitor_interval=0.1,
            shutdown_timeout=int(group.PATIENT_SECONDS) + 5,
            signals_to_handle=",".join(each.name for each in _SIGNALS),
            logs_specs=DefaultLogsSpecs(logs, redirects=dict.fromkeys(range(1, count), Std.ALL)),
        )
        arguments = ("-P", "-m", "cse_cli.jobs.worker", run_id, device, str(count), str(os.getpid()))
        try:
            elastic_launch(config, sys.executable)(*arguments)
            return 0
        except SignalException as signalled:
            code = 128 + signalled.sigval
        except ChildFailedError as error:
            sys.stderr.write(f"{_root_cause(error.failures, count)}\n")
            code = max(failure.exitcode for failure in error.failures.values())
            code = 1 if code < 0 or last_end(run_id) is None else code
        with closing(Follower(run_id)):
            return code


def _root_cause(failures: dict[int, ProcessFailure], count: int) -> str:
    """Return how the process ended that failed first, not one that was stopped after it."""
    from cse_cli.jobs.child import describe_exit

    stopped = {-number for number in _SIGNALS} | {128 + number for number in _SIGNALS}
    rank, failed = min(failures.items(), key=lambda one: (one[1].exitcode in stopped, one[0]))
    return f"rank {rank} of {count} (pid {failed.pid}) {describe_exit(failed.exitcode, [])}"


def _terminate(number: int, _frame: FrameType | None) -> None:
    from cse_cli.runs.signals import Terminated

    raise Terminated(128 + number)


if __name__ == "__main__":
    main()

"""Program of one of several processes of a run: `python -m cse_cli.jobs.rank DIRECTORY PARENT`.

torch's agent starts it. Rank 0 sends the events of the run to the process of the agent. Every process writes its error
to the directory.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

from cse_cli.core.processes import (
    ProcessRank,
    end_with_parent,
    ignore_signals,
    install_signal_handlers,
    run_rank_and_exit,
    torchrun_rank,
)

if TYPE_CHECKING:
    from cse_cli.core.events import Observer
    from cse_cli.jobs.elastic import Exchange


def main() -> None:
    """Run the job of a directory as one of several processes."""
    here = torchrun_rank() or ProcessRank()
    install_signal_handlers(here.rank)  # before a library starts threads
    path, parent = Path(sys.argv[1]), int(sys.argv[2])
    end_with_parent(parent)
    run_rank_and_exit(lambda: _run(path, parent, here))


def _run(path: Path, parent: int, here: ProcessRank) -> int:
    """Run the job, write its result or error, and return the exit code."""
    from cse_cli.core.distributed import announce_failure, joined
    from cse_cli.jobs.elastic import Exchange
    from cse_cli.training.run import execute
    from registry.errors import CseError

    exchange = Exchange(path)
    job = exchange.read("job")
    try:
        with joined(here, job.device):
            result = execute(job, _observer(exchange, here))
        if here.rank == 0:
            exchange.write("result", result)
        return 0
    except CseError as error:
        ignore_signals()
        announce_failure(error)
        exchange.write(f"failure-{here.rank}", error)
        return error.exit_code
    finally:
        if os.getppid() != parent:  # the parent was killed, and cannot delete the directory
            rmtree(path, ignore_errors=True)


def _observer(exchange: Exchange, here: ProcessRank) -> Observer:
    from multiprocessing.connection import Client

    from cse_cli.core.events import SilentObserver
    from cse_cli.jobs.child import RemoteObserver, send_through

    if here.rank > 0:
        return SilentObserver()
    return RemoteObserver(send_through(Client(exchange.address)), lambda run: exchange.write("run", run.run_id))


if __name__ == "__main__":
    main()

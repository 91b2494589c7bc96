"""A process that `cse run` has started for a run: `python -m cse_cli.launch FOLDER PARENT`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shutil import rmtree

from cse_cli.processes.leaving import among_others, end_with_parent, listen
from cse_cli.processes.place import Place, place


def main() -> None:
    """Do the run of a folder, alone or as one of several processes."""
    here = place() or Place()
    if here.world > 1:
        listen(here.rank)  # first: no library may start a thread before
    end_with_parent(int(sys.argv[2]))
    among_others(lambda: _do(Path(sys.argv[1]), int(sys.argv[2]), here))


def _do(folder: Path, parent: int, here: Place) -> int:
    from cse_cli.launch.child import do
    from cse_cli.launch.handover import Handover

    try:
        return do(Handover(folder), here)
    finally:
        if os.getppid() != parent:  # killed: nobody else tidies up
            rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

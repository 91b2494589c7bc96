"""One worker of a search, started by `processes`: the plan comes on stdin, what it tells goes to a log."""

from __future__ import annotations

import sys

from cse_cli import tracking
from cse_cli.core.processes import end_with_parent
from cse_cli.tuning.config import Plan
from cse_cli.tuning.search import Lines, work
from registry.errors import CseError


def main() -> int:
    """Do one worker's share; return the exit code."""
    end_with_parent()
    try:
        with tracking.ending(tracking.NullTracker()):  # nothing to record here; a signal ends it in order
            work(Plan.from_json(sys.stdin.read()), sys.argv[1] or None, Lines())
    except CseError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""MLflow's server, which exits with the process that started it: `python -m cse_cli.mirrors.server PARENT OPTIONS`."""

from __future__ import annotations

import sys

from cse_cli.core.processes import end_with_parent


def main(parent: int, options: list[str]) -> None:
    """Serve until a signal, or until the process `parent` exits, even by SIGKILL."""
    end_with_parent(parent)
    from mlflow.cli import cli

    cli(["server", *options], prog_name="mlflow")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])

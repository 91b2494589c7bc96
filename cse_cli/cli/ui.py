"""`cse runs sync` and `cse ui`."""

from __future__ import annotations

from typing import Annotated

import typer

from cse_cli.cli.options import AsJson

SYNC_EPILOG = "Examples:  cse runs sync  ·  MLFLOW_TRACKING_URI=http://server:5000 cse runs sync"
UI_EPILOG = "Examples:  cse ui  ·  cse ui --port 5555 --no-browser"


def sync(json_: AsJson = False) -> None:
    """Send the runs that MLflow, or a mirror in CSE_MIRRORS, does not have completely."""
    from cse_cli.mirrors import ui as mirrors

    mirrors.sync(json_=json_)


def ui(
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port. Default: a free one from 5000 up.")] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address only.")] = False,
) -> None:
    """Open the MLflow UI on this machine until Ctrl-C."""
    from cse_cli.mirrors.ui import serve

    serve(port, browser=not no_browser)

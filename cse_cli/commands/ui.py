"""`cse ui`: recorded runs in the browser."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

_EPILOG = "Examples:  cse ui  ·  cse ui --port 5555 --no-browser"


def add(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ui", epilog=_EPILOG)(ui)


def ui(
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port; default: a free one from 5000 up.")] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Show recorded runs in MLflow's pages, on this machine only, until Ctrl-C."""
    from cse_cli.tracking import location
    from cse_cli.tracking.server import serve

    address = location.uri()
    if location.is_remote(address):
        _open(location.shown(address), no_browser)
        return
    sys.stderr.write(f"opening {location.shown(address)} (about ten seconds)\n")
    serve(port, lambda url: _open(url, no_browser, "Ctrl-C ends it\n"))


def _open(url: str, no_browser: bool, hint: str = "") -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    sys.stderr.write(hint)
    if not no_browser:
        import webbrowser

        webbrowser.open(url)

"""`cse doctor`: a report to paste into an issue."""

from __future__ import annotations

from typing import Annotated

import typer

_EPILOG = "Examples:  cse doctor  ·  cse doctor --json > report.json"


def add(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor", epilog=_EPILOG)(doctor)


def doctor(json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False) -> None:
    """Report versions, devices, store, models and data; exit 1 where something is broken. Changes nothing."""
    from cse_cli.environment import environment, name_clash

    if clash := name_clash():
        # Nothing below can be imported then, our own errors included.
        typer.echo(f"error: {clash}", err=True)
        raise typer.Exit(1)

    from cse_cli.doctor import examine
    from cse_cli.render.doctor import print_report, write_report_json

    checks = examine()
    (write_report_json if json_ else print_report)(environment(), checks)
    raise typer.Exit(1 if any(check.state == "problem" for check in checks) else 0)
